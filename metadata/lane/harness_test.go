package lane_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/lane"
	"github.com/varvelog/varve/segment"
)

const class = segment.Class(7)

// faulty lets single calls of the contract go wrong.
type faulty struct {
	metadata.Table
	mu     sync.Mutex
	calls  map[string]int
	tokens []string // of CommitAll
	// fault decides what befalls the n-th call (from 1) of an operation. nil: nothing.
	fault func(op string, n int) *fault
}

// fault is one call that goes wrong. The zero fault is a request that is lost: unknown for a commit,
// unavailable for others.
type fault struct {
	delay   time.Duration         // nothing goes wrong, it only takes that long before it is performed
	empty   bool                  // nothing goes wrong, but the answer is empty
	twice   bool                  // it is sent again below us: the caller sees the second answer
	applied bool                  // the request was performed all the same
	late    <-chan struct{}       // ... when this is closed
	lateBy  time.Duration         // ... after this time
	err     error                 // instead of the usual
	wait    time.Duration         // how long the caller waits for the error
	then    func(context.Context) // runs before the caller sees the error
}

func do[T any](ctx context.Context, f *faulty, op string, call func(context.Context) (T, error)) (T, error) {
	var none T
	what := f.befall(op)
	switch {
	case what == nil:
		return call(ctx)
	case what.delay > 0:
		time.Sleep(what.delay)
		return call(ctx)
	case what.empty:
		return none, nil
	case what.twice:
		call(ctx)
		return call(ctx)
	case what.late != nil:
		go func() {
			<-what.late
			call(context.WithoutCancel(ctx))
		}()
	case what.lateBy > 0:
		go func() {
			time.Sleep(what.lateBy)
			call(context.WithoutCancel(ctx))
		}()
	case what.applied:
		call(ctx)
	}
	if what.then != nil {
		what.then(ctx)
	}
	pause(ctx, what.wait)
	return none, &metadata.Error{Op: op, Err: what.or(op)}
}

// befall counts the call and decides about it.
func (f *faulty) befall(op string) *fault {
	f.mu.Lock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[op]++
	n, decide := f.calls[op], f.fault
	f.mu.Unlock()
	if decide == nil {
		return nil
	}
	return decide(op, n)
}

func (f *fault) or(op string) error {
	switch {
	case f.err != nil:
		return f.err
	case op == "Commit" || op == "CommitAll":
		return metadata.ErrOutcomeUnknown
	}
	return metadata.ErrUnavailable
}

func (f *faulty) Head(ctx context.Context, l metadata.LaneID, c metadata.Consistency) (*metadata.Head, error) {
	return do(ctx, f, "Head", func(ctx context.Context) (*metadata.Head, error) { return f.Table.Head(ctx, l, c) })
}

func (f *faulty) Chunk(ctx context.Context, l metadata.LaneID, first int64, c metadata.Consistency) (*metadata.Chunk, error) {
	return do(ctx, f, "Chunk", func(ctx context.Context) (*metadata.Chunk, error) { return f.Table.Chunk(ctx, l, first, c) })
}

func (f *faulty) Chunks(ctx context.Context, l metadata.LaneID, from, to int64, limit int, c metadata.Consistency) (chunks []*metadata.Chunk, more bool, err error) {
	chunks, err = do(ctx, f, "Chunks", func(ctx context.Context) (cs []*metadata.Chunk, err error) {
		cs, more, err = f.Table.Chunks(ctx, l, from, to, limit, c)
		return cs, err
	})
	return chunks, more && err == nil, err
}

func (f *faulty) Commit(ctx context.Context, c metadata.Commit) (*metadata.Head, error) {
	return do(ctx, f, "Commit", func(ctx context.Context) (*metadata.Head, error) { return f.Table.Commit(ctx, c) })
}

func (f *faulty) RaiseEpoch(ctx context.Context, l metadata.LaneID, writer int, from int64) (*metadata.Head, error) {
	return do(ctx, f, "RaiseEpoch", func(ctx context.Context) (*metadata.Head, error) { return f.Table.RaiseEpoch(ctx, l, writer, from) })
}

func (f *faulty) PutChunk(ctx context.Context, c *metadata.Chunk) error {
	_, err := do(ctx, f, "PutChunk", func(ctx context.Context) (struct{}, error) { return struct{}{}, f.Table.PutChunk(ctx, c) })
	return err
}

func (f *faulty) Trim(ctx context.Context, l metadata.LaneID, from, to int64, ids []segment.ID) (*metadata.Head, error) {
	return do(ctx, f, "Trim", func(ctx context.Context) (*metadata.Head, error) { return f.Table.Trim(ctx, l, from, to, ids) })
}

func (f *faulty) EvictProducers(ctx context.Context, image *metadata.Head, floor metadata.ProducerID, ids ...metadata.ProducerID) (*metadata.Head, error) {
	return do(ctx, f, "EvictProducers", func(ctx context.Context) (*metadata.Head, error) {
		return f.Table.EvictProducers(ctx, image, floor, ids...)
	})
}

func (f *faulty) CommitAll(ctx context.Context, token string, commits []metadata.Commit) error {
	f.mu.Lock()
	f.tokens = append(f.tokens, token)
	f.mu.Unlock()
	_, err := do(ctx, f, "CommitAll", func(ctx context.Context) (struct{}, error) { return struct{}{}, f.Table.CommitAll(ctx, token, commits) })
	return err
}

// orders says which faults there are from now on, while calls are under way.
func (f *faulty) orders(fault func(op string, n int) *fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// counts returns how often each operation was called since the last time.
func (f *faulty) counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.calls
	f.calls = nil
	return c
}

// bench is one lane with a Writer on it.
type bench struct {
	t      *testing.T
	env    env.Env
	db     *database
	table  *faulty
	lane   metadata.LaneID
	writer *lane.Writer
	config lane.Config

	mu       sync.Mutex
	minted   uint64
	reminted []segment.ID // ids that were replaced
	branches map[lane.Branch]int
	commits  []lane.CommitEvent
	spills   []lane.SpillEvent
	waits    int
	requests int // to the service
}

func newBench(t *testing.T, db *database) *bench {
	e := env.System()
	b := &bench{t: t, env: e, db: db, lane: db.lanes[0], branches: map[lane.Branch]int{}}
	b.table = &faulty{Table: db.open(t, e, func(metadata.Call) { b.note(func() { b.requests++ }) })}
	b.config = lane.Config{
		Lane: b.lane, Table: b.table, Env: b.env, Writer: 3, Remint: b.remint,
		Refresh: func(_ context.Context, seen int64) (int64, error) { return seen, nil },
		Hooks: lane.Hooks{
			Commit:    func(e lane.CommitEvent) { b.note(func() { b.commits = append(b.commits, e) }) },
			Settle:    func(e lane.SettleEvent) { b.note(func() { b.branches[e.Branch]++ }) },
			Spill:     func(e lane.SpillEvent) { b.note(func() { b.spills = append(b.spills, e) }) },
			Throttled: func(time.Duration) { b.note(func() { b.waits++ }) },
		},
	}
	b.writer = lane.New(b.config)
	return b
}

func (b *bench) note(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

func (b *bench) mint(above segment.ID, c segment.Class) segment.ID {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.minted++
	return segment.NewID(b.env.Now(), c, segment.InBucket, b.minted, above)
}

func (b *bench) remint(_ context.Context, s *lane.Segment, above segment.ID, c segment.Class) error {
	id := b.mint(above, c)
	b.note(func() { b.reminted = append(b.reminted, s.ID) })
	s.ID, s.Minted = id, lane.Now(b.env)
	return nil
}

// segment makes a segment with two records in each of the slots, to be delivered within two minutes.
func (b *bench) segment(slots ...metadata.Slot) *lane.Segment {
	s := &lane.Segment{ID: b.mint(segment.ID{}, class), Minted: lane.Now(b.env), Version: 1, Deadline: b.env.Mono() + 2*time.Minute}
	for _, slot := range slots {
		s.Slots = append(s.Slots, metadata.SlotEntry{Slot: slot, Count: 2, Bytes: 100, MaxTime: s.ID.Time().UnixMilli()})
	}
	return s
}

// send enqueues the segment and returns where its result will be. Whoever has the result may send the next one at once: the Writer is told before.
func (b *bench) send(s *lane.Segment) <-chan lane.Result {
	c := make(chan lane.Result, 1)
	ticket := make(chan *lane.Ticket, 1)
	var slots []metadata.Slot
	for _, slot := range s.Slots {
		slots = append(slots, slot.Slot)
	}
	t, err := b.writer.Reserve(slots, func(r lane.Result) {
		(<-ticket).Told()
		c <- r
	})
	if err != nil {
		b.t.Fatal(err)
	}
	ticket <- t
	t.Commit(s)
	return c
}

// others commits n segments of one record to slot 9 by another Writer, which spills as it goes.
func (b *bench) others(n int) {
	c := b.config
	c.Table, c.Writer, c.Hooks, c.OnImage = b.table.Table, 5, lane.Hooks{}, nil
	w := lane.New(c)
	for range n {
		s := b.segment(9)
		done := make(chan lane.Result, 1)
		if err := w.Enqueue(s, func(r lane.Result) { done <- r }); err != nil {
			b.t.Error(err)
		}
		if r := <-done; r.Err != nil {
			b.t.Error(r.Err)
		}
	}
	if err := w.Close(context.Background()); err != nil {
		b.t.Error(err)
	}
}

// many lets so many Writers send so many segments each, one after another, and shows each result.
func (b *bench) many(writers, segments int, segment func(w int) *lane.Segment, each func(r lane.Result)) {
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			c := b.config
			c.Writer = w % metadata.Epochs
			writer := lane.New(c)
			defer writer.Close(context.Background())
			done := make(chan lane.Result, 1)
			for range segments {
				if err := writer.Enqueue(segment(w), func(r lane.Result) { done <- r }); err != nil {
					b.t.Error(err)
					return
				}
				r := <-done
				b.note(func() { each(r) })
			}
		})
	}
	all.Wait()
}

func (b *bench) commit(slots ...metadata.Slot) lane.Result { return <-b.send(b.segment(slots...)) }

func (b *bench) close() {
	if err := b.writer.Close(context.Background()); err != nil {
		b.t.Error(err)
	}
}

func (b *bench) strong() *metadata.Head {
	h, err := b.table.Table.Head(context.Background(), b.lane, metadata.Strong)
	if err != nil {
		b.t.Fatal(err)
	}
	return h
}

// log reads the whole lane: all entries by order, with their bases.
func (b *bench) log() (entries []metadata.Entry, bases []metadata.Offsets) {
	h := b.strong()
	for from := int64(0); from < h.First; from += h.K {
		c, err := b.table.Table.Chunk(context.Background(), b.lane, from, metadata.Strong)
		if err != nil {
			b.t.Fatal(err)
		}
		entries = append(entries, c.Entries...)
		bases = append(bases, metadata.Bases(c.Entries, c.Ends())...)
	}
	return append(entries, h.Entries...), append(bases, metadata.Bases(h.Entries, h.Ends)...)
}

// check compares a result with the log: it is there exactly once, where it says, or not at all.
func (b *bench) check(r lane.Result, want error) {
	b.t.Helper()
	if !errors.Is(r.Err, want) {
		b.t.Errorf("result %v, want %v", r.Err, want)
	}
	entries, bases := b.log()
	times := 0
	for i, e := range entries {
		if e.ID != r.ID {
			continue
		}
		times++
		for _, s := range r.Slots {
			if r.Err == nil && s.Err == nil && (bases[i][s.Slot] != s.Base || e.Order != r.Order) {
				b.t.Errorf("slot %d: told base %d order %d, is %d at %d", s.Slot, s.Base, r.Order, bases[i][s.Slot], e.Order)
			}
		}
	}
	if wanted := map[bool]int{true: 1}[r.Err == nil]; times != wanted && !errors.Is(r.Err, lane.ErrUnknown) {
		b.t.Errorf("segment %s is in the log %d times, want %d", r.ID, times, wanted)
	}
}

func (b *bench) branch(want ...lane.Branch) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	got := fmt.Sprint(b.branches)
	all := map[lane.Branch]int{}
	for _, w := range want {
		all[w]++
	}
	if got != fmt.Sprint(all) {
		b.t.Errorf("settled by %s, want %v", got, all)
	}
	b.branches = map[lane.Branch]int{}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
