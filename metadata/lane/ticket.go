package lane

import (
	"fmt"
	"slices"

	"github.com/varvelog/varve/metadata"
)

// Ticket is a segment's place in the order of a lane. It is taken when the segment's batches are sealed, so that
// building and uploading may overlap and still be committed in that order. The owner ends each with exactly one of
// Commit and Fail.
type Ticket struct {
	w    *Writer
	done func(Result)
	free bool // neither follows others of its slots, nor do they follow it

	// The rest is guarded by w.mu.
	slots     []metadata.Slot
	segment   *Segment // nil until Commit
	sent      bool     // an attempt is under way or unsettled
	failed    error    // what the owner, or the Writer for it, gave up with
	withdrawn map[metadata.Slot]error
	attempts  int
}

// Reserve takes the next place for a segment that will have batches of these slots. done is called exactly
// once, from a goroutine of the Writer's and one ticket at a time, in order except where a later segment's
// deadline is the earlier; it must not block, nor call Close. A closed Writer answers ErrClosed and does not
// call done.
//
// When a segment fails or ends unknown, everything that was reserved for its slots before done called Told, or
// returned, ends with ErrPriorFailed. So an owner whose done also fails what it has gathered for those slots keeps
// their order: what it reserves later was gathered later. A slot that ends with ErrPriorFailed is no failure of its
// own in this sense.
func (w *Writer) Reserve(slots []metadata.Slot, done func(Result)) (*Ticket, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, ErrClosed
	}
	t := &Ticket{w: w, done: done, slots: slices.Clone(slots)}
	for slot, err := range w.failing {
		t.withdraw(slot, err)
	}
	w.queue = append(w.queue, t)
	return t, nil
}

// EnqueueFree is Enqueue for a segment that keeps no order with others by its place: that of a producer's requests is kept by their sequences. It fails alone.
func (w *Writer) EnqueueFree(s *Segment, done func(Result)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	t := &Ticket{w: w, done: done, free: true, segment: s}
	for i := range s.Slots {
		t.slots = append(t.slots, s.Slots[i].Slot)
	}
	w.queue = append(w.queue, t)
	w.refreshed = max(w.refreshed, s.Version)
	w.wake()
	return nil
}

// Enqueue is Reserve and Commit for a segment that is durable already.
func (w *Writer) Enqueue(s *Segment, done func(Result)) error {
	slots := make([]metadata.Slot, len(s.Slots))
	for i := range s.Slots {
		slots[i] = s.Slots[i].Slot
	}
	t, err := w.Reserve(slots, done)
	if err == nil {
		t.Commit(s)
	}
	return err
}

// Commit says that the segment is durable and may be committed. The segment is the Writer's until done is called.
func (t *Ticket) Commit(s *Segment) {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	t.segment = s
	t.w.refreshed = max(t.w.refreshed, s.Version)
	t.w.wake()
}

// Fail gives the segment up, and tells whether that was in time: false means that it may have been sent, and
// that done will say what became of it. err must not be nil.
func (t *Ticket) Fail(err error) bool {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	if t.sent {
		return false
	}
	if t.failed == nil {
		t.failed = err
	}
	t.w.wake()
	return true
}

// withdraw takes one slot's batches out of the segment, which is not under way. w.mu is held.
func (t *Ticket) withdraw(slot metadata.Slot, err error) {
	if t.free || !slices.Contains(t.slots, slot) || t.withdrawn[slot] != nil {
		return
	}
	if t.withdrawn == nil {
		t.withdrawn = make(map[metadata.Slot]error)
	}
	t.withdrawn[slot] = err
}

// over is why there is nothing to commit (any more), or nil. w.mu is held.
func (t *Ticket) over() error {
	switch {
	case t.failed != nil:
		return t.failed
	case len(t.withdrawn) == len(t.slots) && len(t.slots) > 0:
		return t.withdrawn[t.slots[0]]
	case t.w.quit:
		return ErrClosed
	}
	return nil
}

func (t *Ticket) conditional() bool { return len(t.segment.Expect)+len(t.segment.Tokens) > 0 }

// entry is the segment's entry as it would be sent now. w.mu is held.
func (t *Ticket) entry() metadata.Entry {
	e := metadata.Entry{ID: t.segment.ID, Start: t.segment.Start, Slots: slices.Clone(t.segment.Slots)}
	for i := range e.Slots {
		if t.withdrawn[e.Slots[i].Slot] != nil {
			e.Slots[i].Count = 0
		}
	}
	return e
}

// result is what became of the segment: committed as e with these bases, or failed with err. w.mu is held.
func (t *Ticket) result(e metadata.Entry, at metadata.Located, err error) Result {
	r := Result{ID: e.ID, Order: at.Order, Attempts: t.attempts, Err: err, Slots: make([]SlotResult, len(t.slots))}
	if err != nil && t.segment != nil {
		r.ID = t.segment.ID
	}
	for i, slot := range t.slots {
		r.Slots[i] = SlotResult{Slot: slot, Base: at.Bases[slot], Err: err}
		if prior := t.withdrawn[slot]; prior != nil {
			r.Slots[i].Err = prior
		}
	}
	return r
}

// resolve takes the ticket out of the queue and tells its owner. Its slots that failed are closed until the owner has
// been told: an owner that seals a batch meanwhile must not get it committed behind a failure that it is just
// about to learn of.
func (w *Writer) resolve(t *Ticket, r Result) {
	w.mu.Lock()
	i := slices.Index(w.queue, t)
	w.queue = slices.Delete(w.queue, i, i+1)
	for _, s := range r.Slots {
		if t.free || s.Err == nil || t.withdrawn[s.Slot] != nil { // what was withdrawn follows a failure that was told
			continue
		}
		prior := priorFailed(s.Err)
		w.failing[s.Slot] = prior
		for _, later := range w.queue[i:] {
			later.withdraw(s.Slot, prior)
		}
	}
	w.mu.Unlock()
	t.done(r)
	t.Told()
}

// Told says, from within done, that the owner has let go of all that it gathered behind the slots that failed. An owner that seals and lets
// go under one lock calls it under that lock: what it seals next is then not taken for something older.
func (t *Ticket) Told() {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	clear(t.w.failing)
}

// priorFailed hides err's conditions: a batch behind one that ended unknown has certainly not been appended.
func priorFailed(err error) error { return fmt.Errorf("%w: %v", ErrPriorFailed, err) }
