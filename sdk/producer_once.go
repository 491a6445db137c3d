package sdk

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/lane"
)

// onceRequest is one AppendOnce on its way. Its batches go and come back together.
type onceRequest struct {
	step    metadata.ProducerStep
	topic   string // of its first record
	lane    metadata.LaneID
	batches []*batch // one for each partition, ascending by slot

	// What became of it, when its promises were called.
	repeated bool
	known    bool
	err      error
}

// onceLinger is how long requests wait for company at most. Their callers wait for the answer before they send more, so longer would gather no more; and no Flush
// of theirs ends it.
const onceLinger = 5 * time.Millisecond

// newRequest encodes the records, which nothing has been taken for yet.
func (p *Producer) newRequest(step metadata.ProducerStep, records []*Record, places []*partitionHandle, w *waiter) (*onceRequest, error) {
	r := &onceRequest{step: step, topic: records[0].Topic, lane: places[0].place.Lane}
	by := map[*partitionHandle]*batch{}
	for i, record := range records {
		at := places[i]
		if at.place.Lane != r.lane {
			return nil, &FieldError{Topic: record.Topic, Partition: at.index, Field: "lane", Value: string(at.place.Lane),
				Valid: "that of the request's other records, " + string(r.lane) + ": a request that may be repeated touches one lane"}
		}
		b := by[at]
		if b == nil {
			b = newBatch(nil, at)
			b.request = r
			by[at] = b
			r.batches = append(r.batches, b)
		}
		if _, err := b.add(record, w.promise(i), p.log.env); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(r.batches, func(a, b *batch) int { return comparePlaces(a.at.place, b.at.place) })
	return r, nil
}

func (r *onceRequest) size() (bytes, records int) {
	for _, b := range r.batches {
		records += len(b.records)
		for _, encoded := range b.encoded {
			bytes += encoded.Size()
		}
	}
	return bytes, records
}

// gatherRequest takes the request into the flush that gathers such requests.
func (p *Producer) gatherRequest(ctx context.Context, r *onceRequest, room int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.roomForAll(ctx, room); err != nil {
		return err
	}
	f, opened := p.openOnce, false
	if f == nil || f.requestsTo(r.lane) == metadata.MaxProducers {
		if f != nil {
			f.goNow()
		}
		f, opened = p.newFlush(p.log.env.Mono()), true
		f.wait = min(p.config.lingerFloor, onceLinger)
		p.openOnce = f
	}
	bytes, records := r.size()
	f.bytes, f.records, f.requests = f.bytes+bytes, f.records+records, append(f.requests, r)
	for _, b := range r.batches {
		b.flush = f
		f.join(b)
	}
	r.batches[0].room = room
	if opened {
		p.launch(f, p.runOnce)
	}
	if f.bytes >= p.config.segmentBytes {
		f.goNow()
		p.openOnce = nil
	}
	return nil
}

func (f *flush) requestsTo(id metadata.LaneID) (n int) {
	for _, r := range f.requests {
		if r.lane == id {
			n++
		}
	}
	return n
}

// runOnce takes a flush of requests to its end. Those that a lane does not admit are answered, and the others are sent again, in a segment without them: once together,
// then each by itself, so that one producer can keep the others waiting for two rounds at most.
func (p *Producer) runOnce(ctx context.Context, f *flush) {
	err := p.turn(ctx, f)
	p.mu.Lock()
	f.isCut = true
	if p.openOnce == f {
		p.openOnce = nil
	}
	for _, r := range f.requests {
		p.writer(r.batches[0].at)
	}
	p.mu.Unlock()
	close(f.started)
	uploaded := func() {}
	if err == nil {
		uploaded = sync.OnceFunc(func() { <-p.slots })
	}
	var answers sync.WaitGroup
	left := f.requests
	for round := 0; len(left) > 0 && err == nil; round++ {
		var again []*onceRequest
		for _, group := range p.groups(left, round >= 2) {
			again = append(again, p.sendRequests(ctx, f, group, uploaded, &answers)...)
		}
		left = again
	}
	for _, r := range left {
		p.finish(r, gaveUp(ctx, err))
	}
	answers.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.room.give(flushRoom)
}

// groups is which requests share a segment: those whose topics do, or each none. One under conditions does not, whose refusal would be that of the others.
func (p *Producer) groups(requests []*onceRequest, singly bool) (all [][]*onceRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	by := map[metadata.Sharing]int{}
	for _, r := range requests {
		sharing := r.batches[0].at.topic.row.Sharing()
		i, ok := by[sharing]
		alone := singly || r.batches[0].conditional()
		if !ok || alone {
			i = len(all)
			all = append(all, nil)
		}
		if !alone {
			by[sharing] = i
		}
		all[i] = append(all[i], r)
	}
	return all
}

// sendRequests puts a segment of the requests and commits it, and returns those that have to be sent again. It settles the others, or lets answers do so.
func (p *Producer) sendRequests(ctx context.Context, f *flush, requests []*onceRequest, uploaded func(), answers *sync.WaitGroup) (again []*onceRequest) {
	requests = p.encodeAgain(ctx, requests)
	if len(requests) == 0 {
		uploaded()
		return nil
	}
	var batches []*batch
	for _, r := range requests {
		batches = append(batches, r.batches...)
	}
	p.mu.Lock()
	u := &upload{parts: split(batches)}
	p.mu.Unlock()
	segments, err := p.seal(ctx, f, u)
	defer u.recycle()
	if err == nil {
		err = p.put(ctx, u.id, u.body, u.records)
	}
	uploaded()
	if err != nil {
		for _, r := range requests {
			p.finish(r, gaveUp(ctx, err))
		}
		return nil
	}
	results := make([]chan lane.Result, len(segments))
	for i, s := range segments {
		results[i] = make(chan lane.Result, 1)
		p.mu.Lock()
		w := p.writer(u.parts[i].batches[0].at).(*directLane)
		p.mu.Unlock()
		if err := w.EnqueueFree(s, func(r lane.Result) { results[i] <- r }); err != nil {
			results[i] <- lane.Result{Err: err}
		}
	}
	for i, part := range u.parts {
		again = append(again, p.settleRequests(ctx, part, <-results[i], answers)...)
	}
	return again
}

// encodeAgain makes the requests ready for a segment: their keys are announced, and what an earlier segment has taken is encoded again.
func (p *Producer) encodeAgain(ctx context.Context, requests []*onceRequest) (ready []*onceRequest) {
	for _, r := range requests {
		var err error
		for _, b := range r.batches {
			if err == nil && b.keyed {
				err = p.markKeyed(ctx, b.at.topic)
			}
			if err == nil && b.encoded == nil {
				err = b.encodeAll()
			}
		}
		if err != nil {
			p.finish(r, gaveUp(ctx, err))
			continue
		}
		ready = append(ready, r)
	}
	return ready
}

func (b *batch) encodeAll() error {
	for _, r := range b.records {
		if _, err := b.encode(r.record); err != nil {
			return err
		}
	}
	return nil
}

// settleRequests takes in what became of a lane's part.
func (p *Producer) settleRequests(ctx context.Context, part *lanePart, result lane.Result, answers *sync.WaitGroup) (again []*onceRequest) {
	var refused *lane.ProducersError
	errors.As(result.Err, &refused)
	for _, r := range requestsOf(part) {
		switch {
		case result.Err == nil:
			for _, b := range r.batches {
				i := slices.IndexFunc(result.Slots, func(s lane.SlotResult) bool { return s.Slot == b.at.place.Slot })
				b.base = result.Slots[i].Base + b.skip
			}
			r.known = true
			p.finish(r, nil)
		case refused == nil:
			p.finish(r, result.Err)
		case !slices.ContainsFunc(refused.Failed, func(f metadata.FailedProducer) bool { return f.ID == r.step.ID }):
			again = append(again, r)
		default:
			answers.Go(func() { p.finish(r, p.answer(ctx, r, refused.Head, refused.RetryAfter)) })
		}
	}
	return again
}

func requestsOf(part *lanePart) (requests []*onceRequest) {
	for _, b := range part.batches {
		if !slices.Contains(requests, b.request) {
			requests = append(requests, b.request)
		}
	}
	return requests
}

// finish ends a request that is in a flush.
func (p *Producer) finish(r *onceRequest, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.err = err
	for _, b := range r.batches {
		if b.err = p.deliveryError(b, err); err != nil {
			for _, encoded := range b.encoded {
				encoded.Reset()
				builders.Put(encoded)
			}
			b.encoded = nil
			p.countUnsent(b)
			if errors.Is(b.err, ErrTopicGone) {
				p.forget(b.at.topic)
			}
		}
		p.hand(b)
	}
	p.turns.leave(r)
}

// turns lets the requests of one producer to one lane go one after another: a producer is in an update once, and the next sequence is refused before this one is there.
type turns struct {
	mu   sync.Mutex
	open map[turnKey]*turn
}

type turnKey struct {
	lane metadata.LaneID
	id   ProducerID
}

type turn struct {
	free  chan struct{} // one token
	users int
}

func newTurns() turns { return turns{open: map[turnKey]*turn{}} }

// enter waits for the request's turn. It ends with leave, unless there is an error.
func (t *turns) enter(ctx context.Context, r *onceRequest) error {
	key := turnKey{r.lane, r.step.ID}
	t.mu.Lock()
	mine := t.open[key]
	if mine == nil {
		mine = &turn{free: make(chan struct{}, 1)}
		mine.free <- struct{}{}
		t.open[key] = mine
	}
	mine.users++
	t.mu.Unlock()
	select {
	case <-mine.free:
		return nil
	case <-ctx.Done():
		t.drop(key)
		return context.Cause(ctx)
	}
}

func (t *turns) leave(r *onceRequest) {
	key := turnKey{r.lane, r.step.ID}
	t.mu.Lock()
	mine := t.open[key]
	t.mu.Unlock()
	mine.free <- struct{}{}
	t.drop(key)
}

func (t *turns) drop(key turnKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[key].users--; t.open[key].users == 0 {
		delete(t.open, key)
	}
}

// producerStates is what heads have shown last of producers. It is a hint: one who goes on is sent off without a read, and the commit's condition decides.
type producerStates struct {
	mu    sync.Mutex
	lanes map[metadata.LaneID]*metadata.Head // without entries
}

func newProducerStates() producerStates {
	return producerStates{lanes: map[metadata.LaneID]*metadata.Head{}}
}

func (s *producerStates) note(h *metadata.Head) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.lanes[h.Lane]
	switch {
	case len(h.Producers) == 0:
		delete(s.lanes, h.Lane)
	case last == nil || last.Next <= h.Next:
		s.lanes[h.Lane] = &metadata.Head{Lane: h.Lane, Next: h.Next, Producers: h.Producers, ProducerFloor: h.ProducerFloor}
	}
}

// expects tells whether the request is the next of a producer that is known.
func (s *producerStates) expects(r *onceRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.lanes[r.lane]
	if h == nil {
		return false
	}
	state, known := h.Producers[r.step.ID]
	return known && r.step.Sequence == state.Sequence+1
}
