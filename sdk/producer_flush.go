package sdk

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/lane"
	"github.com/varvelog/varve/segment"
)

// flush is what was accepted between two cuts. It becomes one segment for each retention class in it, and for each isolated topic. Guarded by
// Producer.mu, except for the channels and what its own goroutine uses alone.
type flush struct {
	batches   []*batch
	bytes     int // encoded, uncompressed
	records   int
	wait      time.Duration // its linger
	early     int           // records that came in the first half of it; 0 before that is over
	deadline  time.Duration // monotonic
	pipelined bool          // another flush was on its way when it was opened
	filled    bool          // bytes ended the linger
	forced    bool          // a caller did
	isCut     bool
	hurried   bool // now is closed
	committed bool // at least one part was

	offsets  []metadata.StepOffsets // that are moved together with an atomic append
	requests []*onceRequest         // that it consists of, if they may be repeated

	parts       []*lanePart // since the cut
	unsettled   int         // of parts
	undelivered int         // of batches

	now       chan struct{} // closed: linger no more
	started   chan struct{} // closed when it is cut for certain
	settled   chan struct{} // closed when all parts are settled
	delivered chan struct{} // closed when all promises were called
	abort     context.CancelCauseFunc
}

// batch is the records of one partition in one flush.
type batch struct {
	flush    *flush
	at       *partitionHandle
	encoded  []*segment.BatchBuilder // one after another; the flush's goroutine's since the cut
	records  []pending
	list     *[]pending // whose memory they lie in, from recordLists
	room     int        // bytes taken for it
	keyed    bool       // has a record with a key
	expect   []metadata.Expect
	tokens   []metadata.Token
	resolved bool
	untold   bool         // counted among its partition's failures
	request  *onceRequest // that may be repeated, if it is one's
	skip     int64        // records before it in its slot of the segment
	base     int64        // offset of the first record, since resolved without error; -1 if it could not be read back
	stamp    time.Time    // log append time that replaces the records' own; zero if none does
	err      error
}

// pending is a record and who is to be told of it.
type pending struct {
	record  *Record
	promise func(*Record, error)
}

// lanePart is a flush's part in one lane.
type lanePart struct {
	ticket  ticket
	batches []*batch // ascending by slot
	sharing metadata.Sharing
	version int64   // of the topic row that the sharing is from
	latest  []int64 // largest timestamp of each slot, ms
	failed  bool    // the ticket was given back
}

// recordLists are empty lists with their memory.
var recordLists = sync.Pool{New: func() any { return new([]pending) }}

func newBatch(f *flush, at *partitionHandle) *batch {
	list := recordLists.Get().(*[]pending)
	return &batch{flush: f, at: at, list: list, records: *list}
}

// builders are encoders with their memory.
var builders = sync.Pool{New: func() any { return new(segment.BatchBuilder) }}

// flushRoom is what a flush takes of the buffer besides its records: goroutine, segment, channels. It bounds the number
// of flushes where nothing lingers and a lane stands still.
const flushRoom = 16 << 10

// newFlush makes a flush that begins now. mu is held. It is nothing to anybody before launch.
func (p *Producer) newFlush(now time.Duration) *flush {
	f := &flush{
		deadline: now + p.config.deliveryDeadline, pipelined: p.sending > 0,
		now: make(chan struct{}), started: make(chan struct{}), settled: make(chan struct{}), delivered: make(chan struct{}),
	}
	idle := time.Duration(-1)
	if p.lastCut >= 0 {
		idle = now - p.lastCut
	}
	f.wait = p.linger.next(idle)
	return f
}

// join adds a batch. mu is held, or the flush is nobody else's yet.
func (f *flush) join(b *batch) {
	f.batches = append(f.batches, b)
	f.undelivered++
}

// goNow ends the linger. mu is held.
func (f *flush) goNow() {
	if !f.hurried {
		f.hurried = true
		close(f.now)
	}
}

// launch runs the flush in a goroutine of its own, with a context that ends at the delivery deadline or by abort. mu is held.
func (p *Producer) launch(f *flush, run func(context.Context, *flush)) {
	p.flushes[f] = struct{}{}
	p.room.used += flushRoom // whoever opens a flush has taken room for its record already
	base, abort := context.WithCancelCause(context.Background())
	ctx, cancel := p.log.env.WithTimeout(base, f.deadline-p.log.env.Mono())
	f.abort = abort
	p.begin(func() {
		defer abort(nil)
		defer cancel()
		run(ctx, f)
	})
}

// run takes the flush from its first record to the settlement of its last.
func (p *Producer) run(ctx context.Context, f *flush) {
	err := p.turn(ctx, f)
	p.mu.Lock()
	p.cut(f)
	p.mu.Unlock()
	close(f.started)
	if err != nil {
		f.fail(gaveUp(ctx, err))
		<-f.settled
		return
	}
	start := p.log.env.Mono()
	uploads := p.sink.send(ctx, f)
	<-p.slots
	<-f.settled
	for _, u := range uploads {
		u.recycle()
	}
	p.mu.Lock()
	if f.committed {
		p.linger.settled(p.log.env.Mono()-start, len(f.parts))
	}
	p.mu.Unlock()
}

// turn waits out the linger, and then for a slot among the uploads. Meanwhile the flush goes on gathering, unless bytes
// have cut it. The slot is free again after the upload: a lane whose commit takes long to settle keeps no other lane's
// uploads waiting.
func (p *Producer) turn(ctx context.Context, f *flush) error {
	half := min(f.wait/2+1, f.wait) // what comes at the very middle is early
	if err := p.wait(ctx, f, half); err != nil {
		return err
	}
	p.mu.Lock()
	f.early = f.records
	p.mu.Unlock()
	if err := p.wait(ctx, f, f.wait-half); err != nil {
		return err
	}
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wait waits for d, or until the flush is to linger no more.
func (p *Producer) wait(ctx context.Context, f *flush, d time.Duration) error {
	timer, stop := p.log.env.After(d)
	defer stop()
	select {
	case <-f.now:
	case <-timer:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// cut closes the flush to further records and takes its place in the order of its lanes. mu is held. A second cut does nothing.
func (p *Producer) cut(f *flush) {
	if f.isCut {
		return
	}
	f.isCut = true
	f.goNow()
	if p.open == f {
		p.open = nil
	}
	for _, b := range f.batches {
		if b.at.open == b {
			b.at.open = nil
		}
	}
	p.reserve(f)
	if len(f.parts) == 0 { // a failure has taken all that it had
		p.settleFlush(f)
		return
	}
	now := p.log.env.Mono()
	p.linger.cut(cutFlush{pipelined: f.pipelined, arriving: f.early > 0 && f.records > f.early, filled: f.filled, forced: f.forced})
	p.lastCut = now
	p.sending++
}

// reserve makes the flush's parts and takes a ticket for each. mu is held, so tickets of all lanes are in the order of
// the cuts.
func (p *Producer) reserve(f *flush) {
	for _, part := range split(f.batches) {
		slots := make([]metadata.Slot, len(part.batches))
		for i, b := range part.batches {
			slots[i] = b.at.place.Slot
		}
		var err error
		part.ticket, err = p.writer(part.batches[0].at).reserve(slots, func(r lane.Result) { p.done(f, part, r) })
		if err != nil {
			p.resolveAll(part.batches, ErrClosed) // only after Close has given up
			continue
		}
		f.parts = append(f.parts, part)
		f.unsettled++
	}
}

// split groups those batches that are not resolved by lane, in the order in which a segment has them. mu is held.
func split(batches []*batch) (parts []*lanePart) {
	live := slices.DeleteFunc(slices.Clone(batches), func(b *batch) bool { return b.resolved })
	slices.SortFunc(live, func(a, b *batch) int { return comparePlaces(a.at.place, b.at.place) })
	for len(live) > 0 {
		n := 1
		for n < len(live) && live[n].at.place.Lane == live[0].at.place.Lane {
			n++
		}
		row := live[0].at.topic.row
		parts = append(parts, &lanePart{batches: live[:n:n], sharing: row.Sharing(), version: row.Version})
		live = live[n:]
	}
	return parts
}

func comparePlaces(a, b metadata.Place) int {
	switch {
	case a.Lane != b.Lane && a.Lane < b.Lane:
		return -1
	case a.Lane != b.Lane:
		return 1
	}
	return int(a.Slot) - int(b.Slot)
}

// fail gives back the tickets of all parts that are not failed yet.
func (f *flush) fail(err error) {
	for _, part := range f.parts {
		part.fail(err)
	}
}

func (l *lanePart) fail(err error) {
	if !l.failed {
		l.failed = true
		l.ticket.Fail(err)
	}
}

// settleFlush notes that nothing more can become of the flush. mu is held. Its upload may still be under way, if
// failures before it have taken all that it had: it is aborted, since it would hold a slot for nothing.
func (p *Producer) settleFlush(f *flush) {
	close(f.settled)
	f.abort(nil)
	p.room.give(flushRoom)
	p.deliverable(f)
}
