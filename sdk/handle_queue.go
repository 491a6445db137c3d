package sdk

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/group"
)

// queue is a partition's records that are being handled or wait for it.
type queue struct {
	h         *handling
	at        TopicPartition
	partition group.Partition
	lease     metadata.Lease // under which its records are read
	ctx       context.Context
	cancel    context.CancelFunc
	work      sync.WaitGroup

	mu        sync.Mutex
	tracks    [][]*item // that wait, by key: each has one goroutine while it is not empty
	order     []*item   // that are not finished, and finished ones behind them, by offset
	bytes     int64     // of order
	next      int64     // after the unbroken run of finished ones
	committed int64
	paused    bool
	stopped   bool
}

// item is a record on its way.
type item struct {
	record   Record
	finished bool
}

// handleBytes bounds what waits in all queues together, but for what one Poll brings: a partition whose queue holds more than its share is paused, and goes on
// when it holds less than a quarter of it.
const handleBytes = 64 << 20

func newQueue(h *handling, at TopicPartition) *queue {
	ctx, cancel := context.WithCancel(h.ctx)
	return &queue{h: h, at: at, ctx: ctx, cancel: cancel, tracks: make([][]*item, h.config.parallel), next: -1, committed: -1}
}

var trackSeed = maphash.MakeSeed()

// add queues records, and pauses the partition when that is enough. Pausing and resuming are told under mu, so in the order in which they are decided.
func (q *queue) add(records []Record) {
	share := q.h.share()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped {
		return
	}
	for _, r := range records {
		it := &item{record: r}
		q.order = append(q.order, it)
		q.bytes += itemBytes(it)
		track := int(maphash.Bytes(trackSeed, r.Key) % uint64(len(q.tracks)))
		if q.tracks[track] = append(q.tracks[track], it); len(q.tracks[track]) == 1 {
			q.work.Go(func() { q.run(track) })
		}
	}
	if q.bytes > share && !q.paused {
		q.paused = true
		q.h.consumer.Pause(q.at)
	}
}

func itemBytes(it *item) int64 {
	n := len(it.record.Key) + len(it.record.Value) + 128
	for _, x := range it.record.Headers {
		n += len(x.Key) + len(x.Value)
	}
	return int64(n)
}

// run handles a track's records until there are none.
func (q *queue) run(track int) {
	for {
		q.mu.Lock()
		if q.stopped || len(q.tracks[track]) == 0 {
			q.mu.Unlock()
			return
		}
		it := q.tracks[track][0]
		q.mu.Unlock()
		done := q.h.finish(q.ctx, &it.record)
		if !done {
			return // the track stays as it is: nothing of it is handled any more
		}
		q.finished(track, it)
	}
}

// finished takes a record out that is finished, and the unbroken run of them.
func (q *queue) finished(track int, it *item) {
	share := q.h.share()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tracks[track] = q.tracks[track][1:]
	it.finished = true
	n := 0
	for n < len(q.order) && q.order[n].finished {
		q.next = q.order[n].record.Offset + 1
		q.bytes -= itemBytes(q.order[n])
		n++
	}
	q.order = slices.Delete(q.order, 0, n)
	if q.paused && q.bytes <= share/4 && !q.stopped {
		q.paused = false
		q.h.consumer.Resume(q.at)
	}
}

// halt begins no more handlers.
func (q *queue) halt() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
}

// ended waits for the handlers that are under way, or until ctx is done.
func (q *queue) ended(ctx context.Context) {
	ended := make(chan struct{})
	go func() {
		q.work.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// finishedNext is the offset to commit, if there is news.
func (q *queue) finishedNext() (next int64, news bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.next, q.next > q.committed
}

func (q *queue) committedTo(offset int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.committed = max(q.committed, offset)
}
