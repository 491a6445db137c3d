package lane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
)

// batch is the segments that the worker is committing by one update.
type batch struct {
	tickets  []*Ticket
	attempts int
	last     error // why the latest attempt or step changed nothing
	setbacks int   // steps that changed nothing
}

// commit brings the batch to its end: all its tickets are resolved when it returns. Each round does one step and begins
// in a state where none of the batch is applied or under way.
func (w *Writer) commit(ctx context.Context, b *batch) {
	for w.prune(b) {
		since, err := w.prepare(ctx, b)
		if err != nil {
			w.setback(ctx, b, err)
			continue
		}
		if w.freshen(ctx, b) {
			continue
		}
		c := w.request(b)
		image, err := w.attempt(ctx, b, c)
		var refused *metadata.RefusedError
		switch {
		case err == nil && w.found(b, c, image):
		case err == nil: // an answer that does not show what it confirms
			w.settle(ctx, b, c, since)
		case errors.Is(err, metadata.ErrOutcomeUnknown):
			w.settle(ctx, b, c, since)
		case errors.As(err, &refused):
			w.refused(ctx, b, c, refused)
		default:
			w.setback(ctx, b, err)
		}
	}
}

// prepare makes sure that the head is known, and to the owner its config version. since is an order that the
// lane has reached: what is sent from now on is not below it.
func (w *Writer) prepare(ctx context.Context, b *batch) (since int64, err error) {
	ctx, cancel := w.inTime(ctx, b)
	defer cancel()
	v, err := w.look(ctx)
	if err != nil {
		return 0, err
	}
	w.mu.Lock()
	known := v.version <= w.refreshed
	w.mu.Unlock()
	if known {
		return v.next, nil
	}
	version, err := w.cfg.Refresh(ctx, v.version)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.refreshed = max(w.refreshed, version)
	}
	return v.next, err
}

// inTime bounds ctx by the first deadline of the batch.
func (w *Writer) inTime(ctx context.Context, b *batch) (context.Context, context.CancelFunc) {
	first := b.tickets[0].segment.Deadline
	for _, t := range b.tickets {
		first = min(first, t.segment.Deadline)
	}
	return w.env.WithTimeout(ctx, first-w.env.Mono())
}

// prune resolves the tickets of the batch that are over or past their deadline, and tells whether any are left.
// None of the batch is under way, so whatever one that fails takes with it, it takes from those behind it in
// the batch too.
func (w *Writer) prune(b *batch) bool {
	now := w.env.Mono()
	left := b.tickets[:0:0]
	for _, t := range b.tickets {
		w.mu.Lock()
		t.sent = false
		err := t.over()
		if err == nil && now >= t.segment.Deadline {
			err = ErrDeadline
			if b.last != nil {
				err = fmt.Errorf("%w: %w", ErrDeadline, b.last)
			}
		}
		r := t.result(metadata.Entry{}, metadata.Located{}, err)
		w.mu.Unlock()
		if err == nil {
			left = append(left, t)
			continue
		}
		w.resolve(t, r)
	}
	b.tickets = left
	return len(left) > 0
}

// request is the update that commits the batch. Its tickets are then sent: they do not change before it is settled.
func (w *Writer) request(b *batch) metadata.Commit {
	v := w.seen()
	c := metadata.Commit{Lane: w.lane, Writer: w.writer, Epoch: v.epoch, Cap: metadata.CapFor(v.first, len(b.tickets))}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, t := range b.tickets {
		t.sent = true
		t.attempts++
		for _, s := range t.segment.Producers {
			s.Entry = i
			c.Producers = append(c.Producers, s)
		}
		if i == 0 || t.segment.Minted.Age(c.Minted) > 0 {
			c.Minted = t.segment.Minted
		}
		c.Entries = append(c.Entries, t.entry())
		c.Expect = append(c.Expect, t.segment.Expect...)
		c.Tokens = append(c.Tokens, t.segment.Tokens...)
	}
	b.attempts++
	return c
}

// attempt sends the update once.
func (w *Writer) attempt(ctx context.Context, b *batch, c metadata.Commit) (*metadata.Head, error) {
	e := w.env
	e.At(env.BeforeCommit)
	start, reached := e.Mono(), w.seen().next
	image, err := w.table.Commit(ctx, c)
	event := CommitEvent{Lane: c.Lane, Segments: len(c.Entries), Attempt: b.attempts, Duration: e.Mono() - start, Err: err}
	var refused *metadata.RefusedError
	if errors.As(err, &refused) {
		image = refused.Head
		event.Reason = metadata.WhyRefused(c, image)
	}
	if image != nil {
		w.see(image, reached)
	}
	w.hooks.commit(event)
	e.At(env.AfterCommit)
	return image, err
}

// found resolves the batch if the image has it.
func (w *Writer) found(b *batch, c metadata.Commit, image *metadata.Head) bool {
	at, ok := image.Locate(c.Entries)
	if ok {
		w.committed(b, c, at, image, image.SpillDue(len(c.Entries)))
	}
	return ok
}

// committed resolves the batch, which is in the log from at on, and spills the image if it is due.
func (w *Writer) committed(b *batch, c metadata.Commit, at metadata.Located, image *metadata.Head, due bool) {
	if due {
		w.spillSoon(image)
	}
	w.mu.Lock()
	results := make([]Result, len(b.tickets))
	for i, t := range b.tickets {
		results[i] = t.result(c.Entries[i], at, nil)
		at.Order++
		for _, s := range c.Entries[i].Slots {
			at.Bases[s.Slot] += int64(s.Count)
		}
	}
	w.mu.Unlock()
	w.end(b, results)
}

// fail resolves the batch with an error.
func (w *Writer) fail(b *batch, err error) {
	w.mu.Lock()
	results := make([]Result, len(b.tickets))
	for i, t := range b.tickets {
		results[i] = t.result(metadata.Entry{}, metadata.Located{}, err)
	}
	w.mu.Unlock()
	w.end(b, results)
}

func (w *Writer) end(b *batch, results []Result) {
	for i, t := range b.tickets {
		w.resolve(t, results[i])
	}
	b.tickets = nil
}

// settle finds out whether the update of the batch, whose outcome is unknown, was applied. Applied: the batch is
// resolved. Not applied, now for certain: the batch is as before the attempt. Neither to be found out: the batch is
// resolved with an *UnknownError.
func (w *Writer) settle(ctx context.Context, b *batch, c metadata.Commit, since int64) {
	limit := w.cfg.SettleBudget
	for _, t := range b.tickets {
		limit = max(limit, w.cfg.SettleBudget+t.segment.Deadline-w.env.Mono())
	}
	within, cancel := w.env.WithTimeout(ctx, limit)
	defer cancel()
	s, branch, err := w.head.settle(within, c, since)
	switch branch {
	case Unknown:
		w.fail(b, err)
	case NotApplied:
		w.wait(ctx, b, fmt.Errorf("the answer was lost, and the attempt was not applied: %w", metadata.ErrUnavailable))
	default:
		w.committed(b, c, s.at, s.image, s.image.Next-s.image.First >= s.image.K)
	}
}

// refused deals with a definite refusal: what can be mended is mended, and the next round tries again.
func (w *Writer) refused(ctx context.Context, b *batch, c metadata.Commit, refused *metadata.RefusedError) {
	h, reason := refused.Head, metadata.WhyRefused(c, refused.Head)
	why := fmt.Errorf("%w: %v", refused, reason)
	switch reason {
	case metadata.ReasonNoLane:
		w.fail(b, refused)
	case metadata.ReasonAlreadyThere: // something below us sent the update twice
		w.found(b, c, h)
	case metadata.ReasonVersion:
		w.fail(b, errFormat(c.Lane, h.MinVersion))
	case metadata.ReasonToken, metadata.ReasonOffset:
		w.fail(b, conditionError(c, h, reason))
	case metadata.ReasonProducer:
		b.last = why
		w.notAdmitted(ctx, b, c, h)
	case metadata.ReasonFloor: // the view has the floor now; freshen mints a new id
		b.last = why
	case metadata.ReasonFull:
		b.last = why
		if h.Next < metadata.CapFor(h.First, len(c.Entries)) {
			return // the cap was only old
		}
		within, cancel := w.inTime(ctx, b)
		defer cancel()
		if err := w.spillNow(within, h); err != nil {
			w.wait(ctx, b, backpressure(err))
		}
	default: // an epoch was raised by another that shares it: again with the value shown
		w.wait(ctx, b, why)
	}
}

// setback ends the batch with an error that repeating cannot mend, and waits after any other.
func (w *Writer) setback(ctx context.Context, b *batch, err error) {
	if !transient(err) {
		w.fail(b, err)
		return
	}
	w.wait(ctx, b, err)
}

// wait notes why the last step changed nothing and backs off, at most to the first deadline of the batch.
func (w *Writer) wait(ctx context.Context, b *batch, why error) {
	b.last = why
	d := backoff(w.env, b.setbacks)
	b.setbacks++
	if errors.Is(why, metadata.ErrThrottled) {
		w.hooks.throttled(d)
	}
	within, cancel := w.inTime(ctx, b)
	defer cancel()
	w.env.Sleep(within, d) // an end of either context is seen by prune
}

const (
	firstBackoff = 20 * time.Millisecond
	lastBackoff  = time.Second
)

// backoff is the jittered wait after n setbacks before this one.
func backoff(e env.Env, n int) time.Duration {
	return e.Jitter(min(firstBackoff<<min(n, 10), lastBackoff))
}
