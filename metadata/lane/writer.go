package lane

import (
	"context"
	"slices"
	"sync"

	"github.com/varvelog/varve/metadata"
)

// Writer commits segments to one lane. Its methods may be called concurrently. It has no goroutine while it has
// nothing to do. An owner has one Writer per lane; two of one owner would not keep its order.
type Writer struct {
	head
	cfg    Config
	life   context.Context // of the goroutines; ends when Close gives up
	giveUp context.CancelFunc

	mu       sync.Mutex
	queue    []*Ticket               // in the order of Reserve; removed when resolved
	failing  map[metadata.Slot]error // slots whose owner is being told of a failure
	working  bool                    // there is a worker
	spilling *spilling               // the spill under way
	busy     int                     // goroutines
	closed   bool
	quit     bool          // Close has given up
	drained  chan struct{} // closed when closed, and nothing is queued or running
	idle     chan struct{} // closed when nothing is queued or running; nil while nobody waits for it
	// refreshed is the config version that the owner knows.
	refreshed int64
}

// New makes a Writer; it starts nothing.
func New(cfg Config) *Writer {
	if cfg.SettleBudget == 0 {
		cfg.SettleBudget = DefaultSettleBudget
	}
	w := &Writer{
		head: head{lane: cfg.Lane, table: cfg.Table, env: cfg.Env, writer: cfg.Writer, onImage: cfg.OnImage, hooks: cfg.Hooks},
		cfg:  cfg, failing: make(map[metadata.Slot]error), drained: make(chan struct{}),
	}
	w.life, w.giveUp = context.WithCancel(context.Background())
	return w
}

// Observe gives the Writer an image that its owner got elsewhere, stale or not. A Writer that commits seldom to
// a busy lane has its first attempt refused, because the cap it knows is old; images that a reader of the same
// process fetches anyway save it that request.
func (w *Writer) Observe(image *metadata.Head) { w.observe(image, 0) }

// Close refuses new segments and returns when all that were accepted are resolved. When ctx is done first it
// gives up: what was not sent fails with ErrClosed, what was sent and is not settled is ErrUnknown, and the
// cause of ctx is returned.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	w.ended(0)
	w.mu.Unlock()
	defer w.giveUp()
	select {
	case <-w.drained:
		return nil
	case <-ctx.Done():
	}
	w.mu.Lock()
	w.quit = true
	w.wake()
	w.mu.Unlock()
	w.giveUp()
	<-w.drained
	return context.Cause(ctx)
}

// Idle returns when nothing is queued or running, spills included, or with the cause of ctx when that is done before.
func (w *Writer) Idle(ctx context.Context) error {
	w.mu.Lock()
	if w.busy == 0 && len(w.queue) == 0 {
		w.mu.Unlock()
		return nil
	}
	if w.idle == nil {
		w.idle = make(chan struct{})
	}
	idle := w.idle
	w.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// start runs f in a goroutine that Close waits for. w.mu is held.
func (w *Writer) start(f func(context.Context)) {
	w.busy++
	go func() {
		f(w.life)
		w.mu.Lock()
		w.ended(1)
		w.mu.Unlock()
	}()
}

// ended notes that so many goroutines have ended. w.mu is held.
func (w *Writer) ended(n int) {
	w.busy -= n
	if w.idle != nil && w.busy == 0 && len(w.queue) == 0 {
		close(w.idle)
		w.idle = nil
	}
	if w.closed && w.busy == 0 && len(w.queue) == 0 {
		select {
		case <-w.drained:
		default:
			close(w.drained)
		}
	}
}

// wake starts the worker if there is something for it to do. w.mu is held.
func (w *Writer) wake() {
	if w.working || len(w.queue) == 0 || w.queue[0].segment == nil && w.queue[0].over() == nil {
		return
	}
	w.working = true
	w.start(func(ctx context.Context) {
		for b := w.take(); b != nil; b = w.take() {
			w.commit(ctx, b)
		}
	})
}

// take resolves what is over at the front of the queue and returns the segments behind it that can go in one
// update. nil means that the worker is needed no more.
func (w *Writer) take() *batch {
	for {
		w.mu.Lock()
		if len(w.queue) == 0 || w.queue[0].segment == nil && w.queue[0].over() == nil {
			w.working = false
			w.mu.Unlock()
			return nil
		}
		front := w.queue[0]
		err := front.over()
		if err == nil {
			b := &batch{tickets: w.ready()}
			w.mu.Unlock()
			return b
		}
		r := front.result(metadata.Entry{}, metadata.Located{}, err)
		w.mu.Unlock()
		w.resolve(front, r)
	}
}

// ready are the tickets at the front that can be committed by one update; there is one. w.mu is held.
func (w *Writer) ready() []*Ticket {
	n, producers := 1, slices.Clone(w.queue[0].segment.Producers)
	for n < min(len(w.queue), metadata.MaxCommitEntries) && !w.queue[0].conditional() {
		t := w.queue[n]
		if t.segment == nil || t.over() != nil || t.conditional() || !distinct(producers, t.segment.Producers) {
			break
		}
		producers = append(producers, t.segment.Producers...)
		n++
	}
	return append([]*Ticket(nil), w.queue[:n]...)
}

// distinct tells whether more requests fit into an update: each producer is in it once.
func distinct(steps, more []metadata.ProducerStep) bool {
	return len(steps)+len(more) <= metadata.MaxProducers && !slices.ContainsFunc(more, func(m metadata.ProducerStep) bool {
		return slices.ContainsFunc(steps, func(s metadata.ProducerStep) bool { return s.ID == m.ID })
	})
}
