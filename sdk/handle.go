package sdk

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/varvelog/varve/metadata/group"
	"github.com/varvelog/varve/segment"
)

// Handler handles one record. Its ctx ends when the partition is another member's, or Handle's ctx does.
type Handler func(ctx context.Context, r *Record) error

// Handle reads topics as a member of a group and calls handle for each record, partitions beside one another, until ctx is done; then it returns ctx's error.
// What is committed is the unbroken run of records that are finished: handled, or parked after their attempts. So each is handled at least once.
func (l *Log) Handle(ctx context.Context, group string, topics []string, handle Handler, opts ...HandleOption) error {
	config := defaultHandleConfig()
	for _, o := range opts {
		o(&config)
	}
	if err := config.check(); err != nil {
		return err
	}
	for _, d := range config.retry {
		name := RetryTopic(group, d)
		_, err := l.Admin().CreateTopic(ctx, NewTopic{Name: name})
		if errors.Is(err, ErrNotSupported) { // over HTTP it has to be there
			_, err = l.Admin().Topic(ctx, name)
		}
		if err != nil && !errors.Is(err, ErrTopicExists) {
			return err
		}
		topics = append(topics, name)
	}
	within, cancel := context.WithCancel(ctx)
	h := &handling{log: l, group: group, config: config, handle: handle, ctx: within, queues: map[TopicPartition]*queue{}}
	c, err := l.NewConsumer(ctx, group, topics, append(slices.Clone(config.consumer), ManualCommit(), OnAssigned(h.assigned), OnRevoked(h.revoked), OnLost(h.lost))...)
	if err != nil {
		cancel()
		return err
	}
	h.consumer = c
	var committing sync.WaitGroup
	committing.Go(h.commitNowAndThen)
	err = h.poll()
	// What is under way is told to stop, and what is finished by then is committed by revoked, which Close calls.
	cancel()
	committing.Wait()
	leaving, done := l.env.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer done()
	return errors.Join(err, c.Close(leaving))
}

// leaveTimeout bounds the last commits and the leaving of the group.
const leaveTimeout = 30 * time.Second

// handling is one Handle.
type handling struct {
	log      *Log
	group    string
	config   handleConfig
	handle   Handler
	consumer *Consumer
	ctx      context.Context

	mu     sync.Mutex
	queues map[TopicPartition]*queue
}

func (h *handling) poll() error {
	for {
		fetches, err := h.consumer.Poll(h.ctx)
		switch {
		case err == nil, errors.Is(err, ErrUnreachable), errors.Is(err, ErrTopicGone):
		default:
			return err
		}
		for _, f := range fetches {
			if q := h.queue(TopicPartition{f.Topic, f.Partition}); q != nil {
				q.add(f.Records)
			}
		}
	}
}

func (h *handling) queue(at TopicPartition) *queue {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.queues[at]
}

func (h *handling) assigned(_ context.Context, all []TopicPartition) map[TopicPartition]int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, at := range all {
		h.queues[at] = newQueue(h, at)
	}
	h.consumer.mu.Lock()
	defer h.consumer.mu.Unlock()
	for _, at := range all {
		if p, own, err := h.consumer.find(at); err == nil {
			h.queues[at].partition, h.queues[at].lease = p, own.lease
		}
	}
	return nil
}

// revoked lets the handlers of the partitions come to an end, and commits what is finished.
func (h *handling) revoked(ctx context.Context, all []TopicPartition) {
	queues := h.take(all)
	for _, q := range queues {
		q.halt()
	}
	for _, q := range queues {
		q.ended(ctx)
		q.cancel()
	}
	h.commit(ctx, queues...)
}

// lost tells the handlers to stop. One that does not listen keeps the others waiting for the revoke time-out, not for ever.
func (h *handling) lost(ctx context.Context, all []TopicPartition) {
	limited, cancel := h.log.env.WithTimeout(ctx, h.consumer.config.revoke)
	defer cancel()
	queues := h.take(all)
	for _, q := range queues {
		q.halt()
		q.cancel()
	}
	for _, q := range queues {
		q.ended(limited)
	}
}

// share is how many bytes may wait in one queue.
func (h *handling) share() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return handleBytes / int64(max(len(h.queues), 1))
}

// take takes the partitions' queues out.
func (h *handling) take(all []TopicPartition) (queues []*queue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, at := range all {
		if q := h.queues[at]; q != nil {
			delete(h.queues, at)
			queues = append(queues, q)
		}
	}
	return queues
}

func (h *handling) commitNowAndThen() {
	for h.log.env.Sleep(h.ctx, h.config.commit) == nil {
		h.mu.Lock()
		var all []*queue
		for _, q := range h.queues {
			all = append(all, q)
		}
		h.mu.Unlock()
		h.commit(h.ctx, all...)
	}
}

// commit commits what is finished, by the lease under which it was read: between a look at the queues and this a partition can be lost by a reset and claimed
// anew, and what was finished before must not undo the reset. What fails is tried again with what comes after it.
func (h *handling) commit(ctx context.Context, queues ...*queue) {
	var offsets []group.Offset
	var of []*queue
	for _, q := range queues {
		if next, news := q.finishedNext(); news {
			offsets = append(offsets, group.Offset{Partition: q.partition, Lease: q.lease, Offset: next})
			of = append(of, q)
		}
	}
	if h.consumer.commit(ctx, offsets) != nil {
		return
	}
	for i, q := range of {
		q.committedTo(offsets[i].Offset)
	}
}

// finish handles a record until it is finished; false when ctx ends before.
func (h *handling) finish(ctx context.Context, r *Record) bool {
	if !h.wait(ctx, r) {
		return false
	}
	before, _ := strconv.Atoi(header(r, HeaderAttempts))
	pause := h.config.pauses[0]
	for n := 1; ; n++ {
		err := h.handle(ctx, r)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if n >= h.config.attempts && h.park(ctx, r, before+n, err) {
			return true
		}
		if h.log.env.Sleep(ctx, h.log.env.Jitter(pause)) != nil {
			return false
		}
		pause = min(2*pause, h.config.pauses[1])
	}
}

// wait waits until a parked record is due.
func (h *handling) wait(ctx context.Context, r *Record) bool {
	due, err := strconv.ParseInt(header(r, HeaderNotBefore), 10, 64)
	return err != nil || h.log.env.Sleep(ctx, time.UnixMilli(due).Sub(h.log.env.Now())) == nil
}

// park puts a record aside whose attempts have failed: into the retry topic of the next delay, or to the dead letters. false when there is no such place, or
// it could not be reached: then it is tried again.
func (h *handling) park(ctx context.Context, r *Record, attempts int, why error) bool {
	parked := &Record{Topic: h.config.dead, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp, Headers: h.origin(r)}
	add := func(name, value string) {
		parked.Headers = append(parked.Headers, segment.Header{Key: name, Value: []byte(value)})
	}
	text := why.Error()
	add(HeaderError, text[:min(len(text), 1<<10)])
	add(HeaderAttempts, strconv.Itoa(attempts))
	if delay, ok := h.next(r.Topic); ok {
		parked.Topic = RetryTopic(h.group, delay)
		add(HeaderNotBefore, strconv.FormatInt(h.log.env.Now().Add(delay+time.Millisecond-1).UnixMilli(), 10))
	}
	return parked.Topic != "" && h.config.producer.ProduceSync(ctx, parked).Err() == nil
}

// next is the delay after that of the topic.
func (h *handling) next(topic string) (time.Duration, bool) {
	at := slices.IndexFunc(h.config.retry, func(d time.Duration) bool { return RetryTopic(h.group, d) == topic })
	if at+1 < len(h.config.retry) {
		return h.config.retry[at+1], true
	}
	return 0, false
}

// origin is a record's headers without those of an earlier parking, and with where it was read first.
func (h *handling) origin(r *Record) (headers []segment.Header) {
	topic, partition, offset := r.Topic, strconv.Itoa(r.Partition), strconv.FormatInt(r.Offset, 10)
	if header(r, HeaderOriginTopic) != "" && header(r, HeaderNotBefore) != "" {
		topic, partition, offset = header(r, HeaderOriginTopic), header(r, HeaderOriginPartition), header(r, HeaderOriginOffset)
	}
	for _, x := range r.Headers {
		if !slices.Contains([]string{HeaderOriginTopic, HeaderOriginPartition, HeaderOriginOffset, HeaderError, HeaderAttempts, HeaderNotBefore}, x.Key) {
			headers = append(headers, x)
		}
	}
	for _, x := range [][2]string{{HeaderOriginTopic, topic}, {HeaderOriginPartition, partition}, {HeaderOriginOffset, offset}} {
		headers = append(headers, segment.Header{Key: x[0], Value: []byte(x[1])})
	}
	return headers
}

// header is the value of the last header of a name.
func header(r *Record, name string) string {
	for _, x := range slices.Backward(r.Headers) {
		if x.Key == name {
			return string(x.Value)
		}
	}
	return ""
}
