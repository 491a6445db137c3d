package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// identity tells whether table and prefix say that they are the same log. Of two that are not, nothing more can be said.
func (r *run) identity(ctx context.Context) (same bool, err error) {
	wrong := func(format string, args ...any) (bool, error) {
		r.find(Finding{Kind: IdentityWrong, Object: segment.IdentityName, Item: metadata.IdentityKey().String(), What: fmt.Sprintf(format, args...)})
		return false, nil
	}
	table, ok, err := r.table.Identity(ctx)
	switch {
	case unreadable(err):
		return wrong("the table's identity cannot be read: %v", err)
	case err != nil:
		return false, err
	case !ok:
		return wrong("the table has no identity")
	}
	r.log = table.Log
	r.report.Log = fmt.Sprintf("%x", table.Log)
	bucket, err := objects.Identity(ctx, r.bucket)
	switch {
	case errors.Is(err, store.ErrNotExist):
		return wrong("the bucket has no identity, the table is of log %x", table.Log)
	case errors.Is(err, metadata.ErrCorrupt):
		return wrong("%s cannot be read: %v", segment.IdentityName, err)
	case err != nil:
		return false, err
	case bucket != table:
		return wrong("the bucket says log %x of %s/%s, the table says log %x of %s/%s", bucket.Log, bucket.Bucket, bucket.Prefix, table.Log, table.Bucket, table.Prefix)
	}
	return true, nil
}

// topicsPage is how many rows are asked for at once.
const topicsPage = 100

// listTopics lists the rows. One that cannot be read is damage of that topic, and the others go on.
func (r *run) listTopics(ctx context.Context) ([]*metadata.Topic, error) {
	var all []*metadata.Topic
	known := map[string]bool{}
	for after, more := "", true; more; {
		var page []*metadata.Topic
		var err error
		page, more, err = r.table.Topics(ctx, after, topicsPage)
		for _, t := range page {
			all, known[t.Name], after = append(all, t), true, t.Name
		}
		if err == nil {
			continue
		}
		name, ok := rowOf(err)
		if !unreadable(err) || !ok || name <= after {
			return nil, err
		}
		if known[name] = true; r.wanted(name) {
			r.find(Finding{Kind: TopicUnreadable, Item: metadata.TopicKey(name).String(), Ranges: []Range{{Topic: name}}, What: "the row of topic " + name + " cannot be read: " + err.Error()})
		}
		r.unclear()
		after, more = name, true
	}
	for _, name := range r.o.Topics {
		if !known[name] {
			return nil, fmt.Errorf("verify topic %q: %w", name, metadata.ErrUnknownTopic)
		}
	}
	if _, err := r.table.Gone(ctx); unreadable(err) {
		r.find(Finding{Kind: GoneUnreadable, Item: metadata.GoneKey("").String(), What: "the row of a deleted topic cannot be read: " + err.Error()})
	} else if err != nil {
		return nil, err
	}
	return all, nil
}

// rowOf is the topic whose row an error of Topics is about.
func rowOf(err error) (name string, ok bool) {
	var e *metadata.Error
	if !errors.As(err, &e) {
		return "", false
	}
	return strings.CutPrefix(e.Key, metadata.TopicKey("").String())
}

func (r *run) wanted(topic string) bool {
	return len(r.o.Topics) == 0 || slices.Contains(r.o.Topics, topic)
}

// lane is a lane and what is known of it by walk and checkers alike.
type lane struct {
	id    metadata.LaneID
	who   atomic.Pointer[members]
	state atomic.Pointer[metadata.State] // as last read; before that, and where it cannot be read, of a lane of which nothing was removed
}

// members are the topics whose partitions are in a lane.
type members struct {
	topics []*metadata.Topic
	slots  [metadata.SlotsPerLane]struct {
		topic     *metadata.Topic // nil where there is no partition
		partition int
	}
}

// admit makes these the lane's topics.
func (l *lane) admit(topics []*metadata.Topic) {
	m := &members{topics: topics}
	for _, t := range topics {
		for s := range metadata.Slot(metadata.SlotsPerLane) {
			if p, ok := t.Partition(metadata.Place{Lane: l.id, Slot: s}); ok && m.slots[s].topic == nil {
				m.slots[s].topic, m.slots[s].partition = t, p
			}
		}
	}
	l.who.Store(m)
}

// place is the partition in a slot.
func (l *lane) place(s metadata.Slot) (t *metadata.Topic, partition int, ok bool) {
	at := &l.who.Load().slots[s]
	return at.topic, at.partition, at.topic != nil
}

// span names a slot's offsets; a slot that is no partition has no name.
func (l *lane) span(s metadata.Slot, from, to int64) []Range {
	if t, p, ok := l.place(s); ok {
		return []Range{{Topic: t.Name, Partition: p, From: from, To: to}}
	}
	return nil
}

// claim gives every lane to the topics that have partitions in it, counts what is to be checked, and finds slots that have two.
func (r *run) claim(topics []*metadata.Topic) []*lane {
	var lanes []*lane
	byID := map[metadata.LaneID]*lane{}
	wanted := map[metadata.LaneID]bool{}
	for _, t := range topics {
		if r.wanted(t.Name) {
			r.at.Topics++
			r.at.Partitions += int64(t.Partitions)
		}
		for _, id := range t.Lanes {
			l := byID[id]
			if l == nil {
				l = &lane{id: id}
				l.admit(nil)
				l.state.Store(&metadata.State{Lane: id})
				byID[id], lanes = l, append(lanes, l)
			}
			wanted[id] = wanted[id] || r.wanted(t.Name)
			r.shared(l, t)
			l.admit(append(slices.Clone(l.who.Load().topics), t))
		}
	}
	return slices.DeleteFunc(lanes, func(l *lane) bool { return !wanted[l.id] })
}

// shared finds the slots that t has in common with the lane's topics so far.
func (r *run) shared(l *lane, t *metadata.Topic) {
	for s := range metadata.Slot(metadata.SlotsPerLane) {
		p, ok := t.Partition(metadata.Place{Lane: l.id, Slot: s})
		other, q, taken := l.place(s)
		if ok && taken && (r.wanted(t.Name) || r.wanted(other.Name)) {
			r.find(Finding{Kind: SlotShared, Lane: string(l.id), Item: metadata.TopicKey(t.Name).String(), Ranges: []Range{{Topic: other.Name, Partition: q}, {Topic: t.Name, Partition: p}},
				What: fmt.Sprintf("slot %d of lane %s is partition %d of topic %s and partition %d of topic %s", s, l.id, q, other.Name, p, t.Name)})
		}
	}
}

// refresh reads the rows of the lane's topics again, strongly, and keeps those that are still the same topics. None left: the lane's topics were deleted.
func (r *run) refresh(ctx context.Context, l *lane) (gone bool, err error) {
	var now []*metadata.Topic
	for _, t := range l.who.Load().topics {
		row, err := r.table.Topic(ctx, t.Name)
		switch {
		case errors.Is(err, metadata.ErrUnknownTopic):
		case unreadable(err): // became so since it was listed: go by what was listed
			now = append(now, t)
		case err != nil:
			return false, err
		case row.ID == t.ID:
			now = append(now, row)
		}
	}
	if len(now) == 0 {
		return true, nil
	}
	l.admit(now)
	return false, nil
}
