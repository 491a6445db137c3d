// Package local is both HTTP services under one URL, for a server that is no function.
package local

import (
	"context"
	"net/http"
	"time"

	"github.com/varvelog/varve/functions/fetch"
	"github.com/varvelog/varve/functions/internal/api"
	"github.com/varvelog/varve/functions/produce"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/sdk"
)

// Options are what the services are given; the zero value is ready.
type Options struct {
	Env  env.Env
	Tell func(e Event) // if set, hears of each request when it is answered
	Most time.Duration // that a request may take; default 30 s
	// MaxWaiting is how many requests wait for records at a time; further ones are answered at once with what there is. 0: any number.
	MaxWaiting int
}

// Event is a request that was answered.
type Event = api.Event

// Service is both.
type Service struct {
	produce *produce.Service
	handler *api.Handler
}

// New makes the services. The log must outlive them.
func New(log *sdk.Log, o Options) *Service {
	if o.Env.Clock == nil {
		o.Env = env.System()
	}
	p := produce.New(log, produce.Options{Env: o.Env, Most: o.Most})
	catalog := &api.Catalog{Log: log, Service: "local"}
	routes := append(catalog.Routes(), p.Routes()...)
	routes = append(routes, fetch.New(log, fetch.Options{Env: o.Env, Most: o.Most, MaxWaiting: o.MaxWaiting}).Routes()...)
	return &Service{produce: p, handler: api.New(api.Options{Env: o.Env, Tell: o.Tell}, routes...)}
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Close ends what the services have open. No request may be under way.
func (s *Service) Close(ctx context.Context) error { return s.produce.Close(ctx) }

// Fail answers a request that no service is to see.
func Fail(w http.ResponseWriter, r *http.Request, code, message string) {
	api.Refuse(w, r, code, message)
}
