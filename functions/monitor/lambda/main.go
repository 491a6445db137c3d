// Lambda monitor measures the log once for each event of its schedule, and prints what it finds as CloudWatch's embedded metrics.
package main

import (
	"context"
	"errors"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/varvelog/varve/functions/internal/function"
	"github.com/varvelog/varve/functions/monitor"
)

func main() {
	f := function.Start("monitor")
	lambda.Start(func(ctx context.Context) error {
		log, err := f.Log(ctx)
		if err != nil {
			return err
		}
		defer f.Count(log)
		within, cancel := f.Env.WithTimeout(ctx, function.Budget(ctx, f.Env))
		defer cancel()
		r, err := monitor.Run(within, log.Backend().Table, f.Env)
		return errors.Join(err, r.Write(os.Stdout))
	})
}
