// Lambda ingest appends an SQS queue's messages to topics. Its event source has to look at ReportBatchItemFailures.
package main

import (
	"context"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/varvelog/varve/functions/environment"
	"github.com/varvelog/varve/functions/ingest"
	"github.com/varvelog/varve/functions/internal/function"
)

func main() {
	f := function.Start("ingest")
	lambda.Start(func(ctx context.Context, e events.SQSEvent) (events.SQSEventResponse, error) {
		log, err := f.Log(ctx)
		if err != nil {
			return events.SQSEventResponse{}, err
		}
		defer f.Count(log)
		h, err := ingest.New(log, ingest.Config{Topic: f.Values[environment.Topic], TopicAttribute: f.Values[environment.TopicAttribute],
			KeyAttribute: f.Values[environment.KeyAttribute], Env: f.Env, Tell: func(failed ingest.Failure) { f.Tell(failed) }})
		if err != nil {
			return events.SQSEventResponse{}, err
		}
		return h.Handle(ctx, e)
	})
}
