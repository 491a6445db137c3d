package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/varvelog/varve/functions/clean"
	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/retain"
	"github.com/varvelog/varve/functions/sweep"
	"github.com/varvelog/varve/localdev/dynamodb"
	httpserver "github.com/varvelog/varve/localdev/server"
	"github.com/varvelog/varve/sdk"
)

// serve serves the log over HTTP, and says where on standard output, until it is to end.
func (w *worker) serve(ctx context.Context, log *sdk.Log) error {
	s, err := httpserver.Start(log, httpserver.Options{})
	if err != nil {
		return err
	}
	fmt.Println(strings.TrimPrefix(s.URL(), "http://"))
	<-ctx.Done()
	end, cancel := w.env.WithTimeout(context.Background(), flushTime)
	defer cancel()
	return s.Close(end)
}

// tableFile holds the table, for whoever serves it next.
const tableFile = "table.sqlite"

// serveTable serves the DynamoDB engine likewise.
func (w *worker) serveTable(ctx context.Context) error {
	e, err := dynamodb.New(dynamodb.Options{File: filepath.Join(w.Dir, tableFile)})
	if err != nil {
		return err
	}
	defer e.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &http.Server{Handler: e, ReadHeaderTimeout: openTime}
	go s.Serve(listener)
	fmt.Println(listener.Addr())
	<-ctx.Done()
	return s.Close()
}

// keep runs the background jobs, one after another in any order, until it is to end.
func (w *worker) keep(ctx context.Context, log *sdk.Log) error {
	b := log.Backend()
	jobs := []struct {
		name string
		run  func() error
	}{
		{"compact", func() error {
			_, err := compact.Run(ctx, b.Table, b.Store, compact.Options{All: w.oneIn(2), Target: int64(64<<10) << w.below(6), Env: w.env})
			return err
		}},
		{"clean", func() error {
			_, err := clean.Run(ctx, b.Table, b.Store, clean.Options{Dirty: 0.1, Env: w.env})
			return err
		}},
		{"retain", func() error {
			_, err := retain.Run(ctx, b.Table, retain.Options{Lifecycle: b.Lifecycle, Env: w.env})
			return err
		}},
		{"sweep", func() error {
			_, err := sweep.Run(ctx, b.Table, b.Store, sweep.Options{Env: w.env})
			return err
		}},
	}
	for ctx.Err() == nil {
		j := jobs[w.below(len(jobs))]
		err := j.run()
		if ctx.Err() == nil && !errors.Is(err, sweep.ErrDeadline) {
			w.note(j.name, err)
		}
		w.rest(ctx, 2*time.Second)
	}
	return nil
}
