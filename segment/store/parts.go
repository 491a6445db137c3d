package store

import (
	"cmp"
	"context"
	"fmt"
	"io"
)

// Bounds of PutParts; those of the parts are S3's.
const (
	MinPartBytes  = 5 << 20 // of every part but the last
	MaxParts      = 10_000
	PartsInFlight = 4
)

// Parts is what PutParts is given, as every adapter reads it: checked, and without empty parts.
type Parts struct {
	Size  int64 // of the parts so far
	Count int

	name string
	next func() ([]byte, error)
	last bool // one came that only the last may be
}

// NewParts reads from next, for the object of that name.
func NewParts(name string, next func() ([]byte, error)) *Parts {
	return &Parts{name: name, next: next}
}

// Next returns the next part, or io.EOF. Another error is an *Error, also when it is one of next or the context's.
func (p *Parts) Next(ctx context.Context) ([]byte, error) {
	for {
		part, err := p.next()
		if err == nil || err == io.EOF {
			err = cmp.Or(ctx.Err(), err)
		}
		if err == io.EOF { // itself: one that is wrapped is the end of something else, which broke off
			return nil, io.EOF
		}
		if err == nil {
			err = p.take(part)
		}
		if err != nil {
			return nil, &Error{Op: OpPut, Name: p.name, Err: err}
		}
		if len(part) > 0 {
			return part, nil
		}
	}
}

func (p *Parts) take(part []byte) error {
	switch {
	case p.last && len(part) > 0:
		return fmt.Errorf("%w: part %d has less than %d bytes, and is not the last", ErrParts, p.Count, MinPartBytes)
	case p.Count == MaxParts && len(part) > 0:
		return fmt.Errorf("%w: there are more than %d", ErrParts, MaxParts)
	case len(part) > 0:
		p.last = len(part) < MinPartBytes
		p.Size += int64(len(part))
		p.Count++
	}
	return nil
}
