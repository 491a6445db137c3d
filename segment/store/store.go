// Package store is the contract for the objects of a log: created once under a name that is never used
// again, read by range, listed and deleted; never overwritten. Its sub-packages are the adapters: s3, dir,
// mem, and fault, which wraps another to make it fail. storetest is the suite that each must pass.
//
// Names are relative to the log's prefix and made by package segment (or segment.IdentityName); every
// adapter refuses what CheckName refuses before it does anything else.
package store

import (
	"bytes"
	"context"
	"slices"
	"time"
)

// Putter creates objects.
type Putter interface {
	// Put creates the object with these bytes. When it returns nil the object is durable and every later
	// Get, Stat or List by anybody sees it. Putting the same bytes again under the name is nil too, so a
	// caller may repeat a Put whose outcome it does not know; other bytes under an existing name leave it
	// as it is and are ErrExists. Any other error leaves the outcome open: the object may appear later.
	// The adapter retries within bounds of its own; body is not kept and must not change meanwhile.
	Put(ctx context.Context, name string, body []byte) error
}

// PartsPutter creates objects too large to be held in one piece.
type PartsPutter interface {
	// PutParts creates the object from the parts that next returns until io.EOF, and returns its size. When it returns nil the
	// object is durable and visible, as after Put. An object that exists is ErrExists (one with the same bytes may be nil), and
	// a name is given to PutParts once: after any error the caller takes another name, also where it does not know the outcome.
	// An error leaves no object, unless the outcome is open, when it may appear later.
	//
	// Each part but the last has MinPartBytes at least, and there are MaxParts at most: otherwise it is ErrParts. A part belongs
	// to the store once next has returned it; at most PartsInFlight are held at a time, and next, which is called by one
	// goroutine at a time, only when there is room for one more. An error of next ends the call and is in the call's error.
	PutParts(ctx context.Context, name string, next func() ([]byte, error)) (size int64, err error)
}

// Gatherer is a Putter that need not have an object in one piece.
type Gatherer interface {
	// PutPieces is Put of the pieces one after another.
	PutPieces(ctx context.Context, name string, pieces [][]byte) error
}

// PutPieces puts the pieces one after another, joined before if s is no Gatherer.
func PutPieces(ctx context.Context, s Putter, name string, pieces [][]byte) error {
	if g, ok := s.(Gatherer); ok {
		return g.PutPieces(ctx, name, pieces)
	}
	return s.Put(ctx, name, slices.Concat(pieces...))
}

// EqualPieces tells whether the pieces one after another are the bytes.
func EqualPieces(b []byte, pieces [][]byte) bool {
	for _, p := range pieces {
		if !bytes.HasPrefix(b, p) {
			return false
		}
		b = b[len(p):]
	}
	return len(b) == 0
}

// SizeOf is how many bytes the pieces have.
func SizeOf(pieces [][]byte) (n int) {
	for _, p := range pieces {
		n += len(p)
	}
	return n
}

// Getter reads objects.
type Getter interface {
	// Get returns bytes [off, off+n) of the object, appended to dst[:0] where its capacity allows. n < 0
	// reads from off to the end, which may be no bytes. A range that does not lie within the object is
	// ErrShort; fewer bytes than asked for are never a success. A name that is not there is ErrNotExist,
	// also for n = 0.
	Get(ctx context.Context, name string, off, n int64, dst []byte) ([]byte, error)
	// Stat returns size and time of an object, or ErrNotExist.
	Stat(ctx context.Context, name string) (Info, error)
}

// StreamBytes is about how much a Streamer gets between two calls of seen: little enough to be in a processor's cache still.
const StreamBytes = 256 << 10

// Streamer is a Getter that shows what has come of an object while the rest is on its way.
type Streamer interface {
	// GetStream is Get. It calls seen with all bytes of the range that are there, from the first one on, when StreamBytes or fewer have been added,
	// and so with the whole range before it returns that. What was shown does not change, but may be elsewhere in the next call. seen
	// runs in the caller's goroutine and keeps nothing; an error may come after any call of it.
	GetStream(ctx context.Context, name string, off, n int64, dst []byte, seen func(got []byte)) ([]byte, error)
}

// GetStream gets a range as a Streamer does, but shows it when all of it is there if g is no Streamer. It is Get if seen is nil.
func GetStream(ctx context.Context, g Getter, name string, off, n int64, dst []byte, seen func(got []byte)) ([]byte, error) {
	if s, ok := g.(Streamer); ok && seen != nil {
		return s.GetStream(ctx, name, off, n, dst, seen)
	}
	b, err := g.Get(ctx, name, off, n, dst)
	if err == nil && seen != nil {
		Show(b, seen)
	}
	return b, err
}

// Show shows a range that is there, as GetStream does.
func Show(b []byte, seen func(got []byte)) {
	for at := 0; at < len(b); {
		at = min(at+StreamBytes, len(b))
		seen(b[:at])
	}
}

// Lister lists objects.
type Lister interface {
	// List returns objects whose names start with prefix and are greater than after, in the order of their
	// bytes, at most max of them (MaxPage at most; 0 means MaxPage), and whether there may be more. prefix
	// must be the beginning of a valid name; after is only compared, and need not exist. An empty page with
	// More set is possible: go on from its Last. Things that are no object of a log are passed over.
	List(ctx context.Context, prefix, after string, max int) (Page, error)
}

// Deleter deletes objects.
type Deleter interface {
	// Delete removes the objects; one that is not there counts as removed. On error some may be left, and
	// the error names the first that is.
	Delete(ctx context.Context, names ...string) error
}

// Store is all of them, as an adapter provides it. Users take the narrowest interface they need. Methods may
// be called concurrently, and by several processes on the same log.
type Store interface {
	Putter
	PartsPutter
	Getter
	Lister
	Deleter
}

// Info describes an object. Modified is the store's own time, to the precision that it has.
type Info struct {
	Name     string
	Size     int64
	Modified time.Time
}

// MaxPage is the most objects that one List returns.
const MaxPage = 1000

// Page is one answer of List. Last is where the next page starts: the after of the next call.
type Page struct {
	Objects []Info
	Last    string
	More    bool
}

// PageSize is the page size that List uses for max.
func PageSize(max int) int {
	if max <= 0 || max > MaxPage {
		return MaxPage
	}
	return max
}
