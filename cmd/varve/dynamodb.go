package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/localdev/dynamodb"
)

type dynamodbOptions struct{ listen, file string }

func (a *app) dynamodbCommand() *cobra.Command {
	o := dynamodbOptions{listen: "127.0.0.1:8000"}
	c := &cobra.Command{
		Use: "dynamodb", Short: "Serve DynamoDB's API from memory or one file, for development", Args: exactly(),
		Long: `Serve DynamoDB's API, as much of it as varve uses, from memory or from one SQLite file.

It prints the address it listens on, and ends with an interrupt. It looks at no credentials, so it listens on the loopback address unless
another one is given.`,
		Example: "  varve dynamodb --listen 127.0.0.1:0 --file dev.sqlite",
		RunE:    func(c *cobra.Command, _ []string) error { return a.dynamodb(c.Context(), o) },
	}
	c.Flags().StringVar(&o.listen, "listen", o.listen, "HOST:PORT; without HOST the loopback address, port 0 takes a free one")
	c.Flags().StringVar(&o.file, "file", "", "SQLite file that keeps the tables (default: memory)")
	return c
}

// Time limits of the server.
const (
	headerTimeout = 10 * time.Second // for a client to send its header
	stopTimeout   = 10 * time.Second // for requests under way when it is told to stop
)

func (a *app) dynamodb(ctx context.Context, o dynamodbOptions) error {
	host, port, err := net.SplitHostPort(o.listen)
	if err != nil {
		return usagef("--listen %q is not HOST:PORT", o.listen)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	engine, err := dynamodb.New(dynamodb.Options{File: o.file})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return errors.Join(err, engine.Close())
	}
	fmt.Fprintf(a.out, "http://%s\n", listener.Addr())
	return errors.Join(a.serve(ctx, listener, engine), engine.Close())
}

// serve serves until ctx is done, and then finishes what is under way.
func (a *app) serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	limited, cancel := a.env.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	err := s.Shutdown(limited)
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}
