package sdk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/metadata"
)

// ProducerID names a producer whose requests may be repeated by any process. Ids are ordered by time.
type ProducerID = metadata.ProducerID

// Errors of AppendOnce. Each means that this call has appended nothing.
var (
	// ErrSequenceGap: an earlier request of the producer is missing; a *SequenceGapError.
	ErrSequenceGap = errors.New("an earlier request of the producer was not appended")
	// ErrProducerEvicted: the lane no longer knows the producer, or never knew it and has forgotten younger ones. Whether an earlier attempt of the request was
	// appended cannot be told. Who knows that there was none takes a new id and begins with sequence 1; a *ProducerEvictedError.
	ErrProducerEvicted = errors.New("cannot verify whether the request was appended before: too old")
	// ErrTooManyProducers: as many producers as a lane remembers were active in it lately; a *TooManyProducersError.
	ErrTooManyProducers = errors.New("too many producers in the lane")
)

// SequenceGapError is ErrSequenceGap. Expected is the sequence that the lane wants next.
type SequenceGapError struct {
	Topic              string
	Producer           ProducerID
	Sequence, Expected int64
}

func (e *SequenceGapError) Error() string {
	return fmt.Sprintf("topic %q: producer %d, sequence %d: %v, expected is %d", e.Topic, e.Producer, e.Sequence, ErrSequenceGap, e.Expected)
}

func (e *SequenceGapError) Unwrap() error { return ErrSequenceGap }

// ProducerEvictedError is ErrProducerEvicted.
type ProducerEvictedError struct {
	Topic    string
	Producer ProducerID
	Sequence int64
}

func (e *ProducerEvictedError) Error() string {
	return fmt.Sprintf("topic %q: producer %d, sequence %d: %v; if it was never sent before, send it as sequence 1 of a new producer id", e.Topic, e.Producer, e.Sequence, ErrProducerEvicted)
}

func (e *ProducerEvictedError) Unwrap() error { return ErrProducerEvicted }

// TooManyProducersError is ErrTooManyProducers. RetryAfter is when the one that has been idle longest may make room, if it stays idle.
type TooManyProducersError struct {
	Topic      string
	Producer   ProducerID
	RetryAfter time.Duration
}

func (e *TooManyProducersError) Error() string {
	return fmt.Sprintf("topic %q: producer %d: %v: %d were active within %v; try again in %v, use fewer producers, or more lanes",
		e.Topic, e.Producer, ErrTooManyProducers, metadata.MaxProducers, metadata.ProducerIdle, e.RetryAfter)
}

func (e *TooManyProducersError) Unwrap() error { return ErrTooManyProducers }

// Once is the answer to AppendOnce.
type Once struct {
	Results      Results
	Repeated     bool // the request was appended before; Results are of that time
	OffsetsKnown bool // false: appended, but where is no longer known, and all offsets are -1
}

// NewProducerID makes an id, by the service's clock.
func (p *Producer) NewProducerID() ProducerID {
	at, ok := p.log.table.ServiceTime()
	if !ok {
		at = p.log.env.Now()
	}
	return metadata.NewProducerID(at, p.log.env.Uint64())
}

// KeyPartitionOnce is the partition of a key for AppendOnce, as KeyPartitioner chooses it. It is ErrInvalid when the topic has grown in a way that moved the key to
// another lane: an earlier attempt of the request may have gone to the lane where the key was then, and a repeat would not be recognised. The partition has to be
// given explicitly then.
func (p *Producer) KeyPartitionOnce(ctx context.Context, topic string, key []byte) (int, error) {
	t, err := p.topic(ctx, topic)
	if err != nil {
		return 0, err
	}
	row := t.row
	p.mu.Unlock()
	now := keyPartition(key, row.Partitions)
	for _, g := range row.History {
		if before := keyPartition(key, g.Partitions); row.Place(before).Lane != row.Place(now).Lane {
			return 0, &FieldError{Topic: topic, Partition: now, Field: "partition", Value: "by key",
				Valid: fmt.Sprintf("explicit: the topic has grown, and the key was in partition %d, of another lane", before)}
		}
	}
	return now, nil
}

// AppendOnce appends the records as the producer's request number sequence (1, 2, 3 … for each producer and lane), all or none, once: whoever does not know what
// became of it sends it again, from any process and at any time, with the same arguments. It must touch one lane (a *FieldError otherwise), and takes each record's
// partition from its field Partition: a repeat that chose anew might go elsewhere. Requests that wait together share a segment and a commit.
//
// A repeat appends nothing and has the first answer (Repeated): with its offsets if it is one of the producer's last 5 in the lane and the segment is still as it was
// written, otherwise without (OffsetsKnown false, offsets -1). Refusals are ErrSequenceGap, ErrProducerEvicted, ErrTooManyProducers. ErrUnknown and every error of a
// service may be answered by sending the request again. A ctx that is done before the outcome is known detaches, as in ProduceSync. It keeps no order with Produce.
func (p *Producer) AppendOnce(ctx context.Context, producer ProducerID, sequence int64, records ...*Record) (Once, error) {
	return Once{}, fmt.Errorf("append once: %w", ErrNotSupported)
}
