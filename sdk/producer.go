package sdk

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/varvelog/varve/metadata"
)

// Producer appends records. It gathers them into segments, uploads segments ahead in parallel, and commits each lane's
// in order: one producer's records of a partition are appended in the order in which Produce accepted them, and when
// some of them fail, none that was accepted before the failure was told follows them. All methods may be called
// concurrently.
//
// A record passes these stages; mu is held in none that waits:
//
//	accept   validated, partition chosen, room taken, encoded into its partition's batch of the open flush
//	cut      the flush is closed, and takes its place in the order of each lane that it touches
//	send     batches are compressed into a segment, which is put and handed to the lanes' writers
//	done     a lane's writer says what became of its part; the commit is the point of no return
//	deliver  promises are called
type Producer struct {
	log    *Log
	config producerConfig
	sink   sink
	epoch  int // fence epoch, from the producer's random name
	ids    minter
	slots  chan struct{} // one in it for each flush that is being uploaded
	wg     sync.WaitGroup

	mu         sync.Mutex
	topics     map[string]*topicHandle
	loading    map[string]chan struct{} // topics whose row is being read; closed after
	lanes      map[metadata.LaneID]laneWriter
	room       room
	linger     linger
	open       *flush // gathers; nil when nothing waits
	openOnce   *flush // the same, of requests that may be repeated
	lastCut    time.Duration
	sending    int                 // flushes that were cut and are not settled
	flushes    map[*flush]struct{} // not delivered
	ready      []*batch            // resolved, to be delivered in this order
	delivering bool                // a goroutine does
	running    int                 // goroutines
	idle       chan struct{}       // closed when none is running; nil while nobody waits for it
	closed     bool
	closing    chan struct{} // closed with closed
	unsent     int           // records that failed since closing began
	unsentErr  error         // why the first of them did

	turns turns
	seen  producerStates
}

// NewProducer starts a producer. A setting that makes no sense is a *FieldError. Close it to send what is buffered.
func (l *Log) NewProducer(opts ...ProducerOption) (*Producer, error) {
	if err := l.live(); err != nil {
		return nil, err
	}
	c := defaultProducerConfig()
	c.smallSegments = l.small
	for _, o := range opts {
		o(&c)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%016x%016x", l.env.Uint64(), l.env.Uint64())
	p := &Producer{
		log: l, config: c, epoch: metadata.EpochOf(name), ids: minter{env: l.env, clock: l.table, ahead: l.ahead},
		slots: make(chan struct{}, c.maxInFlight), topics: map[string]*topicHandle{}, loading: map[string]chan struct{}{},
		lanes: map[metadata.LaneID]laneWriter{}, room: room{limit: c.bufferBytes}, linger: newLinger(&c), lastCut: -1,
		flushes: map[*flush]struct{}{}, closing: make(chan struct{}), turns: newTurns(), seen: newProducerStates(),
	}
	p.sink = directSink{p}
	if l.remote != nil {
		p.sink = newRemoteSink(p, l.remote)
	}
	return p, nil
}

// Produce accepts a record and returns; promise (which may be nil) is called exactly once when the record is settled,
// without any lock held, and for the records of a partition in order. Promises are called one after another: one that
// blocks holds up the others, and one that produces must use TryProduce, since the room that Produce may wait for is
// made by promises to come.
//
// While the buffer is full Produce waits for room. A ctx that is done before there is room fails the record with the
// cause; once the record is accepted ctx no longer matters. A bad record fails alone, at once and before anything is
// sent: ErrInvalid, ErrTooLarge, ErrNoPartition, ErrUnknownTopic. The first record of a topic waits until the topic's
// row has been read.
func (p *Producer) Produce(ctx context.Context, r *Record, promise func(*Record, error)) {
	if err := p.accept(ctx, r, promise, true); err != nil && promise != nil {
		promise(r, err)
	}
}

// TryProduce is Produce without waiting for room: a full buffer is ErrBufferFull.
func (p *Producer) TryProduce(ctx context.Context, r *Record, promise func(*Record, error)) {
	if err := p.accept(ctx, r, promise, false); err != nil && promise != nil {
		promise(r, err)
	}
}

// ProduceSync produces the records and waits until each is settled. A ctx that is done meanwhile detaches: the records
// not settled then are reported with ErrUnknown and ctx's cause, go on being sent, and stay the producer's until they
// are.
func (p *Producer) ProduceSync(ctx context.Context, records ...*Record) Results {
	w := newWaiter(records)
	for i, r := range records {
		p.Produce(ctx, r, w.promise(i))
	}
	return w.wait(ctx)
}

// Flush sends what is buffered now without waiting for the linger, and returns when all of it is settled and its
// promises were called, or with an *UnsentError when ctx is done. What became of each record is for its promise to say;
// Flush must not be called from one.
func (p *Producer) Flush(ctx context.Context) error {
	p.mu.Lock()
	waiting := p.hurry()
	p.mu.Unlock()
	if awaitDelivery(ctx, waiting) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	left := 0
	for _, f := range waiting {
		if _, live := p.flushes[f]; live {
			left += f.records
		}
	}
	return &UnsentError{Records: left, Err: context.Cause(ctx)}
}

// Close flushes and ends the producer; calls that wait for room fail with ErrClosed, as do records after it. When ctx
// is done first, it gives up what is not settled: what was not sent fails with ErrClosed, what may have been applied
// with ErrUnknown. An *UnsentError counts the records that failed since Close was called. Every promise has been called
// when it returns. A second Close does nothing.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	close(p.closing)
	waiting := p.hurry()
	p.mu.Unlock()
	if !awaitDelivery(ctx, waiting) {
		for _, f := range waiting {
			f.abort(ErrClosed)
			<-f.started // it is cut now, and needs no lane that is not in p.lanes
		}
	}
	for _, w := range p.lanes {
		w.Close(ctx) // tells only that it gave up, which the promises tell better
	}
	p.wg.Wait()
	if p.unsent > 0 {
		return &UnsentError{Records: p.unsent, Err: p.unsentErr}
	}
	return nil
}

// hurry ends the linger of the open flush and returns all flushes that are not delivered. mu is held.
func (p *Producer) hurry() []*flush {
	if p.open != nil {
		p.open.forced = true
		p.open.goNow()
	}
	if p.openOnce != nil {
		p.openOnce.goNow()
	}
	waiting := make([]*flush, 0, len(p.flushes))
	for f := range p.flushes {
		waiting = append(waiting, f)
	}
	return waiting
}

// awaitDelivery tells whether all flushes are delivered, or ctx is done before.
func awaitDelivery(ctx context.Context, flushes []*flush) bool {
	for _, f := range flushes {
		select {
		case <-f.delivered:
		case <-ctx.Done():
			select {
			case <-f.delivered:
			default:
				return false
			}
		}
	}
	return true
}
