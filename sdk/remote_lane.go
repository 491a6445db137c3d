package sdk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/lane"
)

// remoteLane is the laneWriter over HTTP: one request for each ticket, in order, each after the one before is settled.
//
// Exactly once comes from the producer id and the sequence. A request whose outcome is unknown is repeated as it is until it is answered. If its deadline
// passes before that, its sequence is spent: other records under it might be taken for a repetition, and the next sequence for a gap. So the lane then
// goes on under another producer id, as it does when the function has forgotten the one it had.
type remoteLane struct {
	sink  *remoteSink
	id    metadata.LaneID
	topic *metadata.Topic
	life  context.Context // of the worker; ends when Close gives up
	end   context.CancelFunc

	// the worker's
	producer string
	sequence int64 // of the next request; 0 until there is a producer id that may be used

	mu      sync.Mutex
	queue   []*remoteTicket         // in the order of reserve; removed when resolved
	failing map[metadata.Slot]error // slots whose owner is being told of a failure
	working bool
	closed  bool
	quit    bool          // Close has given up
	resting chan struct{} // closed when nothing is queued or running; another one when there is again
}

// remoteTicket is a place in the lane's order. Fields are under remoteLane.mu.
type remoteTicket struct {
	l         *remoteLane
	done      func(lane.Result)
	slots     []metadata.Slot
	segment   *lane.Segment // nil until Commit; Owner is []frames, one for each slot
	sent      bool
	failed    error
	withdrawn map[metadata.Slot]error
}

func newRemoteLane(s *remoteSink, id metadata.LaneID, topic *metadata.Topic) *remoteLane {
	l := &remoteLane{sink: s, id: id, topic: topic, failing: map[metadata.Slot]error{}, resting: make(chan struct{})}
	close(l.resting)
	l.life, l.end = context.WithCancel(context.Background())
	return l
}

func (l *remoteLane) reserve(slots []metadata.Slot, done func(lane.Result)) (ticket, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, lane.ErrClosed
	}
	t := &remoteTicket{l: l, done: done, slots: slices.Clone(slots), withdrawn: map[metadata.Slot]error{}}
	for slot, err := range l.failing {
		t.withdraw(slot, err)
	}
	if len(l.queue) == 0 && !l.working {
		l.resting = make(chan struct{})
	}
	l.queue = append(l.queue, t)
	return t, nil
}

func (l *remoteLane) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	defer l.end()
	err := l.Idle(ctx)
	if err == nil {
		return nil
	}
	l.mu.Lock()
	l.quit = true
	l.wake()
	l.mu.Unlock()
	l.end()
	l.Idle(context.Background()) // which is soon: everything in the queue is over
	return err
}

// Idle returns when nothing is queued or running, or with ctx's cause when that is done first.
func (l *remoteLane) Idle(ctx context.Context) error {
	l.mu.Lock()
	resting := l.resting
	l.mu.Unlock()
	select {
	case <-resting:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *remoteTicket) Commit(s *lane.Segment) {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	t.segment = s
	t.l.wake()
}

func (t *remoteTicket) Fail(err error) bool {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	if t.sent {
		return false
	}
	if t.failed == nil {
		t.failed = err
	}
	t.l.wake()
	return true
}

func (t *remoteTicket) Told() {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	clear(t.l.failing)
}

// withdraw takes a slot's batches out of what was not sent. mu is held.
func (t *remoteTicket) withdraw(slot metadata.Slot, err error) {
	if slices.Contains(t.slots, slot) && t.withdrawn[slot] == nil {
		t.withdrawn[slot] = err
	}
}

// over is why there is nothing to send (any more), or nil. mu is held.
func (t *remoteTicket) over() error {
	switch {
	case t.failed != nil:
		return t.failed
	case len(t.withdrawn) == len(t.slots):
		return t.withdrawn[t.slots[0]]
	case t.l.quit:
		return lane.ErrClosed
	}
	return nil
}

// due tells whether the first in the queue can be dealt with. mu is held.
func (l *remoteLane) due() bool {
	return len(l.queue) > 0 && (l.queue[0].segment != nil || l.queue[0].over() != nil)
}

// wake starts the worker if there is something for it to do. mu is held.
func (l *remoteLane) wake() {
	if l.working || !l.due() {
		return
	}
	l.working = true
	go l.work()
}

func (l *remoteLane) work() {
	for {
		l.mu.Lock()
		if !l.due() {
			if l.working = false; len(l.queue) == 0 {
				close(l.resting)
			}
			l.mu.Unlock()
			return
		}
		t := l.queue[0]
		err := t.over()
		if err != nil {
			l.mu.Unlock()
			l.resolve(t, t.result(nil, nil, err))
			continue
		}
		t.sent = true
		var parts []frames
		var slots []metadata.Slot
		for i, f := range t.segment.Owner.([]frames) {
			if t.withdrawn[t.slots[i]] == nil {
				parts, slots = append(parts, f), append(slots, t.slots[i])
			}
		}
		l.mu.Unlock()
		bases, err := l.deliver(newPost(l.topic, l.id, t.segment, parts), t.segment.Deadline)
		l.resolve(t, t.result(slots, bases, err))
	}
}

// result is what became of the ticket: appended, with the first offset of each of the slots that were sent, or failed with err.
func (t *remoteTicket) result(sent []metadata.Slot, bases []int64, err error) lane.Result {
	r := lane.Result{Err: err, Slots: make([]lane.SlotResult, len(t.slots))}
	for i, slot := range t.slots {
		r.Slots[i] = lane.SlotResult{Slot: slot, Err: err}
		if prior := t.withdrawn[slot]; prior != nil {
			r.Slots[i].Err = prior
		} else if err == nil {
			r.Slots[i].Base = bases[slices.Index(sent, slot)]
		}
	}
	return r
}

// resolve takes the ticket out of the queue and tells its owner. What was reserved for the slots that failed before the owner has been told goes with
// them.
func (l *remoteLane) resolve(t *remoteTicket, r lane.Result) {
	l.mu.Lock()
	l.queue = slices.Delete(l.queue, 0, 1)
	for _, s := range r.Slots {
		if s.Err == nil || t.withdrawn[s.Slot] != nil { // what was withdrawn follows a failure that was told
			continue
		}
		prior := fmt.Errorf("%w: %v", lane.ErrPriorFailed, s.Err)
		l.failing[s.Slot] = prior
		for _, later := range l.queue {
			later.withdraw(s.Slot, prior)
		}
	}
	l.mu.Unlock()
	t.done(r)
	t.Told()
}

// delivering is one request, through all its attempts.
type delivering struct {
	lane     *remoteLane
	post     post
	deadline time.Duration
	unknown  bool // an attempt may have been applied, or may be yet
	renewed  bool // credentials were
	tries    int
	last     error
}

// deliver sends the request until it is known what became of them, or the deadline has passed. Bases are -1 where they were appended and it is not
// known any more where.
func (l *remoteLane) deliver(o post, deadline time.Duration) (bases []int64, err error) {
	d := &delivering{lane: l, deadline: deadline, post: o}
	for {
		// An attempt that is under way at the deadline is waited for like one whose answer was lost: to be told is better than to ask.
		ctx, cancel := l.sink.p.log.env.WithTimeout(l.life, d.left(true))
		bases, err = d.attempt(ctx)
		if err == nil {
			cancel()
			return bases, nil
		}
		over := d.judge(err)
		if over == nil {
			l.sink.p.log.env.Sleep(ctx, min(l.sink.r.client.pause(d.tries, err), d.left(d.unknown)))
			over = d.expired()
		}
		cancel()
		if over != nil {
			if d.unknown && !d.post.overtaken(over) {
				l.sequence = 0 // and never this one again, for anything
				return nil, fmt.Errorf("%w: %w", lane.ErrUnknown, over)
			}
			return nil, over
		}
		d.tries++
	}
}

// left is the time that is left: after the deadline only for a request that was sent and may have been applied, to hear whether it was.
func (d *delivering) left(sent bool) time.Duration {
	p := d.lane.sink.p
	left := d.deadline - p.log.env.Mono()
	if sent {
		left += p.config.settleBudget()
	}
	return left
}

// attempt sends the request once, under the lane's producer and the next sequence, which are the same each time unless nothing was applied.
func (d *delivering) attempt(ctx context.Context) ([]int64, error) {
	l := d.lane
	to, err := l.sink.r.producer(ctx)
	if err == nil && l.sequence == 0 {
		err = l.identify(ctx)
	}
	if err != nil {
		return nil, &failure{err: err}
	}
	d.post.producer, d.post.sequence = l.producer, l.sequence
	start := l.sink.p.log.env.Mono()
	bases, err := l.sink.append(ctx, to, &d.post)
	e := CommitEvent{Lane: string(l.id), Segments: 1, Attempts: d.tries + 1, Duration: l.sink.p.log.env.Mono() - start, Outcome: d.outcome(err), Err: bare(err)}
	fire(l.sink.p.log.hooks, func(h CommitHook) { h.OnCommit(e) })
	if err == nil {
		l.sequence++
	}
	return bases, err
}

// identify begins anew, under a producer id that the lane has not had.
func (l *remoteLane) identify(ctx context.Context) error {
	id, err := l.sink.next(ctx, l.producer)
	if err == nil {
		l.producer, l.sequence = id, 1
	}
	return err
}

// forgotten tells whether the function does not know the producer as the lane does: it was evicted, or the table was put back to an earlier moment.
func forgotten(err error) bool {
	return errors.Is(err, ErrProducerEvicted) || errors.Is(err, ErrSequenceGap)
}

func (d *delivering) outcome(err error) Outcome {
	var f *failure
	switch {
	case err == nil:
		return Applied
	case errors.As(err, &f) && f.sent:
		return Unknown
	}
	return NotApplied
}

// judge takes in why an attempt failed, and says why there is not to be another, or nil.
func (d *delivering) judge(err error) error {
	var f *failure
	errors.As(err, &f)
	d.unknown = d.unknown || f.sent
	d.last = f.err
	l := d.lane
	switch {
	case l.life.Err() != nil:
	case forgotten(err) && d.unknown: // the function cannot tell whether it was applied
		return f.err
	case forgotten(err): // nothing of it was ever sent before: it may begin anew
		l.sequence = 0
	case errors.Is(err, ErrThrottled):
		l.sink.p.mu.Lock()
		l.sink.p.linger.throttled()
		l.sink.p.mu.Unlock()
	case f.anew && !d.renewed:
		d.renewed = true
	case !f.sent && !passing(err):
		return f.err
	}
	return d.expired()
}

// expired is why time is over, or nil.
func (d *delivering) expired() error {
	l := d.lane
	if l.life.Err() != nil {
		return fmt.Errorf("%w: %w", lane.ErrClosed, d.last)
	}
	if d.left(d.unknown) > 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", lane.ErrDeadline, d.last)
}
