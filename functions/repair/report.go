package repair

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/varvelog/varve/metadata"
)

// Report is what a repair has done, or would do. Its JSON form is stable.
type Report struct {
	Era      int64     `json:"era"`
	Lost     bool      `json:"lost"`
	Back     time.Time `json:"restored_to,omitzero"`
	Jump     int64     `json:"jump"` // where the offsets of the new era begin; 0 in a dry run that would begin it
	DryRun   bool      `json:"dry_run"`
	Finished bool      `json:"finished"`

	Topics     []Recovered `json:"recovered_topics"` // that only the bucket knew
	Grown      []Grown     `json:"grown_topics"`     // whose growth only the bucket knew
	Partitions []Partition `json:"partitions"`
	Holes      []Hole      `json:"holes"` // of archived offsets that nothing in the bucket holds
	Looked     int         `json:"segments_looked_at"`
	Archived   int         `json:"already_archived"` // intake segments, once for each lane, whose records came back exact
	Again      int         `json:"appended_segments"`
	Young      int         `json:"young_segments"` // of before the era, that their producers may still commit: run the repair again in a quarter of an hour
	Unreadable []string    `json:"unreadable"`
	Seconds    float64     `json:"seconds"`
}

// Recovered is a topic that was made anew.
type Recovered struct {
	Topic      string `json:"topic"`
	ID         string `json:"id"`
	Partitions int    `json:"partitions"`
}

// Grown is a topic that was grown again.
type Grown struct {
	Topic string `json:"topic"`
	From  int    `json:"from_partitions"`
	To    int    `json:"to_partitions"`
}

// Partition is what became of a partition.
type Partition struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Exact     int64  `json:"exact_up_to"` // offsets below it stand for what they did
	Cut       int64  `json:"cut_to"`      // from there to here they stand for nothing; 0 in a dry run
	Returned  int64  `json:"returned"`    // records of archive segments that have their offsets again
	Appended  int64  `json:"appended"`    // records with new offsets, by the order of their segments' ids
}

// Hole is offsets [From, To).
type Hole struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
}

func newReport(o Options) *Report {
	return &Report{DryRun: o.DryRun, Topics: []Recovered{}, Grown: []Grown{}, Partitions: []Partition{}, Holes: []Hole{}, Unreadable: []string{}}
}

// maxListed bounds the lists that grow with damage.
const maxListed = 1000

func (p *Report) unreadable(name string, why error) {
	if len(p.Unreadable) < maxListed {
		what := "it is of another log"
		if why != nil {
			what = why.Error()
		}
		p.Unreadable = append(p.Unreadable, name+": "+what)
	}
}

func (p *Report) hole(topic string, partition int, from, to int64) {
	if len(p.Holes) < maxListed {
		p.Holes = append(p.Holes, Hole{topic, partition, from, to})
	}
}

// of is the entry of a partition.
func (p *Report) of(topic string, partition int) *Partition {
	at, ok := slices.BinarySearchFunc(p.Partitions, Partition{Topic: topic, Partition: partition}, func(a, b Partition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	if !ok {
		p.Partitions = slices.Insert(p.Partitions, at, Partition{Topic: topic, Partition: partition})
	}
	return &p.Partitions[at]
}

func (p *Report) archived(t *metadata.Topic, partition int, k link) {
	p.of(t.Name, partition).Returned += k.Count
}

func (p *Report) appended(t *metadata.Topic, l metadata.LaneID, e metadata.Entry) {
	p.Again++
	for _, s := range e.Slots {
		if partition, ok := t.Partition(metadata.Place{Lane: l, Slot: s.Slot}); ok {
			p.of(t.Name, partition).Appended += int64(s.Count)
		}
	}
}

// close notes where partitions are cut.
func (r *run) close() {
	for _, l := range r.inOrder() {
		for _, c := range l.state.Cuts {
			if partition, ok := l.topic.Partition(metadata.Place{Lane: l.id, Slot: c.Slot}); ok && c.To == r.era.Jump {
				at := r.report.of(l.topic.Name, partition)
				at.Exact, at.Cut = c.From, c.To
			}
		}
	}
}

// foresee tells what would be done. What the archive has of what would be appended again only the run itself finds out.
func (r *run) foresee(context.Context) error {
	for _, l := range r.inOrder() {
		for _, slot := range l.slots {
			partition, _ := l.topic.Partition(metadata.Place{Lane: l.id, Slot: slot})
			at := r.report.of(l.topic.Name, partition)
			at.Exact = max(l.reach[slot], l.ends[slot])
			for _, k := range r.links(l, slot) {
				at.Returned += k.Count
				if k.hole < k.BaseOffset {
					r.report.hole(l.topic.Name, partition, k.hole, k.BaseOffset)
				}
			}
		}
	}
	for _, a := range r.additions() {
		for id, slots := range a.lanes {
			if l := r.lanes[id]; !l.has[copyOf(r.era, a.source)] {
				r.report.appended(l.topic, id, metadata.Entry{ID: a.id, Slots: slots})
			}
		}
	}
	return nil
}
