// Package queue is forward's queue on SQS.
package queue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/varvelog/varve/functions/forward"
)

// SQS is the part of SQS's client that is used. It takes the rights sqs:SendMessage and sqs:GetQueueAttributes.
type SQS interface {
	SendMessageBatch(context.Context, *sqs.SendMessageBatchInput, ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error)
	GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput, ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error)
}

// Queue is a queue of SQS. Its methods may be called concurrently.
type Queue struct {
	client SQS
	url    string

	mu  sync.Mutex
	max int // 0: not known yet
}

var _ forward.Queue = (*Queue)(nil)

// New is the queue at the URL.
func New(client SQS, url string) *Queue { return &Queue{client: client, url: url} }

// FIFO tells whether the queue is a FIFO queue: their names say so.
func (q *Queue) FIFO() bool { return strings.HasSuffix(q.url, ".fifo") }

// once makes the client send each request once: who sends it knows when to send it again.
func once(o *sqs.Options) { o.Retryer = aws.NopRetryer{} }

// MaxBytes is the queue's largest message, which is asked for once.
func (q *Queue) MaxBytes(ctx context.Context) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.max > 0 {
		return q.max, nil
	}
	out, err := q.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &q.url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameMaximumMessageSize}}, once)
	if err != nil {
		return 0, classify(err)
	}
	said := out.Attributes[string(types.QueueAttributeNameMaximumMessageSize)]
	if n, err := strconv.Atoi(said); err == nil && n > 0 {
		q.max = n
		return n, nil
	}
	return 0, fmt.Errorf("queue %s says that its largest message has %q bytes", q.url, said)
}

// Send makes one attempt to send the messages.
func (q *Queue) Send(ctx context.Context, all []forward.Message) ([]error, error) {
	in := &sqs.SendMessageBatchInput{QueueUrl: &q.url}
	for i, m := range all {
		e := types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: &m.Body}
		if q.FIFO() {
			e.MessageGroupId, e.MessageDeduplicationId = &m.Group, &m.ID
		}
		in.Entries = append(in.Entries, e)
	}
	out, err := q.client.SendMessageBatch(ctx, in, once)
	if err != nil {
		return nil, classify(err)
	}
	return answers(len(all), out)
}

// answers puts the answer's parts in the order of the messages. One that does not name each message once says nothing of any.
func answers(n int, out *sqs.SendMessageBatchOutput) ([]error, error) {
	refused, named := make([]error, n), make([]bool, n)
	name := func(id *string, err error) error {
		i, bad := strconv.Atoi(aws.ToString(id))
		if bad != nil || i < 0 || i >= n || named[i] {
			return fmt.Errorf("the queue's answer names message %q of %d, or names it twice", aws.ToString(id), n)
		}
		refused[i], named[i] = err, true
		return nil
	}
	for _, s := range out.Successful {
		if err := name(s.Id, nil); err != nil {
			return nil, err
		}
	}
	for _, f := range out.Failed {
		if err := name(f.Id, fmt.Errorf("%s: %s", aws.ToString(f.Code), aws.ToString(f.Message))); err != nil {
			return nil, err
		}
	}
	if i := slices.Index(named, false); i >= 0 {
		return nil, fmt.Errorf("the queue's answer does not name message %d of %d", i, n)
	}
	return refused, nil
}

// denied are the codes of what no other request changes.
var denied = []string{"AccessDenied", "AccessDeniedException", "QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", "InvalidAddress", "InvalidSecurity",
	"KmsAccessDenied", "KmsDisabled", "KmsInvalidKeyUsage", "KmsInvalidState", "KmsNotFound", "KmsOptInRequired", "UnsupportedOperation"}

// passing are the codes of what another attempt may not meet, though the service blames it on the request.
var passing = []string{"RequestThrottled", "Throttling", "ThrottlingException", "OverLimit", "KmsThrottled", "RequestTimeout", "RequestExpired", "ExpiredToken",
	"ExpiredTokenException"}

// classify adds forward's condition to an error, if it is one.
func classify(err error) error {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return err
	}
	code := api.ErrorCode()
	var answer *awshttp.ResponseError
	switch {
	case slices.Contains(denied, code):
		return fmt.Errorf("%w: %w", forward.ErrDenied, err)
	case slices.Contains(passing, code):
		return err
	case errors.As(err, &answer) && answer.HTTPStatusCode() == http.StatusForbidden:
		return fmt.Errorf("%w: %w", forward.ErrDenied, err)
	case errors.As(err, &answer) && answer.HTTPStatusCode()/100 == 4 && answer.HTTPStatusCode() != http.StatusTooManyRequests:
		return fmt.Errorf("%w: %w", forward.ErrRefused, err)
	}
	return err
}
