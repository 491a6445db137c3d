// Command onminio runs a command with a log on a real MinIO and the DynamoDB engine, both on loopback ports and gone when it ends:
//
//	onminio COMMAND [ARGUMENTS]
//
// The command finds the log's URL in VARVE_LOG and the keys in AWS's own variables. VARVE_MINIO names MinIO's program. The exit status is the
// command's.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/localdev/minio"
)

const (
	bucket    = "varve"
	leaveTime = 10 * time.Second // for the command to end after an interrupt
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv("VARVE_MINIO"), os.Args[1:])
	stop()
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended) && ended.ExitCode() > 0:
		os.Exit(ended.ExitCode()) // it has said why
	case err != nil:
		fmt.Fprintln(os.Stderr, "onminio:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, program string, command []string) (err error) {
	if program == "" || len(command) == 0 {
		return errors.New("want a COMMAND to run, and in VARVE_MINIO MinIO's program, which 'make minio' builds")
	}
	dir, err := os.MkdirTemp("", "varve-minio-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, err := minio.Start(ctx, env.System(), program, dir)
	if err != nil {
		return err
	}
	defer server.Close()
	if err := server.MakeBucket(ctx, bucket); err != nil {
		return err
	}
	tables, closeTables, err := serveTables()
	if err != nil {
		return err
	}
	defer closeTables()
	return child(ctx, command, environment(server, tables)).Run()
}

// serveTables serves an engine in memory.
func serveTables() (endpoint string, closeAll func(), err error) {
	engine, err := dynamodb.New(dynamodb.Options{})
	if err != nil {
		return "", nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		engine.Close()
		return "", nil, err
	}
	server := &http.Server{Handler: engine, ReadHeaderTimeout: leaveTime}
	go server.Serve(listener)
	return "http://" + listener.Addr().String(), func() {
		server.Close()
		engine.Close()
	}, nil
}

// environment is the command's: this one's with the log, the keys, and nothing else of AWS.
func environment(s *minio.Server, tables string) (list []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "AWS_") {
			list = append(list, v)
		}
	}
	access, secret := s.Credentials()
	return append(list, "VARVE_LOG="+s.LogURL(bucket, "log", "varve", tables), "AWS_ACCESS_KEY_ID="+access, "AWS_SECRET_ACCESS_KEY="+secret)
}

// child is the command, interrupted when ctx is done.
func child(ctx context.Context, command, environment []string) *exec.Cmd {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Env = environment
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = leaveTime
	return c
}
