// Package stack runs what a log on AWS needs, on this machine: MinIO for the bucket, and the DynamoDB engine for the table, both on loopback ports. The engine looks at
// no credentials: whoever uses this machine may use the table.
package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/localdev/minio"
)

// What the log is called. A directory holds one.
const bucket, prefix, table = "varve", "log", "varve"

const (
	headerTime = 10 * time.Second // for a client to send its header
	stopTime   = 10 * time.Second // for requests under way at the end; net/http waits 5 s for a connection that was made and not used
)

// Stack is the two servers.
type Stack struct {
	minio  *minio.Server
	tables *tables
}

// Start starts MinIO's program on dir, and an engine, and makes the bucket if there is none. minio.ErrInUse: there is a Stack on that directory already.
func Start(ctx context.Context, e env.Env, program, dir string, o dynamodb.Options) (*Stack, error) {
	server, err := minio.Start(ctx, e, program, dir)
	if err != nil {
		return nil, err
	}
	s := &Stack{minio: server}
	if err := s.complete(ctx, e, o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Stack) complete(ctx context.Context, e env.Env, o dynamodb.Options) (err error) {
	if err := s.minio.MakeBucket(ctx, bucket); err != nil {
		return err
	}
	s.tables, err = serveTables(e, o)
	return err
}

// LogURL names the log.
func (s *Stack) LogURL() string { return s.minio.LogURL(bucket, prefix, table, s.tables.endpoint) }

// Environment is what a process needs besides to use the log, as NAME=value. It holds the secret.
func (s *Stack) Environment() []string {
	access, secret := s.minio.Credentials()
	return []string{"AWS_ACCESS_KEY_ID=" + access, "AWS_SECRET_ACCESS_KEY=" + secret}
}

// Watch waits until MinIO ends of itself, which is an error, or ctx is done. It has to return before Close is called.
func (s *Stack) Watch(ctx context.Context) error { return s.minio.Watch(ctx) }

// Close ends both. The data stay.
func (s *Stack) Close() (err error) {
	if s.tables != nil {
		err = s.tables.close()
	}
	return errors.Join(err, s.minio.Close())
}

// tables is an engine that is served.
type tables struct {
	endpoint string
	engine   *dynamodb.Engine
	server   *http.Server
	served   chan error
	env      env.Env
}

func serveTables(e env.Env, o dynamodb.Options) (*tables, error) {
	engine, err := dynamodb.New(o)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve the table: %w", err), engine.Close())
	}
	t := &tables{endpoint: "http://" + listener.Addr().String(), engine: engine, server: &http.Server{Handler: engine, ReadHeaderTimeout: headerTime}, served: make(chan error, 1), env: e}
	go func() { t.served <- t.server.Serve(listener) }()
	return t, nil
}

// close lets requests under way end.
func (t *tables) close() error {
	ctx, cancel := t.env.WithTimeout(context.Background(), stopTime)
	defer cancel()
	err := t.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, t.server.Close())
	}
	<-t.served
	return errors.Join(err, t.engine.Close())
}
