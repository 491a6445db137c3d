package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/varvelog/varve/segment/store"
)

// selfTestName is the test object's name, which is no other object's: parts of names do not start with '.'. It
// differs by what a put sends, so that an object that is there shows that such a put was accepted once.
func (c Compat) selfTestName() string {
	return fmt.Sprintf(".selftest/%d", c&(NoChecksum|NoConditionalPut))
}

var selfTestBody = []byte("varve puts this object when it opens a log, to see whether a second put is refused\n")

// errIgnored is what the test says of a service that lets a second conditional put succeed.
var errIgnored = fmt.Errorf("%w: the service ignores If-None-Match and overwrites objects", store.ErrConfig)

// selfTest finds out whether the service does what the configuration relies on, and if it does not, which
// settings it would do it with.
func (s *Store) selfTest(ctx context.Context) error {
	err := s.probe(ctx, false)
	var e *store.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &e), ctx.Err() != nil, errors.Is(err, store.ErrThrottled):
		return err
	case e.Code == "AccessDenied":
		return nil // a reader; a writer will hear it from its first put
	case errors.Is(err, store.ErrDenied):
		return err
	}
	for _, extra := range s.remedies(err) {
		alt := &Store{cfg: s.cfg, prefix: s.prefix, creds: s.creds}
		alt.cfg.Compat |= extra
		if extra&PathStyle != 0 {
			alt.cfg.Compat &^= VirtualHost
		}
		c, clientErr := newClient(alt.cfg, s.creds, s.client.Load().region)
		if clientErr != nil {
			return clientErr
		}
		alt.client.Store(c)
		if alt.probe(ctx, true) == nil {
			return &CompatError{Need: extra, Err: e.Err}
		}
	}
	return err
}

// remedies are the settings to try in turn, the mildest first. Where there was no answer, it can only be that the
// bucket's own host does not exist.
func (s *Store) remedies(err error) []Compat {
	var list []Compat
	if !errors.Is(err, store.ErrUnavailable) {
		list = []Compat{NoChecksum, NoConditionalPut, NoChecksum | NoConditionalPut}
	}
	if s.virtualHost() {
		for _, c := range append([]Compat{0}, list...) {
			list = append(list, c|PathStyle)
		}
	}
	return list
}

// probe puts the test object, once more if it was not there, and reads a range of it.
func (s *Store) probe(ctx context.Context, once bool) error {
	name := s.cfg.Compat.selfTestName()
	p := s.newPut(name, [][]byte{selfTestBody})
	c := call{op: store.OpOpen, name: s.cfg.Bucket, once: once}
	c.try = func(ctx context.Context, client *client) error {
		for range 2 {
			if exists, err := p.send(ctx, client); exists || err != nil {
				return err
			}
		}
		return errIgnored
	}
	if err := s.do(ctx, c); err != nil {
		return err
	}
	g := get{s: s, name: name, off: 1, n: 4}
	c.try = g.once
	if err := s.do(ctx, c); err != nil {
		return err
	}
	if want := selfTestBody[1:5]; !bytes.Equal(g.got, want) {
		return fmt.Errorf("%w: bytes 1 to 4 of %s read as %q, not %q", store.ErrConfig, name, g.got, want)
	}
	return nil
}
