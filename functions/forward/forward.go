// Package forward sends what a group has still to read to an SQS queue. The log is the truth and the queue is derived from it.
//
// What is promised. Every record is sent at least once: an offset is committed when everything before it has been acknowledged by the queue, was left out by the
// filter, or was dead-lettered. A record is sent again after a crash, a lost answer, or when another member takes its partition over; a FIFO queue drops what it gets twice
// within five minutes, by the deduplication id (topic id, partition, offset).
//
// Order. To a FIFO queue nothing of a partition is sent while a record before it is not acknowledged, so the records of a key, which are a message group, are in the
// queue in their order; a request takes one record from each of up to ten partitions. A standard queue has no order: a request takes up to ten records of a
// partition, and up to eight requests are under way at a time; what is behind them waits until all of them are acknowledged.
//
// A record that the queue refuses again and again is dead-lettered, once: its append and the commit behind it are one transaction of the log's table. It is then
// gone on behind it. Without a topic for that the partition stops there, and so does every later run, until somebody has made room: a queue that silently lacks records would be
// worse. A record that is too large for a message cannot get smaller, so it goes the same way, at once. What is wrong with the queue itself is no record's fault,
// and is waited out.
package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

// Message is a record as the queue gets it.
type Message struct {
	Body  string // the record as JSON, as docs/record-json.md has it
	Group string // of a FIFO queue: the key, or the partition of a record without one, hashed
	ID    string // by which a FIFO queue knows it again
}

// MaxBatch is how many messages a request takes.
const MaxBatch = 10

// Queue is where messages go.
type Queue interface {
	// FIFO tells whether the queue keeps the order of each group.
	FIFO() bool
	// MaxBytes is how many bytes a body may have, and the bodies of a request together.
	MaxBytes(ctx context.Context) (int, error)
	// Send makes one attempt to send up to MaxBatch messages. Without error refused has for each message nil, if the queue has acknowledged it, or why it has not; with
	// one nothing is known of any. ErrDenied and ErrRefused say more of the error; every other may pass.
	Send(ctx context.Context, all []Message) (refused []error, err error)
}

// Conditions of a Queue's requests.
var (
	ErrDenied  = errors.New("the queue is not there, or not for us") // whatever is sent
	ErrRefused = errors.New("the queue refused the request")         // as it is
)

// ErrTooLarge is a record that is too large for a message.
var ErrTooLarge = errors.New("record is too large for a message of the queue")

// Options say what is sent, and how long.
type Options struct {
	Group  string
	Topics []string
	// DeadLetters is the topic of what cannot be sent. "": its partition stops there.
	DeadLetters string
	// Attempts is how often the queue may refuse a record before that; 0 is DefaultAttempts.
	Attempts int
	// Within is how long the run may take; 0 is DefaultWithin. A tenth of it is for the end. It ends earlier when the group has nothing left to read.
	Within time.Duration
	// Keep, if set, tells which records are sent. The others count as sent.
	Keep func(*sdk.Record) bool
	Env  env.Env
}

// Defaults.
const (
	DefaultAttempts = 5
	DefaultWithin   = 10 * time.Minute
)

func (o *Options) complete() error {
	o.Attempts, o.Within = cmp.Or(o.Attempts, DefaultAttempts), cmp.Or(o.Within, DefaultWithin)
	bad := func(field, value, valid string) error {
		return &metadata.FieldError{Field: field, Value: value, Valid: valid}
	}
	switch {
	case len(o.Topics) == 0:
		return bad("topics", "", "at least one")
	case o.Attempts < 0:
		return bad("attempts", fmt.Sprint(o.Attempts), "1 or more, or 0 for the default")
	case o.Within < 0:
		return bad("time", o.Within.String(), "above 0, or 0 for the default")
	}
	for _, t := range o.Topics {
		if t == o.DeadLetters {
			return bad("topic of dead letters", t, "another one than those that are sent")
		}
	}
	return nil
}

// Report is what a run did. Its JSON form is stable.
type Report struct {
	Sent     int64 `json:"sent"`
	LeftOut  int64 `json:"left_out"` // by the filter
	Dead     int64 `json:"dead_lettered"`
	Requests int64 `json:"requests"` // to the queue
	Done     bool  `json:"done"`     // the group had nothing left to read, but for what is stopped
}

// StoppedError is a partition that does not go on.
type StoppedError struct {
	Topic     string
	Partition int
	Offset    int64 // of the record that is not sent; everything before it is
	Err       error
}

func (e *StoppedError) Error() string {
	return fmt.Sprintf("topic %q partition %d stopped at offset %d: %v", e.Topic, e.Partition, e.Offset, e.Err)
}

func (e *StoppedError) Unwrap() error { return e.Err }

// Run sends until the time is over or nothing is left, as a member of the group for as long. Several runs at once share the partitions; what a run that was killed
// held, a later one takes over after the session time-out, a third of its own time.
//
// The error joins a *StoppedError for each partition that does not go on, and what kept the others from it. ErrDenied is a queue that takes nothing.
func Run(ctx context.Context, log *sdk.Log, q Queue, o Options) (*Report, error) {
	r := &run{log: log, queue: q, o: o, report: &Report{}, atOnce: 1, ids: map[string]string{}, stops: map[sdk.TopicPartition]error{}, offsets: map[sdk.TopicPartition]sdk.CommitOffset{}}
	if err := r.o.complete(); err != nil {
		return r.report, err
	}
	start := r.o.Env.Mono()
	sending, cancel := r.o.Env.WithTimeout(ctx, r.o.Within*9/10)
	defer cancel()
	err := r.all(sending)
	leaving, done := r.o.Env.WithTimeout(context.WithoutCancel(ctx), max(r.o.Within-(r.o.Env.Mono()-start), time.Second))
	defer done()
	return r.report, errors.Join(err, r.end(leaving))
}

type run struct {
	log      *sdk.Log
	queue    Queue
	o        Options
	report   *Report
	consumer *sdk.Consumer
	producer *sdk.Producer
	maxBytes int
	atOnce   int // requests

	ids     map[string]string // of topics, by name
	stops   map[sdk.TopicPartition]error
	offsets map[sdk.TopicPartition]sdk.CommitOffset // to be committed; of what the consumer has held ever since
}

const (
	// wait is how long a Poll waits for records before it is asked whether any are left.
	wait = time.Second
	// pollBytes bounds what is read, and so what is sent again after a crash.
	pollBytes = 1 << 20
)

func (r *run) begin(ctx context.Context) (err error) {
	if r.o.DeadLetters != "" {
		if _, err := r.log.Admin().Topic(ctx, r.o.DeadLetters); err != nil {
			return fmt.Errorf("topic of dead letters: %w", err)
		}
	}
	if r.maxBytes, err = r.queue.MaxBytes(ctx); err != nil {
		return err
	}
	if r.producer, err = r.log.NewProducer(); err != nil {
		return err
	}
	r.consumer, err = r.log.NewConsumer(ctx, r.o.Group, r.o.Topics, sdk.ManualCommit(), sdk.WithClientName("forward"),
		sdk.WithSessionTimeout(min(max(r.o.Within/3, 3*time.Second), 30*time.Second)), sdk.Reading(sdk.WithWait(wait), sdk.WithPollBytes(pollBytes)),
		sdk.OnAssigned(func(_ context.Context, all []sdk.TopicPartition) map[sdk.TopicPartition]int64 {
			for _, at := range all {
				delete(r.ids, at.Topic) // it may have been created anew
				delete(r.offsets, at)   // another may have gone on, or was told to begin anew
				delete(r.stops, at)
			}
			return nil
		}))
	return err
}

// end leaves the group.
func (r *run) end(ctx context.Context) (err error) {
	if r.consumer != nil {
		err = errors.Join(r.commit(ctx), r.consumer.Close(ctx))
	}
	if r.producer != nil {
		err = errors.Join(err, r.producer.Close(ctx))
	}
	for _, stop := range r.stops {
		err = errors.Join(err, stop)
	}
	return err
}

// all sends what there is until nothing is left or ctx is done. It does not join the group for nothing: that would cost a request for each partition.
func (r *run) all(ctx context.Context) (err error) {
	if r.report.Done, err = r.nothingLeft(ctx); err != nil || r.report.Done {
		return err
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	for ctx.Err() == nil {
		fetches, err := r.consumer.Poll(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			if err = r.halted(err); err != nil {
				return err
			}
			continue
		case len(fetches) > 0:
			if err := r.send(ctx, fetches); err != nil {
				return err
			}
			continue
		default:
			if r.report.Done, err = r.nothingLeft(ctx); err != nil && ctx.Err() == nil {
				return err
			}
			if r.report.Done {
				return nil
			}
		}
	}
	return nil
}

// halted notes a partition that cannot be read; what concerns none, and does not pass, is returned.
func (r *run) halted(err error) error {
	var data *sdk.DataError
	var outside *sdk.RangeError
	switch {
	case errors.As(err, &data):
		r.stop(sdk.TopicPartition{Topic: data.Topic, Partition: data.Partition}, data.From, err)
	case errors.As(err, &outside):
		r.stop(sdk.TopicPartition{Topic: outside.Topic, Partition: outside.Partition}, outside.Offset, err)
	case errors.Is(err, sdk.ErrUnreachable), errors.Is(err, sdk.ErrTopicGone):
	default:
		return err
	}
	return nil
}

// stop keeps a partition from going on in this run.
func (r *run) stop(at sdk.TopicPartition, offset int64, err error) {
	r.stops[at] = &StoppedError{at.Topic, at.Partition, offset, err}
	r.consumer.Pause(at)
}

// nothingLeft tells whether the group has read everything, but for what is stopped: so a run ends neither while it waits for partitions that one which was killed
// still holds, nor because what there is takes its time.
func (r *run) nothingLeft(ctx context.Context) (bool, error) {
	d, err := r.log.Admin().DescribeGroup(ctx, r.o.Group, sdk.Earliest)
	switch {
	case errors.Is(err, sdk.ErrUnknownGroup), errors.Is(err, sdk.ErrUnreachable), errors.Is(err, sdk.ErrThrottled):
		return false, nil
	case err != nil:
		return false, err
	}
	reads := map[string]bool{}
	for _, p := range d.Partitions {
		reads[p.Topic] = true
		if p.Lag > 0 && r.stops[p.TopicPartition] == nil && slices.Contains(r.o.Topics, p.Topic) {
			return false, nil
		}
	}
	if r.consumer != nil {
		return true, nil
	}
	return !slices.ContainsFunc(r.o.Topics, func(t string) bool { return !reads[t] }), nil // a topic that the group has not read yet it has still to begin
}
