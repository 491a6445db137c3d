package sim

import (
	"context"
	"errors"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

// Where nothing happens for hours nobody polls for hours: after so many polls without a record a reader ends, and another begins after up to so long.
const (
	idlePolls = 3
	idleMost  = 20 * time.Minute
)

// The same where most of the time nothing happens.
const (
	rarePolls = 2
	rareMost  = 2 * time.Hour
)

// Reader follows a topic. It starts afresh often, and then knows nothing but where it was.
type Reader struct {
	Name  string
	Topic string

	cursor *cursor
}

// Play implements Actor.
func (x *Reader) Play(w *World) {
	x.cursor = newCursor(x.Name, x.Topic, w.removes)
	const seldom = 6 // it makes more requests, and would otherwise hardly ever be where the log ends
	w.Follow(func() { w.Lives(x.Name, Life{Seldom: seldom}, math.MaxInt, x.life) })
}

func (x *Reader) life(p *Process, _ int) {
	idle := time.Second
	for log := p.Open(); log != nil && !p.world.Over(); log = p.Open() {
		n := x.cursor.follow(p, log, 1+p.Chance("polls").Below(25))
		log.Close()
		if n > 0 {
			idle = time.Second
			continue
		}
		p.world.Idle(p.Chance("idle").Within(0, idle))
		if idle = min(4*idle, idleMost); x.cursor.removes {
			idle = min(10*idle, rareMost)
		}
	}
}

// Prove implements Actor: it reads on to the ends.
func (x *Reader) Prove(w *World) { x.cursor.prove(w) }

// cursor is where a reader is, which is known outside of its process.
type cursor struct {
	topic   string
	removes bool // what is removed is passed

	mu   sync.Mutex
	by   string // the process that has it, or had it last
	next map[int]int64
}

func newCursor(by, topic string, removes bool) *cursor {
	return &cursor{topic: topic, removes: removes, by: by, next: map[int]int64{}}
}

// accompany reads beside the producer, in its process, as long as that lives.
func (a *appender) accompany() {
	own := newCursor(a.Name, a.topic, a.world.removes)
	a.mu.Lock()
	a.own = own
	a.mu.Unlock()
	a.world.Follow(func() {
		a.Run(func() {
			for !a.world.Over() && a.Alive() {
				if own.follow(a.Process, a.log, math.MaxInt) == 0 {
					a.world.Idle(a.Chance("idle").Within(0, idleMost))
				}
			}
		})
	})
}

func (a *appender) reading() *cursor {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.own
}

// options are a reader's, drawn.
func (r *cursor) options(c Chance) []sdk.ReaderOption {
	r.mu.Lock()
	from := maps.Clone(r.next)
	r.mu.Unlock()
	options := []sdk.ReaderOption{sdk.FromOffsets(from), sdk.WithWait(time.Second)}
	if r.removes {
		options = append(options, sdk.OnExpired(sdk.ResetEarliest))
	}
	if c.OneIn(3) { // too little to keep up
		options = append(options, sdk.WithPollBytes(1+c.Below(400)), sdk.WithReadBuffer(1+c.Below(4000)), sdk.WithPrefetch(1+c.Below(8)))
	}
	return options
}

// follow polls so many times, or until the load is over, which is when it must see what partitions there are; after that, until the world is over. It
// returns how many records it was given, and early when the process dies.
func (r *cursor) follow(p *Process, log *sdk.Log, polls int) (n int) {
	w, c := p.world, p.Chance("follow")
	r.mu.Lock()
	r.by = p.Name
	r.mu.Unlock()
	played := w.played.Load()
	reader, err := log.NewReader(p.ctx, r.topic, r.options(c)...)
	if err != nil {
		r.failed(p, err)
		return 0
	}
	defer reader.Close()
	patience := idlePolls
	if w.removes {
		patience = rarePolls
	}
	for idle := 0; !w.Over() && (played || polls > 0 && !w.played.Load() && idle < patience); polls-- {
		fetches, err := reader.Poll(p.ctx)
		if !p.Rest(c.Within(1, 20*time.Millisecond)) || w.Over() {
			return n
		}
		if err != nil {
			r.failed(p, err)
		}
		idle++
		for _, f := range fetches {
			idle = 0
			n += len(f.Records)
			r.take(p, f)
		}
		if w.removes {
			r.pass(w, reader)
		}
		if c.OneIn(100) && !w.Calming() {
			r.back(p, reader, c)
		}
	}
	return n
}

// failed takes an error that a reader reported. Only that nobody answered is no violation.
func (r *cursor) failed(p *Process, err error) {
	if !p.Alive() {
		return
	}
	if p.world.removes && errors.Is(err, sdk.ErrExpired) {
		p.world.Count("told: expired")
		return
	}
	if !errors.Is(err, sdk.ErrUnreachable) || p.world.Calm() {
		p.world.Bad(About{By: p.Name}, "%s was told %v", p.Name, err)
	}
	p.Note("unreachable")
	p.Rest(p.Chance("unreachable").Within(1, 100*time.Millisecond))
}

// take takes in what the reader was given.
func (r *cursor) take(p *Process, f sdk.Fetch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, record := range f.Records {
		p.world.Read(p.Name, Partition{r.topic, record.Partition}, r.next[f.Partition], record.Offset, valueOf(record.Value, record.Headers))
		r.next[f.Partition] = record.Offset + 1
	}
}

// pass takes in what the reader has passed without a record.
func (r *cursor) pass(w *World, reader *sdk.Reader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for partition := range w.Partitions(r.topic) {
		if next, err := reader.Position(partition); err == nil && next > r.next[partition] {
			w.Skip(About{By: r.by, At: Partition{r.topic, partition}}, r.next[partition], next)
			r.next[partition] = next
		}
	}
}

// back goes back in one partition.
func (r *cursor) back(p *Process, reader *sdk.Reader, c Chance) {
	partition := c.Below(p.world.Partitions(r.topic))
	if _, err := reader.Position(partition); err != nil {
		return // it has grown since
	}
	r.mu.Lock()
	to := r.next[partition] - min(r.next[partition], c.Int64N(40))
	r.next[partition] = to
	r.mu.Unlock()
	if err := reader.Seek(partition, to); err != nil {
		p.world.Bad(About{By: p.Name}, "%s cannot seek: %v", p.Name, err)
	}
}

// prove gives the reader time to reach the ends.
func (r *cursor) prove(w *World) {
	ends := w.ends(r.topic)
	for until := w.Now() + Soon; r.behind(ends) && w.Now() < until; {
		w.Sleep(100 * time.Millisecond)
	}
	if r.behind(ends) {
		r.mu.Lock()
		defer r.mu.Unlock()
		w.Bad(About{By: r.by}, "%s is at %v, though nothing fails any more; the ends are %v", r.by, r.next, ends)
	}
}

func (r *cursor) behind(ends []int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for partition, end := range ends {
		if r.next[partition] < end {
			return true
		}
	}
	return false
}

// ends are those of the topic's partitions, as far as their heads can be read.
func (w *World) ends(topic string) []int64 {
	table := w.table()
	row, err := table.Topic(context.Background(), topic)
	w.must(err)
	ends := make([]int64, row.Partitions)
	for i := range ends {
		at := row.Place(i)
		head, err := table.Head(context.Background(), at.Lane, metadata.Strong)
		if err != nil {
			w.Bad(About{At: Partition{topic, i}}, "%v", err)
			continue
		}
		ends[i] = head.Ends[at.Slot]
		w.ReadEnd("the world", Partition{topic, i}, w.clock(), ends[i])
	}
	return ends
}
