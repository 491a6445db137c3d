// Package produce appends records that come over HTTP. A request is one flush; requests that are served at the same time by one process share flushes. When a
// request is answered, what it says is appended is durable and committed, and once its handler has returned nothing of it runs any more: on a platform that freezes
// the process then, whatever still ran would run an hour later, or never.
package produce

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
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
	log     *sdk.Log
	options Options
	catalog api.Catalog
	each    *appender // of records that are appended one by one
	once    *appender // of requests that a retry applies once
}

// New makes the service. The log must outlive it.
func New(log *sdk.Log, o Options) *Service {
	if o.Env.Clock == nil {
		o.Env = env.System()
	}
	if o.Most <= 0 {
		o.Most = 30 * time.Second
	}
	options := []sdk.ProducerOption{
		sdk.WithMaxInFlight(2), sdk.WithBufferBytes(48 << 20), sdk.WithDeliveryDeadline(o.Most * 2 / 3), sdk.WithPartitioner(partitioner),
	}
	return &Service{
		log: log, options: o, catalog: api.Catalog{Log: log, Service: "produce"},
		// Records come one by one, and what ends their linger is that all of a request are there. A request that is applied once comes whole.
		each: &appender{log: log, options: slices.Concat(options, []sdk.ProducerOption{sdk.WithLinger(time.Hour, time.Hour)}, o.With)},
		once: &appender{log: log, options: slices.Concat(options, []sdk.ProducerOption{sdk.WithLinger(0, 0)}, o.With)},
	}
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
		{Method: http.MethodPost, Path: "/v1/records", Serve: s.together},
	}
}

// Close ends what the service has open. No request may be under way.
func (s *Service) Close(ctx context.Context) error {
	return errors.Join(s.each.close(ctx), s.once.close(ctx))
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
	p, err := s.once.current()
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
	a := s.each
	if once != nil {
		a = s.once
	}
	p, err := a.enter()
	if err != nil {
		return err
	}
	ctx, cancel := s.time(c)
	defer cancel()
	defer a.leave(ctx, p) // after the answer
	if id := c.R.Header.Get(wire.TopicIDHeader); id != "" {
		if err := p.CheckTopic(ctx, topic, id); err != nil {
			return err
		}
	}
	if once != nil {
		return s.appendOnce(ctx, c, p, once, records)
	}
	return answer(c, a.append(ctx, p, records))
}

// time is what the request has. A client that goes away changes nothing: the outcome is waited for all the same.
func (s *Service) time(c *api.Call) (context.Context, context.CancelFunc) {
	return s.options.Env.WithTimeout(context.WithoutCancel(c.R.Context()), api.TimeLeft(c.R.Context(), s.options.Env, s.options.Most))
}

// together is the request that appends to several partitions and topics, all or none.
func (s *Service) together(c *api.Call) error {
	if _, err := c.Query(); err != nil {
		return err
	}
	for _, h := range []string{wire.ProducerIDHeader, wire.SequenceHeader, wire.IfEndHeader, wire.IfTokenHeader, wire.TopicIDHeader} {
		if v := c.R.Header.Values(h); len(v) > 0 {
			return api.BadField(h, strings.Join(v, ", "), "none: a request for several topics has no sequence and no conditions, and names its topics' ids in the body")
		}
	}
	_, body, err := c.Body(wire.JSONType)
	if err != nil {
		return err
	}
	var topics []wire.TopicMeant
	records, err := readJSON(body, &topics)
	if err != nil {
		return err
	}
	if len(records) == 0 {
		return noRecords()
	}
	p, err := s.each.enter()
	if err != nil {
		return err
	}
	ctx, cancel := s.time(c)
	defer cancel()
	defer s.each.leave(ctx, p) // after the answer
	for _, t := range topics {
		if err := p.CheckTopic(ctx, t.Name, t.ID); err != nil {
			return err
		}
	}
	err = p.AppendAtomic(ctx, records...)
	if ctx.Err() != nil {
		s.each.retire(p)
	}
	if err != nil {
		return err
	}
	all := make(sdk.Results, len(records))
	for i, r := range records {
		all[i].Record = r
	}
	answer := wire.Produced{Results: results(all)}
	if records[0].Offset < 0 { // appended, and not read back
		answer.OffsetsKnown = new(bool)
	}
	return c.JSON(http.StatusOK, answer)
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
