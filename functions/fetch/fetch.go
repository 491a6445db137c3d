// Package fetch serves readers over HTTP: records as JSON or as the batches that are stored, links to those batches, offsets, and what groups have committed. It
// keeps nothing between requests that a request depends on, and nothing of a request runs after its handler has returned.
package fetch

import (
	"context"
	"errors"
	"net/http"
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
	Env        env.Env
	Tell       func(e Event) // if set, hears of each request when it is answered
	ProduceURL string        // where clients find the other service; "" if they are told otherwise
	Most       time.Duration // that a request may take, if its context has no earlier deadline; default 30 s
	MaxWaiting int           // requests that wait for records at a time; further ones are answered at once with what there is. 0: any number
}

// Event is a request that was answered.
type Event = api.Event

// MaxWait is the longest that a request waits for records: somebody pays for a function that waits.
const MaxWait = 20 * time.Second

// Service reads one log.
type Service struct {
	log     *sdk.Log
	options Options
	catalog api.Catalog
	batches *sdk.BatchReader
	waiting chan struct{} // as many as wait; nil: any number may
}

// New makes the service. The log must outlive it.
func New(log *sdk.Log, o Options) *Service {
	if o.Env.Clock == nil {
		o.Env = env.System()
	}
	if o.Most <= 0 {
		o.Most = 30 * time.Second
	}
	s := &Service{log: log, options: o, catalog: api.Catalog{Log: log, Service: "fetch", ProduceURL: o.ProduceURL}, batches: log.NewBatchReader()}
	if o.MaxWaiting > 0 {
		s.waiting = make(chan struct{}, o.MaxWaiting)
	}
	return s
}

// Handler serves it by itself.
func (s *Service) Handler() http.Handler {
	return api.New(api.Options{Env: s.options.Env, Tell: s.options.Tell}, append(s.catalog.Routes(), s.Routes()...)...)
}

// Routes are its operations, without those that other services have too.
func (s *Service) Routes() []api.Route {
	get := func(path string, serve func(context.Context, *api.Call) error) api.Route {
		return api.Route{Method: http.MethodGet, Path: path, Serve: s.within(func(ctx context.Context, c *api.Call) error {
			if err := c.NoBody(); err != nil {
				return err
			}
			if strings.Contains(path, "{topic}") {
				if err := metadata.ValidateName("topic", c.Name("topic")); err != nil {
					return err
				}
			}
			return serve(ctx, c)
		})}
	}
	return append(s.memberRoutes(), []api.Route{
		get("/v1/topics/{topic}/offsets", s.offsets),
		get("/v1/topics/{topic}/records", s.several),
		get("/v1/topics/{topic}/partitions/{partition}/records", s.records),
		get("/v1/topics/{topic}/partitions/{partition}/offsets", s.offsetAt),
		get("/v1/topics/{topic}/partitions/{partition}/plan", s.plan),
		get("/v1/groups", s.groups),
		get("/v1/groups/{group}", s.group),
		get("/v1/groups/{group}/offsets", s.committed),
		{Method: http.MethodPost, Path: "/v1/groups/{group}/offsets", Serve: s.within(s.commit)},
	}...)
}

// within gives a request its time.
func (s *Service) within(serve func(context.Context, *api.Call) error) func(*api.Call) error {
	return func(c *api.Call) error {
		ctx, cancel := s.options.Env.WithTimeout(c.R.Context(), api.TimeLeft(c.R.Context(), s.options.Env, s.options.Most))
		defer cancel()
		return serve(ctx, c)
	}
}

func (s *Service) offsets(ctx context.Context, c *api.Call) error {
	if _, err := c.Query(); err != nil {
		return err
	}
	list, err := s.log.Admin().Offsets(ctx, c.Name("topic"))
	if err != nil {
		return err
	}
	answer := wire.Offsets{Partitions: []wire.PartitionOffsets{}}
	for _, p := range list {
		o := wire.PartitionOffsets{Partition: p.Partition, Start: p.Start, End: p.End}
		for _, c := range p.Cuts {
			o.Cuts = append(o.Cuts, wire.OffsetRange(c))
		}
		o.Removed = (*wire.Removed)(p.Removed)
		answer.Partitions = append(answer.Partitions, o)
	}
	return c.JSON(http.StatusOK, answer)
}

func (s *Service) offsetAt(ctx context.Context, c *api.Call) error {
	partition, err := c.Number("partition")
	if err != nil {
		return err
	}
	q, err := c.Query("time")
	if err != nil {
		return err
	}
	if !q.Has("time") {
		return api.BadField("time", "", "a time, which is missing: RFC 3339, or milliseconds since 1970")
	}
	at, err := sdk.ParseTimestamp(q.Get("time"))
	if err != nil {
		return api.BadField("time", q.Get("time"), "RFC 3339, such as 2001-01-31T08:00:00Z, or milliseconds since 1970")
	}
	topic := c.Name("topic")
	offset, err := s.log.Admin().OffsetForTime(ctx, topic, partition, at)
	switch {
	case err == nil:
		return c.JSON(http.StatusOK, wire.OffsetAt{Offset: &offset})
	case !errors.Is(err, sdk.ErrNoOffset):
		return err
	}
	all, err := s.log.Admin().Offsets(ctx, topic)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, wire.OffsetAt{End: &all[partition].End})
}

// plan names the bytes and leaves it to the client to get them.
func (s *Service) plan(ctx context.Context, c *api.Call) error {
	partition, err := c.Number("partition")
	if err != nil {
		return err
	}
	q, err := c.Query("offset", "max_bytes")
	if err != nil {
		return err
	}
	offset, err := requiredOffset(q.Get("offset"))
	if err != nil {
		return err
	}
	most, err := api.Capped(q, "max_bytes", 1, maxPlanned, defaultPlanned)
	if err != nil {
		return err
	}
	links, err := s.batches.Links(ctx, c.Name("topic"), partition, offset, most)
	if err != nil {
		return err
	}
	answer := wire.Plan{Extents: []wire.Extent{}, Next: links.Next, Start: links.Start, End: links.End}
	for _, l := range links.Extents {
		e := wire.Extent{BaseOffset: l.Base, EndOffset: l.End, Bytes: l.Bytes, Relative: l.Relative, Inline: l.Inline}
		if l.Inline == nil {
			e.URL, e.Headers, e.Expires = l.Link.URL, map[string]string{"Range": l.Link.Range}, l.Link.Expires
		}
		answer.Extents = append(answer.Extents, e)
	}
	return c.JSON(http.StatusOK, answer)
}

// Bytes that a plan names. Its links are to be used while they live.
const (
	defaultPlanned = 64 << 20
	maxPlanned     = 1 << 30
)

func requiredOffset(value string) (int64, error) {
	n, err := strconv.ParseUint(value, 10, 63)
	if err != nil {
		return 0, api.BadField("offset", value, "a whole number from 0 on; GET /v1/topics/{topic}/offsets has the valid ones")
	}
	return int64(n), nil
}
