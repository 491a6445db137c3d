// Package ingest appends the messages of an SQS queue to topics: one batch of messages is one flush.
//
// What is promised. A message that the answer does not name as failed is in the log, durable and committed. One that it names is in the log or not, and comes
// again: from the queue, or to its dead-letter queue, by the queue's redrive policy. So every message is appended at least once. It is appended more than once when
// SQS delivers it more than once, which it may at any time; when the function ends after a commit and before its answer has arrived; and when a commit's outcome
// could not be found out. Each record has its message's id in a header (HeaderMessageID), by which a reader can tell.
//
// A FIFO queue's messages of one group are in the log in their order, first appearances counting: the group id is the key unless an attribute is, and nothing of a
// group is appended behind a message that was not. Without a FIFO queue there is no order.
package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// Headers that a record has of its message besides those that the message's attributes become, which keep their names. Numbers are decimal, times milliseconds
// since 1970.
const (
	HeaderMessageID       = "sqs-message-id"
	HeaderGroup           = "sqs-message-group-id"
	HeaderDeduplicationID = "sqs-message-deduplication-id"
	HeaderSequence        = "sqs-sequence-number"
	HeaderTrace           = "sqs-trace-header"
)

// system are the queue's own attributes that become headers.
var system = []struct{ attribute, header string }{
	{groupID, HeaderGroup}, {"MessageDeduplicationId", HeaderDeduplicationID}, {"SequenceNumber", HeaderSequence}, {"AWSTraceHeader", HeaderTrace},
}

const groupID = "MessageGroupId"

// Config says where messages go.
type Config struct {
	// Topic is where messages go that name none.
	Topic string
	// TopicAttribute is the message attribute, of type String, that names another topic. Whoever may send to the queue then chooses among all topics of the log. "": none does.
	TopicAttribute string
	// KeyAttribute is the message attribute that is the record's key. "": none is. A message without it, or without key, has its FIFO group id as key, if any.
	KeyAttribute string
	// Margin is how much of the time that an invocation has is left for its answer. 0: a tenth, at least 100 ms, at most a second.
	Margin time.Duration
	Env    env.Env
	// Tell, if set, is told of every message that fails, by one goroutine at a time.
	Tell func(Failure)
}

func (c *Config) check() error {
	bad := func(field, value, valid string) error {
		return &metadata.FieldError{Field: field, Value: value, Valid: valid}
	}
	switch {
	case c.Topic == "" && c.TopicAttribute == "":
		return bad("topic", "", "a topic, or the name of a message attribute that names one")
	case c.TopicAttribute != "" && c.TopicAttribute == c.KeyAttribute:
		return bad("key attribute", c.KeyAttribute, "another attribute than that of the topic")
	case c.Margin < 0:
		return bad("margin", c.Margin.String(), "0 or more")
	}
	if c.Topic == "" {
		return nil
	}
	return metadata.ValidateName("topic", c.Topic)
}

// Failure is a message that was not appended, or of which that is not known. Poison says that it never can be, as it is.
type Failure struct {
	Message string `json:"message_id"`
	Topic   string `json:"topic,omitempty"`
	Poison  bool   `json:"poison"`
	Error   string `json:"error"`
}

// ErrBehind is a message of a FIFO queue that was not tried, because one of its group before it failed.
var ErrBehind = errors.New("a message before it in its group was not appended")

// BadMessageError is a message that cannot become a record.
type BadMessageError struct{ Field, Value, Valid string }

func (e *BadMessageError) Error() string {
	return fmt.Sprintf("%s %.80q is not valid: want %s", e.Field, e.Value, e.Valid)
}

// Handler appends batches of messages. Handle may be called concurrently.
type Handler struct {
	log    *sdk.Log
	config Config
}

// New makes a Handler. A *metadata.FieldError: the configuration makes no sense.
func New(log *sdk.Log, c Config) (*Handler, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return &Handler{log: log, config: c}, nil
}

// Handle appends a batch of messages, and names those that failed, in the queue's order; the function's event source has to be told to look at that
// (ReportBatchItemFailures). Everything else is durable and committed when it returns, and nothing goes on afterwards. An error comes instead when nothing was
// appended and not all of it is the messages' fault: then the whole batch comes again, and it counts as the function's failure.
func (h *Handler) Handle(ctx context.Context, e events.SQSEvent) (events.SQSEventResponse, error) {
	answer := events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}
	all := make([]*message, len(e.Records))
	for i := range e.Records {
		all[i] = h.read(&e.Records[i])
	}
	if err := h.append(ctx, all); err != nil {
		return answer, err
	}
	var failed error
	for _, m := range all {
		if m.err == nil {
			continue
		}
		f := Failure{Message: m.id, Topic: m.record.Topic, Poison: m.poison(), Error: m.err.Error()}
		if h.config.Tell != nil {
			h.config.Tell(f)
		}
		if !f.Poison && failed == nil && !errors.Is(m.err, ErrBehind) {
			failed = fmt.Errorf("message %s: %w", m.id, m.err)
		}
		answer.BatchItemFailures = append(answer.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: m.id})
	}
	if failed != nil && len(answer.BatchItemFailures) == len(all) {
		return events.SQSEventResponse{}, failed
	}
	return answer, nil
}

// message is a message on its way.
type message struct {
	id     string
	group  string // of a FIFO queue
	named  bool   // it names its topic
	record sdk.Record
	err    error
}

// poison tells whether a message can never be appended, as it is. That the topic is missing to which all go is not its fault.
func (m *message) poison() bool {
	var bad *BadMessageError
	return errors.As(m.err, &bad) || errors.Is(m.err, sdk.ErrTooLarge) || m.named && (errors.Is(m.err, sdk.ErrUnknownTopic) || errors.Is(m.err, sdk.ErrInvalid))
}

// read makes a record of a message.
func (h *Handler) read(in *events.SQSMessage) *message {
	m := &message{id: in.MessageId, record: sdk.Record{Topic: h.config.Topic, Value: []byte(in.Body)}}
	if strings.HasSuffix(in.EventSourceARN, ".fifo") {
		m.group = in.Attributes[groupID]
	}
	if ms, err := strconv.ParseInt(in.Attributes["SentTimestamp"], 10, 64); err == nil && ms >= 0 {
		m.record.Timestamp = time.UnixMilli(ms)
	}
	m.err = h.attributes(m, in)
	if m.record.Key == nil && m.group != "" {
		m.record.Key = []byte(m.group)
	}
	header := func(name, value string) {
		m.record.Headers = append(m.record.Headers, segment.Header{Key: name, Value: []byte(value)})
	}
	header(HeaderMessageID, in.MessageId)
	for _, s := range system {
		if value, ok := in.Attributes[s.attribute]; ok {
			header(s.header, value)
		}
	}
	return m
}

// attributes takes a message's attributes, by name: topic, key, headers.
func (h *Handler) attributes(m *message, in *events.SQSMessage) error {
	names := make([]string, 0, len(in.MessageAttributes))
	for name := range in.MessageAttributes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		a := in.MessageAttributes[name]
		value, err := valueOf(name, a)
		if err != nil {
			return err
		}
		switch name {
		case h.config.TopicAttribute:
			if kind(a) != "String" {
				return &BadMessageError{"type of attribute " + name, a.DataType, "String, as it names the topic"}
			}
			m.record.Topic, m.named = string(value), true
		case h.config.KeyAttribute:
			m.record.Key = value
		default:
			m.record.Headers = append(m.record.Headers, segment.Header{Key: name, Value: value})
		}
	}
	if m.record.Topic == "" {
		return &BadMessageError{"attribute " + h.config.TopicAttribute, "", "the name of a topic, as this queue has no other"}
	}
	return nil
}

// kind is the logical type of an attribute; what senders add to it behind a dot is theirs.
func kind(a events.SQSMessageAttribute) string {
	base, _, _ := strings.Cut(a.DataType, ".")
	return base
}

// valueOf is the bytes of an attribute.
func valueOf(name string, a events.SQSMessageAttribute) ([]byte, error) {
	switch k := kind(a); {
	case (k == "String" || k == "Number") && a.StringValue != nil:
		return []byte(*a.StringValue), nil
	case k == "Binary" && a.BinaryValue != nil:
		return a.BinaryValue, nil
	}
	return nil, &BadMessageError{"attribute " + name + " of type", a.DataType, "String, Number or Binary, with a value"}
}

// append appends what can be, in rounds; there is one round unless a FIFO group's messages go to different places.
func (h *Handler) append(ctx context.Context, all []*message) error {
	within, err := h.within(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := h.config.Env.WithTimeout(ctx, within)
	defer cancel()
	// Nothing goes out by the clock, only when all are accepted: what went out earlier could fail so early that what is accepted for its partition after that
	// is not held back.
	p, err := h.log.NewProducer(sdk.WithLinger(24*time.Hour, 24*time.Hour), sdk.WithDeliveryDeadline(within*4/5)) // a quarter more goes into finding out
	if err != nil {
		return err
	}
	r := &appending{producer: p, failed: map[string]bool{}, unknown: map[string]error{}}
	for len(all) > 0 {
		n := round(all)
		r.send(ctx, all[:n], n < len(all))
		all = all[n:]
	}
	p.Close(ctx) // what became of each message its promise says
	return nil
}

// minimum is how much time appending takes at least: with less it is not begun.
const minimum = 50 * time.Millisecond

// within is the time that there is to append in.
func (h *Handler) within(ctx context.Context) (time.Duration, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return time.Minute, nil
	}
	left := deadline.Sub(h.config.Env.Now())
	margin := h.config.Margin
	if margin == 0 {
		margin = min(max(left/10, 100*time.Millisecond), time.Second)
	}
	if left-margin < minimum {
		return 0, fmt.Errorf("%w: %v left, of which %v are for the answer: nothing was begun", context.DeadlineExceeded, left, margin)
	}
	return left - margin, nil
}

// round is how many messages can be appended beside each other: those of one group must be of one topic and key, and so of one partition, which keeps their order
// also when some of them fail.
func round(all []*message) int {
	first := map[string]*message{}
	for i, m := range all {
		if m.group == "" || m.err != nil {
			continue
		}
		f := first[m.group]
		if f == nil {
			first[m.group] = m
			continue
		}
		if f.record.Topic != m.record.Topic || string(f.record.Key) != string(m.record.Key) {
			return i
		}
	}
	return len(all)
}

// appending is the messages of one batch.
type appending struct {
	producer *sdk.Producer

	mu      sync.Mutex
	failed  map[string]bool  // groups
	unknown map[string]error // topics that there are not: each is asked for once
}

// send accepts messages, and if others are to come after them waits for what becomes of them.
func (r *appending) send(ctx context.Context, all []*message, settle bool) {
	for _, m := range all {
		if m.err == nil {
			m.err = r.hopeless(m)
		}
		if m.err != nil {
			r.note(m, m.err)
			continue
		}
		r.producer.Produce(ctx, &m.record, func(_ *sdk.Record, err error) { r.note(m, err) })
	}
	if settle {
		r.producer.Flush(ctx)
	}
}

// hopeless is why a message is not tried, if it is not.
func (r *appending) hopeless(m *message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.group != "" && r.failed[m.group] {
		return ErrBehind
	}
	return r.unknown[m.record.Topic]
}

// note notes what became of a message.
func (r *appending) note(m *message, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.err = err; err == nil {
		return
	}
	r.failed[m.group] = true
	if errors.Is(err, sdk.ErrUnknownTopic) {
		r.unknown[m.record.Topic] = err
	}
}
