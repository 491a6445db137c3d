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
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/localdev/minio/stack"
)

const leaveTime = 10 * time.Second // for the command to end after an interrupt

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
	s, err := stack.Start(ctx, env.System(), program, dir, dynamodb.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return child(ctx, command, environment(s)).Run()
}

// environment is the command's: this one's with the log, the keys, and nothing else of AWS.
func environment(s *stack.Stack) (list []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "AWS_") {
			list = append(list, v)
		}
	}
	return append(append(list, "VARVE_LOG="+s.LogURL()), s.Environment()...)
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
