package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/localdev/housekeep"
	"github.com/varvelog/varve/localdev/server"
	"github.com/varvelog/varve/sdk"
)

type devOptions struct {
	compact, retain, sweep time.Duration
	listen, tokenFile      string
	minio                  string // its program; "": the log is that of --log
	json                   bool
}

func (a *app) devCommand() *cobra.Command {
	o := devOptions{compact: housekeep.DefaultCompact, retain: housekeep.DefaultRetain, sweep: housekeep.DefaultSweep, listen: "127.0.0.1:0"}
	c := &cobra.Command{
		Use: "dev", Short: "Serve a log over HTTP and keep its house, until interrupted", Args: exactly(),
		Long: `Do in one process what functions do for a log in the cloud, until interrupted: serve it over HTTP, as docs/openapi.yaml describes it, and do what schedules do:
compaction, of objects and of keys, retention, and the sweep. Producers and consumers need it not: they use the log on their own, at the same time.

The URL is printed first. It is for this machine only; with --token-file requests need the header "Authorization: Bearer TOKEN". Each run that did something, or
failed, is told of.

With --minio the log is one on a real MinIO, which is started, and on the DynamoDB engine behind a port: the very adapters that are used on AWS. Both end with the
command; the data stay in the folder minio of the directory that --log names. A file there, env, has what another shell needs to use the log meanwhile.`,
		Example: `  varve dev --listen 127.0.0.1:8080
  varve dev --minio                     # in another shell: . .varve/minio/env
  curl -d '{"records":[{"key":"k","value":"v"}]}' -H 'Content-Type: application/json' http://127.0.0.1:8080/v1/topics/TOPIC/records`,
		RunE: func(c *cobra.Command, _ []string) error { return a.dev(c.Context(), o) },
	}
	c.Flags().DurationVar(&o.compact, "compact-every", o.compact, "time between compactions")
	c.Flags().DurationVar(&o.retain, "retain-every", o.retain, "time between runs of retention")
	c.Flags().DurationVar(&o.sweep, "sweep-every", o.sweep, "time between sweeps")
	c.Flags().StringVar(&o.listen, "listen", o.listen, "loopback address and port to serve on, with --token-file any address; port 0 for any that is free; empty to serve nothing")
	c.Flags().StringVar(&o.tokenFile, "token-file", "", "file with the bearer token that requests must have")
	c.Flags().StringVar(&o.minio, "minio", "", "serve a log on MinIO, whose server is this `program`; without =program "+minioBuilt+", or minio on PATH")
	c.Flags().Lookup("minio").NoOptDefVal = findMinIO
	c.Flags().BoolVar(&o.json, "json", false, "print each run's whole report as JSON")
	return c
}

func (a *app) dev(ctx context.Context, o devOptions) error {
	if o.compact <= 0 || o.retain <= 0 || o.sweep <= 0 {
		return usagef("a time between runs is not above 0")
	}
	token, err := readToken(o.tokenFile)
	if err != nil {
		return err
	}
	if o.minio != "" {
		return a.onMinIO(ctx, o.minio, func(ctx context.Context) error { return a.serveLog(ctx, o, token) })
	}
	return a.serveLog(ctx, o, token)
}

// serveLog serves the log and keeps its house until ctx is done.
func (a *app) serveLog(ctx context.Context, o devOptions, token string) error {
	return a.withNewLog(ctx, direct(func(log *sdk.Log) (err error) {
		if o.listen != "" {
			s, failed := a.listen(log, o, token)
			if s != nil {
				defer func() { err = errors.Join(err, a.shut(s)) }()
			}
			if failed != nil {
				return failed
			}
		}
		a.progress("keeping the house of %s; interrupt to end", a.url)
		housekeep.Run(ctx, log.Backend(), housekeep.Options{Compact: o.compact, Retain: o.retain, Sweep: o.sweep, Env: a.env, Tell: func(e housekeep.Event) {
			switch {
			case o.json:
				a.printJSON(e)
			case e.Err != nil:
				a.note("%s %s: %v", a.env.Now().Format(time.TimeOnly), e.Job, e.Err)
			case e.Did:
				a.note("%s %s: %s", a.env.Now().Format(time.TimeOnly), e.Job, e.What)
			}
		}})
		return nil
	}))
}

// listen serves the log and prints where.
func (a *app) listen(log *sdk.Log, o devOptions, token string) (*server.Server, error) {
	s, err := server.Start(log, server.Options{Listen: o.listen, Token: token, Env: a.env, Tell: func(e server.Event) {
		if e.Status >= 500 {
			a.note("%s %s %s: %d: %v", a.env.Now().Format(time.TimeOnly), e.Method, e.Route, e.Status, e.Err)
		}
	}})
	if err != nil {
		return nil, err
	}
	if o.json {
		return s, a.printJSON(map[string]string{"job": "serve", "url": s.URL()})
	}
	_, err = fmt.Fprintln(a.out, s.URL())
	return s, err
}

// shutTime is how long requests under way are waited for.
const shutTime = 40 * time.Second

func (a *app) shut(s *server.Server) error {
	ctx, cancel := a.env.WithTimeout(context.Background(), shutTime)
	defer cancel()
	return s.Close(ctx)
}

// readToken reads a token from a file; none without a file.
func readToken(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", usagef("file %s has no token: want one line of printable ASCII without spaces", name)
	}
	return token, nil
}
