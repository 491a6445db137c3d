package sdk

import (
	"container/list"
	"context"
	"slices"
	"sync"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/segment"
)

const (
	// mergeGap is how many unwanted bytes between two ranges of a segment are read rather than paid for with a second request.
	mergeGap = 256 << 10
	// wholeBytes is up to how many bytes all that a segment holds of a lane is read at once and shared: readers of other partitions want it too.
	wholeBytes = 256 << 10
	// sharedBytes bounds what is kept to be shared.
	sharedBytes = 16 << 20
)

// byteRange is bytes [off, off+n) of a segment.
type byteRange struct {
	segment objects.Segment
	off, n  int64
}

// summed is bytes, and the checksums of their blocks, which were taken while they came.
type summed struct {
	bytes []byte
	segment.Sums
}

// fetcher reads ranges of segments for all readers of a log. Small ranges are read once for all who ask for them within a short time.
type fetcher struct {
	objects *objects.Reader
	env     env.Env
	hooks   hooks

	mu     sync.Mutex
	shared map[byteRange]*list.Element
	recent list.List // of *sharedRange, the one used last in front
	bytes  int64     // of the ranges in it
}

// sharedRange is a range that is being read or was. The fields below ready may be read once it is closed.
type sharedRange struct {
	byteRange
	ready  chan struct{}
	got    summed
	err    error
	gaveUp bool // the one who read it: that is no answer for others
}

func newFetcher(o *objects.Reader, e env.Env, hs hooks) *fetcher {
	return &fetcher{objects: o, env: e, hooks: hs, shared: make(map[byteRange]*list.Element)}
}

// read reads a range for that many extents: a small one for all who want it, a large one into dst's memory where it has room. Bytes that are
// shared must not be changed.
func (f *fetcher) read(ctx context.Context, r byteRange, extents int, dst []byte) (got summed, shared bool, err error) {
	if r.n <= wholeBytes {
		got, err = f.share(ctx, r, extents)
		return got, true, err
	}
	got, err = f.get(ctx, r, extents, dst)
	return got, false, err
}

func (f *fetcher) get(ctx context.Context, r byteRange, extents int, dst []byte) (got summed, err error) {
	start := f.env.Mono()
	got.bytes, err = f.objects.GetStream(ctx, r.segment, r.off, r.n, dst, got.Add)
	e := FetchEvent{Object: r.segment.Name(), Extents: extents, Bytes: len(got.bytes), Duration: f.env.Mono() - start, Err: err}
	fire(f.hooks, func(h FetchHook) { h.OnFetch(e) })
	return got, err
}

// share reads the range, or takes it from somebody who did.
func (f *fetcher) share(ctx context.Context, r byteRange, extents int) (summed, error) {
	for {
		s, mine := f.claim(r)
		if mine {
			s.got, s.err = f.get(ctx, r, extents, nil)
			if s.err != nil {
				s.gaveUp = ctx.Err() != nil
				f.drop(s)
			}
			close(s.ready)
			return s.got, s.err
		}
		select {
		case <-s.ready:
		case <-ctx.Done():
			return summed{}, context.Cause(ctx)
		}
		if !s.gaveUp {
			return s.got, s.err
		}
	}
}

// claim returns the range as somebody reads it, or a new one that the caller has to read.
func (f *fetcher) claim(r byteRange) (s *sharedRange, mine bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.shared[r]; e != nil {
		f.recent.MoveToFront(e)
		return e.Value.(*sharedRange), false
	}
	s = &sharedRange{byteRange: r, ready: make(chan struct{})}
	f.shared[r] = f.recent.PushFront(s)
	for f.bytes += r.n; f.bytes > sharedBytes; {
		f.remove(f.recent.Back())
	}
	return s, true
}

// drop forgets a range that could not be read.
func (f *fetcher) drop(s *sharedRange) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.shared[s.byteRange]; e != nil && e.Value == s {
		f.remove(e)
	}
}

func (f *fetcher) remove(e *list.Element) {
	s := f.recent.Remove(e).(*sharedRange)
	delete(f.shared, s.byteRange)
	f.bytes -= s.n
}

// merge joins ranges of one segment that are less than mergeGap apart. It returns them in order, and for each given range which one holds it.
func merge(ranges []byteRange) (merged []byteRange, in []int) {
	order := make([]int, len(ranges))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(max(-1, min(1, ranges[a].off-ranges[b].off))) })
	in = make([]int, len(ranges))
	for _, i := range order {
		r := ranges[i]
		if last := len(merged) - 1; last >= 0 && r.off < merged[last].off+merged[last].n+mergeGap {
			merged[last].n = max(merged[last].n, r.off+r.n-merged[last].off)
		} else {
			merged = append(merged, r)
		}
		in[i] = len(merged) - 1
	}
	return merged, in
}
