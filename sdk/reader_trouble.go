package sdk

import (
	"context"
	"errors"
)

// due takes out one error that is due and deals with its part. mu is held.
func (r *Reader) due() (event *ResetEvent, err error) {
	if r.final != nil {
		return nil, r.final
	}
	if len(r.errs) > 0 {
		err, r.errs = r.errs[0], r.errs[1:]
		return nil, err
	}
	for _, p := range r.parts {
		if p.paused {
			continue
		}
		if c := p.current; c != nil && c.life == p.life && c.piece != nil {
			if c.err != nil && len(c.records) == 0 {
				return r.reported(p, c.err)
			}
		} else if len(p.queue) > 0 && p.queue[0].err != nil {
			return r.reported(p, p.queue[0].err)
		}
	}
	return nil, nil
}

// reported deals with a part whose error is about to be returned. mu is held.
func (r *Reader) reported(p *part, err error) (*ResetEvent, error) {
	var outside *RangeError
	switch {
	case passes(err):
		r.restart(p, p.position)
		r.rest(p)
	case errors.As(err, &outside) && outside.Err != ErrOutOfRange:
		return r.expired(p, outside)
	case r.config.skipHoles && errors.Is(err, errHole):
		r.restart(p, min(p.queue[0].extent.End, p.stop))
	default:
		r.restart(p, p.position)
		p.halted = true
	}
	return nil, err
}

// expired moves a part that is below the log start, or in a cut, by the reader's policy. mu is held.
func (r *Reader) expired(p *part, e *RangeError) (*ResetEvent, error) {
	next := e.Start
	if e.Err == ErrRewritten {
		next = e.CutTo
	}
	event := &ResetEvent{Topic: e.Topic, Partition: e.Partition, From: e.Offset, To: next, Position: e.Offset}
	switch r.config.reset {
	case ResetEarliest:
		event.Position = next
	case ResetLatest:
		event.Position = e.End
	default:
		r.restart(p, p.position)
		p.halted = true
		return event, e
	}
	r.restart(p, event.Position)
	return event, nil
}

// rest keeps a part from being tried again for a while. mu is held.
func (r *Reader) rest(p *part) {
	p.resting = true
	p.failures++
	pause := r.log.env.Jitter(restAfter(p.failures))
	r.begin(func(ctx context.Context) {
		r.log.env.Sleep(ctx, pause)
		r.mu.Lock()
		defer r.mu.Unlock()
		p.resting = false
		r.advance()
	})
}
