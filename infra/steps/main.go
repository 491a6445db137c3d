// Steps does what deploy.sh and destroy.sh do between their calls of Terraform:
//
//	steps whoami                        account and principal of the AWS credentials
//	steps package DIR                   builds the functions for Lambda into DIR
//	steps check-plan FILE               refuses a plan, as JSON, that takes data or what protects it away
//	steps make-log URL                  makes bucket and table one log, if they are not
//	steps smoke URL PRODUCE FETCH       a record in through one function and out through the other
//	steps delete-data URL               the bucket with all versions, and the table
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "steps:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: steps whoami | package DIR | check-plan FILE | make-log URL | smoke URL PRODUCE FETCH | delete-data URL")

func run(ctx context.Context, args []string, out io.Writer) error {
	steps := map[string]struct {
		args int
		do   func(context.Context, []string, io.Writer) error
	}{
		"whoami":      {0, whoami},
		"package":     {1, packageAll},
		"check-plan":  {1, checkPlan},
		"make-log":    {1, makeLog},
		"smoke":       {3, smoke},
		"delete-data": {1, deleteData},
	}
	if len(args) == 0 {
		return errUsage
	}
	step, ok := steps[args[0]]
	if !ok || len(args)-1 != step.args {
		return errUsage
	}
	return step.do(ctx, args[1:], out)
}
