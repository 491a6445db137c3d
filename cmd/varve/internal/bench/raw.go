package bench

import (
	"context"
	"hash/crc32"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// streams are how many callers the raw side has at once. The fastest of them is the limit.
var streams = []int{1, 4, 16}

// each calls do for 0 to n-1, in that order, and then on, up to most, until that time has passed; from so many goroutines, until one fails or the turn's
// time is over.
func (r *run) each(ctx context.Context, streams, n, most int, least time.Duration, do func(ctx context.Context, stream, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	start := r.Env.Mono()
	var next atomic.Int64
	var wg sync.WaitGroup
	for stream := range streams {
		wg.Go(func() {
			for ctx.Err() == nil {
				i, since := int(next.Add(1))-1, r.Env.Mono()-start
				if since >= r.TurnTime || i >= most || i >= n && since >= least {
					return
				}
				if err := do(ctx, stream, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// spans is how long each call took, from several goroutines.
type spans struct {
	bytes atomic.Int64
	mu    sync.Mutex
	took  []time.Duration
}

func (s *spans) add(bytes int, took time.Duration) {
	s.bytes.Add(int64(bytes))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took = append(s.took, took)
}

// A raw turn lasts as long as varve's last one, where that takes no more than so many times varve's bytes: of what else the machine does, a turn that
// is over in no time would escape more than one that takes its time.
const mostPuts = 4

// putRaw puts objects of the sizes that varve's segments had in its last turn, which took that long. They are deleted when the turn has been measured.
func (r *run) putRaw(ctx context.Context, streams int, sizes []object, took time.Duration) (turn, error) {
	bodies := r.bodies(sizes)
	var done spans
	t, err := r.measure(r.meter, func() error {
		return r.each(ctx, streams, len(sizes), mostPuts*len(sizes), took, func(ctx context.Context, _, i int) error {
			name, body, start := r.mint(), bodies(i%len(sizes)), r.Env.Mono()
			if err := r.store.Put(ctx, name, body); err != nil {
				return err
			}
			done.add(len(body), r.Env.Mono()-start)
			return nil
		})
	})
	if err != nil {
		return t, err
	}
	t.bytes, t.took, t.objects = done.bytes.Load(), done.took, len(done.took)
	return t, r.remove(ctx)
}

// bodies has a body for each of the objects. One begins elsewhere than that before it, which the processor's cache may hold.
func (r *run) bodies(objects []object) func(i int) []byte {
	largest := 0
	for _, o := range objects {
		largest = max(largest, o.size)
	}
	const step = 1 << 20
	steps := 32
	if need := largest + steps*step; len(r.arena) < need {
		r.arena = make([]byte, need)
		for at := 0; at < need; at += len(r.payload.bytes) {
			copy(r.arena[at:], r.payload.bytes)
		}
	}
	return func(i int) []byte {
		at := i * 7 % steps * step
		return r.arena[at : at+objects[i].size]
	}
}

// getRaw gets objects, each stream into memory of its own, and again for as long as varve took, unless they are to be cold. checked: and takes the
// checksum of their bytes.
func (r *run) getRaw(ctx context.Context, s store.Getter, m *meter, streams int, checked bool, objects []object, took time.Duration) (turn, error) {
	for len(r.buffers) < streams {
		r.buffers = append(r.buffers, nil)
	}
	most := math.MaxInt
	if r.Cold {
		most = len(objects)
	}
	var done spans
	t, err := r.measure(m, func() error {
		return r.each(ctx, streams, len(objects), most, took, func(ctx context.Context, stream, i int) error {
			o, start := objects[i%len(objects)], r.Env.Mono()
			b, err := s.Get(ctx, o.name, o.off, int64(o.size), r.buffers[stream])
			if err != nil {
				return err
			}
			r.buffers[stream] = b
			if checked {
				checksum.Add(uint64(crc32.Checksum(b, castagnoli)))
			}
			done.add(len(b), r.Env.Mono()-start)
			return nil
		})
	})
	t.bytes, t.took, t.objects = done.bytes.Load(), done.took, len(done.took)
	return t, err
}

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	checksum   atomic.Uint64 // of all that was checked, so that it is really computed
)

// mint is a name that was never used, and will be removed.
func (r *run) mint() string {
	at, ok := r.log.Backend().Table.ServiceTime()
	if !ok {
		at = r.Env.Now()
	}
	name := segment.IntakeName(segment.NewID(at, segment.ClassFor(retention), segment.InBucket, r.Env.Uint64(), segment.ID{}))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written = append(r.written, name)
	return name
}
