// Lambda forward sends what a group has still to read to an SQS queue, once for each event of its schedule, until nothing is left or its time is over.
package main

import (
	"context"
	"strings"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/varvelog/varve/functions/environment"
	"github.com/varvelog/varve/functions/forward"
	"github.com/varvelog/varve/functions/forward/queue"
	"github.com/varvelog/varve/functions/internal/function"
)

func main() {
	f := function.Start("forward")
	lambda.Start(func(ctx context.Context) (*forward.Report, error) {
		log, err := f.Log(ctx)
		if err != nil {
			return nil, err
		}
		defer f.Count(log)
		c, err := config.LoadDefaultConfig(ctx)
		if err != nil {
			return nil, err
		}
		q := queue.New(sqs.NewFromConfig(c), f.Values[environment.QueueURL])
		return forward.Run(ctx, log, q, forward.Options{Group: f.Values[environment.Group], Topics: strings.Split(f.Values[environment.Topics], ","),
			DeadLetters: f.Values[environment.DeadLetterTopic], Within: function.Budget(ctx, f.Env), Env: f.Env})
	})
}
