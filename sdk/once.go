package sdk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/lane"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
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

// NewProducerID makes an id, by the service's clock; over HTTP by this machine's.
func (p *Producer) NewProducerID() ProducerID {
	at, ok := p.log.table.ServiceTime()
	if !ok {
		at = p.log.env.Now()
	}
	return metadata.NewProducerID(at, p.log.env.Uint64())
}

// CheckTopic is ErrTopicGone if the topic of that name, as this producer knows it, is another one than that of the id (Topic.ID): it was created anew. What is
// appended then goes to the one that was checked, or is ErrTopicGone.
func (p *Producer) CheckTopic(ctx context.Context, topic, id string) error {
	now := ""
	for range 2 {
		t, err := p.topic(ctx, topic)
		if err != nil {
			return err
		}
		if now = string(t.row.ID); now != id {
			p.forget(t) // perhaps it is this producer that has not heard of it
		}
		p.mu.Unlock()
		if now == id {
			return nil
		}
	}
	return fmt.Errorf("topic %q: %w: created anew as %s", topic, ErrTopicGone, now)
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
// service may be answered by sending the request again. A ctx that is done before the outcome is known detaches, as in ProduceSync; over HTTP the outcome is
// ErrUnknown then. It keeps no order with Produce.
func (p *Producer) AppendOnce(ctx context.Context, producer ProducerID, sequence int64, records ...*Record) (Once, error) {
	if err := p.log.live(); err != nil {
		return Once{}, err
	}
	return p.appendOnce(ctx, metadata.ProducerStep{ID: producer, Sequence: sequence}, conditions{}, records)
}

// AppendOnceIf is AppendOnce to one partition under conditions, as AppendIf has them. A repeat of a request that was appended is Repeated, and not refused because of its
// own records. After a *ConditionError the sequence is still the next one's. It says that this call has appended nothing; an attempt before it, whose outcome is not
// known, cannot be appended any more either if End or Token is above what it wanted. The records' Topic and Partition are set from the arguments.
func (p *Producer) AppendOnceIf(ctx context.Context, producer ProducerID, sequence int64, topic string, partition int, records []*Record, when ...Condition) (Once, error) {
	if err := p.log.live(); err != nil {
		return Once{}, err
	}
	c, err := toAppendIf(topic, partition, records, when)
	if err != nil {
		return Once{}, err
	}
	return p.appendOnce(ctx, metadata.ProducerStep{ID: producer, Sequence: sequence}, c, records)
}

func (p *Producer) appendOnce(ctx context.Context, step metadata.ProducerStep, when conditions, records []*Record) (Once, error) {
	if err := step.Validate(); err != nil {
		return Once{}, err
	}
	places, room, err := p.placeFresh(ctx, records, func(r *Record, _ *topicHandle) int { return r.Partition })
	if err != nil {
		return Once{}, err
	}
	if err := p.checkMade(ctx, step.ID); err != nil {
		return Once{}, err
	}
	w := newWaiter(records)
	r, err := p.newRequest(step, records, places, w)
	if err != nil {
		return Once{}, err
	}
	r.batches[0].when(when)
	if err := p.turns.enter(ctx, r); err != nil {
		return Once{}, err
	}
	if remote, ok := p.sink.(*remoteSink); ok {
		defer p.turns.leave(r)
		if err := remote.appendOnce(ctx, r); err != nil {
			return Once{}, err
		}
		return Once{Results: w.wait(ctx), Repeated: r.repeated, OffsetsKnown: r.known}, nil
	}
	if err := p.beginOnce(ctx, r, room); err != nil {
		p.turns.leave(r)
		return Once{}, err
	}
	results := w.wait(ctx)
	if err := results.Err(); err != nil {
		return Once{Results: results}, refusalOr(err)
	}
	return Once{Results: results, Repeated: r.repeated, OffsetsKnown: r.known}, nil
}

// producerAhead is how much later than the service's clock an id may say that it was made: as much as a process's idea of that clock may be behind.
const producerAhead = 10 * time.Minute

// checkMade refuses an id of the future. When it made room for another producer, no id would be new enough for the lane until then: a refusal for ever, if it is the
// largest number that somebody could think of.
func (p *Producer) checkMade(ctx context.Context, id ProducerID) error {
	if p.log.remote != nil { // the function will
		return nil
	}
	for asked := false; ; asked = true {
		now, ok := p.log.table.ServiceTime()
		if !ok {
			now = p.log.env.Now()
		}
		if !id.Time().After(now.Add(producerAhead)) {
			return nil
		}
		if asked {
			return &FieldError{Field: "producer id", Value: id.String(), Valid: fmt.Sprintf("one that was given out, and so not made at %s, which is in the future", id.Time().Format(time.RFC3339))}
		}
		if _, _, err := p.log.table.Identity(ctx); err != nil { // what time is it?
			return err
		}
	}
}

// placeFresh is placeAll for records that may name partitions which have come since the topic's row was read: a new lane has told nobody who appends to none of it.
func (p *Producer) placeFresh(ctx context.Context, records []*Record, choose chooser) (places []*partitionHandle, room int, err error) {
	places, room, err = p.placeAll(ctx, records, choose)
	var missing *FieldError
	if !errors.Is(err, ErrNoPartition) || !errors.As(err, &missing) {
		return places, room, err
	}
	t, unknown := p.topic(ctx, missing.Topic)
	if unknown != nil {
		return nil, 0, unknown
	}
	p.mu.Unlock()
	if _, err := p.refresh(ctx, t); err != nil {
		return nil, 0, fmt.Errorf("topic %q: %w", missing.Topic, reachable(err))
	}
	return p.placeAll(ctx, records, choose)
}

// refusalOr is the refusal that a record's error is made of, or the error.
func refusalOr(err error) error {
	var gap *SequenceGapError
	var evicted *ProducerEvictedError
	var crowded *TooManyProducersError
	var field *FieldError
	var refused *ConditionError
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &gap):
		return gap
	case errors.As(err, &evicted):
		return evicted
	case errors.As(err, &crowded):
		return crowded
	case errors.As(err, &field):
		return field
	}
	return err
}

// beginOnce gathers the request, or answers it where the head does so without a commit: a segment that nobody commits would cost a put.
func (p *Producer) beginOnce(ctx context.Context, r *onceRequest, room int) error {
	if p.seen.expects(r) {
		return p.gatherRequest(ctx, r, room)
	}
	within, cancel := p.log.env.WithTimeout(ctx, p.config.deliveryDeadline)
	defer cancel()
	admitted, err := p.admit(within, r)
	switch {
	case err != nil:
		p.mu.Lock()
		defer p.mu.Unlock()
		err = p.deliveryError(r.batches[0], gaveUp(within, err))
		if errors.Is(err, ErrTopicGone) {
			p.forget(r.batches[0].at.topic)
		}
		return refusalOr(err)
	case admitted:
		return p.gatherRequest(ctx, r, room)
	}
	for _, b := range r.batches {
		b.tell()
	}
	p.turns.leave(r)
	return nil
}

// admit reads what the head says to the request. One that was appended before is answered.
func (p *Producer) admit(ctx context.Context, r *onceRequest) (admitted bool, err error) {
	var h *metadata.Head
	err = p.persist(ctx, func() error {
		h, err = p.log.table.Head(ctx, r.lane, metadata.Strong)
		return err
	}, retryTable)
	if err != nil {
		return false, err
	}
	p.observe(h)
	var room int
	var after time.Duration
	switch h.Admit(r.step) {
	case metadata.Admitted:
		return true, nil
	case metadata.Crowded:
		err = p.persist(ctx, func() error {
			room, after, err = lane.MakeRoom(ctx, p.log.table, p.log.env, h)
			return err
		}, retryTable)
		if err != nil || room > 0 {
			return err == nil, err
		}
	}
	return false, p.answer(ctx, r, h, after)
}

// answer is what is said to a request that the head does not admit: nil if it was appended before.
func (p *Producer) answer(ctx context.Context, r *onceRequest, h *metadata.Head, retryAfter time.Duration) error {
	switch h.Admit(r.step) {
	case metadata.Repeated:
		r.repeated = true
		return p.firstAnswer(ctx, r, h)
	case metadata.Gapped:
		return &SequenceGapError{Topic: r.topic, Producer: r.step.ID, Sequence: r.step.Sequence, Expected: h.Expected(r.step.ID)}
	case metadata.Evicted:
		return &ProducerEvictedError{Topic: r.topic, Producer: r.step.ID, Sequence: r.step.Sequence}
	}
	return &TooManyProducersError{Topic: r.topic, Producer: r.step.ID, RetryAfter: retryAfter}
}

// firstAnswer finds out which offsets the request got: from the entry of its order and the footer of the segment. What is in the way of that for good makes them
// unknown; anything else is an error, since the next attempt may find them.
func (p *Producer) firstAnswer(ctx context.Context, r *onceRequest, h *metadata.Head) error {
	for _, b := range r.batches {
		b.base = -1
	}
	order, ok := h.Producers[r.step.ID].Order(r.step.Sequence)
	if !ok {
		return nil
	}
	var entry *metadata.Entry
	var bases metadata.Offsets
	var footer segment.Footer
	err := p.persist(ctx, func() (err error) {
		if entry, bases, err = p.entryAt(ctx, h, order); err == nil && entry != nil {
			footer, err = p.log.footer(ctx, entry.ID)
		}
		return err
	}, func(err error) bool {
		return retryTable(err) || errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrThrottled)
	})
	switch {
	case errors.Is(err, store.ErrNotExist), errors.As(err, new(*segment.FormatError)), err == nil && entry == nil:
		return nil
	case err != nil:
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return r.place(entry, bases, footer)
}

// entryAt is the entry of that order with the offsets before it, or nil if its chunk was let go of.
func (p *Producer) entryAt(ctx context.Context, h *metadata.Head, order int64) (*metadata.Entry, metadata.Offsets, error) {
	entries, ends, first := h.Entries, h.Ends, h.First
	if order < h.First {
		c, err := p.log.table.Chunk(ctx, h.Lane, metadata.ChunkOf(order, h.K), metadata.Strong)
		if errors.Is(err, metadata.ErrNoChunk) {
			return nil, metadata.Offsets{}, nil
		}
		if err != nil {
			return nil, metadata.Offsets{}, err
		}
		entries, ends, first = c.Entries, c.Ends(), c.First
	}
	i := order - first
	if i < 0 || i >= int64(len(entries)) {
		return nil, metadata.Offsets{}, fmt.Errorf("%w: lane %s has no entry of order %d", metadata.ErrCorrupt, h.Lane, order)
	}
	return &entries[i], metadata.Bases(entries, ends)[i], nil
}

// place sets the bases of the request's batches by what the segment says that it has of the request. Producer.mu is held.
func (r *onceRequest) place(entry *metadata.Entry, bases metadata.Offsets, footer segment.Footer) error {
	found := 0
	for i := range footer.Extents {
		e := &footer.Extents[i]
		if e.Lane != string(r.lane) {
			continue
		}
		if e.ProducerID == int64(r.step.ID) && e.Sequence == r.step.Sequence {
			found++
			j := slices.IndexFunc(r.batches, func(b *batch) bool {
				return b.at.index == int(e.Partition) && b.at.topic.row.ID == e.Topic && int64(len(b.records)) == e.Count
			})
			if j < 0 {
				return r.others(fmt.Sprintf("%d records of partition %d", e.Count, e.Partition))
			}
			b := r.batches[j]
			b.base = bases[e.Slot]
			if b.at.topic.row.Config.TimeType == segment.LogAppendTime {
				b.stamp = entry.ID.Time()
			}
		}
		bases[e.Slot] += e.Count
	}
	if found != len(r.batches) {
		return r.others(fmt.Sprintf("%d partitions", found))
	}
	r.known = true
	return nil
}

// others is the error for a repeat that brings other records than the first attempt.
func (r *onceRequest) others(had string) error {
	return &FieldError{Topic: r.topic, Partition: r.batches[0].at.index, Field: "records", Value: fmt.Sprintf("%d partitions, the first with %d records", len(r.batches), len(r.batches[0].records)),
		Valid: fmt.Sprintf("those with which producer %d sent sequence %d first: it had %s. Other records need a sequence of their own", r.step.ID, r.step.Sequence, had)}
}
