// Package produce appends records that come over HTTP. A request is one flush; requests that are served at the same time by one process share flushes. When a
// request is answered, what it says is appended is durable and committed, and once its handler has returned nothing of it runs any more: on a platform that freezes
// the process then, whatever still ran would run an hour later, or never.
package produce

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/functions/internal/api"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

// Options are what a handler is given; the zero value is ready.
type Options struct {
	Env  env.Env              // the zero value is env.System()
	Tell func(e Event)        // if set, hears of each request when it is answered
	Most time.Duration        // that a request may take, if its context has no earlier deadline; default 30 s
	With []sdk.ProducerOption // for varve's own tests
}

// Event is a request that was answered.
type Event = api.Event

// Service appends to one log.
type Service struct {
	log      *sdk.Log
	options  Options
	catalog  api.Catalog
	mu       sync.Mutex
	producer *sdk.Producer      // nil before the first request, and after one has run out of time
	active   int                // requests under way
	awaited  context.CancelFunc // ends the wait of the last request for what is left to be done; nil while none waits
}

// New makes the service. The log must outlive it.
func New(log *sdk.Log, o Options) *Service {
	if o.Env.Clock == nil {
		o.Env = env.System()
	}
	if o.Most <= 0 {
		o.Most = 30 * time.Second
	}
	return &Service{log: log, options: o, catalog: api.Catalog{Log: log, Service: "produce"}}
}

// Handler serves it by itself.
func (s *Service) Handler() http.Handler {
	return api.New(api.Options{Env: s.options.Env, Tell: s.options.Tell}, append(s.catalog.Routes(), s.Routes()...)...)
}

// Routes are its operations, without those that other services have too.
func (s *Service) Routes() []api.Route {
	return []api.Route{
		{Method: http.MethodPost, Path: "/v1/producers", Serve: s.newProducer},
		{Method: http.MethodPost, Path: "/v1/topics/{topic}/records", Serve: s.produce},
	}
}

// Close ends what the service has open. No request may be under way.
func (s *Service) Close(ctx context.Context) error {
	s.mu.Lock()
	p := s.producer
	s.producer = nil
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.Close(ctx)
}

// newProducer makes an id. Whoever has got it over a connection that broke takes another.
func (s *Service) newProducer(c *api.Call) error {
	if err := c.Plain(); err != nil {
		return err
	}
	// Ids are ordered by time, and one that is too old is refused: a process that was frozen asks the table what time it is.
	if _, _, err := s.log.Backend().Table.Identity(c.R.Context()); err != nil {
		return err
	}
	p, err := s.current()
	if err != nil {
		return err
	}
	return c.JSON(http.StatusCreated, wire.Producer{ID: strconv.FormatInt(int64(p.NewProducerID()), 10)})
}

// produce is the request that appends.
func (s *Service) produce(c *api.Call) error {
	topic := c.Name("topic")
	if err := metadata.ValidateName("topic", topic); err != nil {
		return err
	}
	if _, err := c.Query(); err != nil {
		return err
	}
	once, err := onceOf(c.R.Header)
	if err != nil {
		return err
	}
	records, err := read(c, topic)
	if err != nil {
		return err
	}
	p, err := s.enter()
	if err != nil {
		return err
	}
	if id := c.R.Header.Get(wire.TopicIDHeader); id != "" {
		if err := p.CheckTopic(c.R.Context(), topic, id); err != nil {
			s.leave(c.R.Context(), p)
			return err
		}
	}
	// A client that goes away changes nothing: the outcome is waited for all the same.
	ctx, cancel := s.options.Env.WithTimeout(context.WithoutCancel(c.R.Context()), api.TimeLeft(c.R.Context(), s.options.Env, s.options.Most))
	defer cancel()
	defer s.leave(ctx, p) // after the answer
	if once != nil {
		return s.appendOnce(ctx, c, p, once, records)
	}
	return answer(c, s.append(ctx, p, records))
}

// producerOptions: what a request brings is flushed when it is complete, so nothing lingers; while two flushes are being uploaded, requests gather in the next.
func (s *Service) producerOptions() []sdk.ProducerOption {
	return append([]sdk.ProducerOption{
		sdk.WithLinger(time.Hour, time.Hour), sdk.WithMaxInFlight(2), sdk.WithBufferBytes(64 << 20),
		sdk.WithDeliveryDeadline(s.options.Most * 2 / 3), sdk.WithPartitioner(partitioner),
	}, s.options.With...)
}

// partitioner takes the partition that a record has, and chooses by its key where it has none.
func partitioner(topic string, chance func() uint64) func(*sdk.Record, int) int {
	byKey := sdk.KeyPartitioner()(topic, chance)
	return func(r *sdk.Record, partitions int) int {
		if r.Partition != wire.ByKey {
			return r.Partition
		}
		return byKey(r, partitions)
	}
}

// current is the producer that all requests share.
func (s *Service) current() (*sdk.Producer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.producer == nil {
		p, err := s.log.NewProducer(s.producerOptions()...)
		if err != nil {
			return nil, err
		}
		s.producer = p
	}
	return s.producer, nil
}

// enter begins a request that appends.
func (s *Service) enter() (*sdk.Producer, error) {
	p, err := s.current()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active++
	if s.awaited != nil {
		s.awaited() // this request will wait itself
		s.awaited = nil
	}
	return p, nil
}

// leave ends a request. The last one of those that are under way at once waits until nothing runs any more. If that takes longer than there is time, what still runs
// is given up: it is no request's.
func (s *Service) leave(ctx context.Context, p *sdk.Producer) {
	s.mu.Lock()
	s.active--
	if s.active > 0 {
		s.mu.Unlock()
		return
	}
	waiting, cancel := context.WithCancel(ctx)
	s.awaited = cancel
	s.mu.Unlock()
	defer cancel()
	if p.Idle(waiting) != nil && ctx.Err() != nil {
		s.retire(p)
	}
}

// retire gives up what the producer has under way, and lets the next request begin with another. When it returns nothing of the producer runs, unless another
// request is just retiring it too.
func (s *Service) retire(p *sdk.Producer) {
	s.mu.Lock()
	if s.producer == p {
		s.producer = nil
	}
	s.mu.Unlock()
	_ = p.Close(done) // the promises tell
}

// done is a context that is.
var done = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(fmt.Errorf("%w: the request's time is over", sdk.ErrTimedOut))
	return ctx
}()

// append appends the records as one flush and returns what became of each.
func (s *Service) append(ctx context.Context, p *sdk.Producer, records []*sdk.Record) sdk.Results {
	results := make(sdk.Results, len(records))
	all := make(chan struct{})
	var left atomic.Int64
	left.Store(int64(len(records)))
	for i, r := range records {
		results[i].Record = r
		p.Produce(ctx, r, func(_ *sdk.Record, err error) {
			results[i].Err = err
			if left.Add(-1) == 0 {
				close(all)
			}
		})
	}
	_ = p.Flush(done) // ends the linger, and does not wait: for this request's records, below, only
	select {
	case <-all:
	case <-ctx.Done():
		s.retire(p)
		<-all
	}
	return results
}
