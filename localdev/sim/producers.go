package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// Send is Producer.Produce.
type Send func(ctx context.Context, p *sdk.Producer, r *sdk.Record, promise func(*sdk.Record, error))

func plainly(ctx context.Context, p *sdk.Producer, r *sdk.Record, promise func(*sdk.Record, error)) {
	p.Produce(ctx, r, promise)
}

// appender is a process that appends.
type appender struct {
	*Process
	topic    string
	log      *sdk.Log
	producer *sdk.Producer
	send     Send
	slow     bool // it dawdles over promises
	number   int
	own      *cursor // of the reader in the same process, nil if there is none; under mu
}

// appender opens a producer, or returns nil if the process dies before.
func (p *Process) appender(topic string) *appender {
	log := p.Open()
	if log == nil {
		return nil
	}
	c := p.Chance("producer")
	codec := []segment.Codec{segment.None, segment.LZ4}[c.Below(2)]
	small := []int{0, 300, 4000}[c.Below(3)] // none, some, all
	if p.life.Bucket {
		small = 0
	}
	producer, err := log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()), sdk.WithCompression(codec),
		sdk.WithDeliveryDeadline(c.Within(6*time.Second, 20*time.Second)),
		sdk.WithLinger(c.Within(0, 10*time.Millisecond), c.Within(10*time.Millisecond, 60*time.Millisecond)),
		sdk.WithBufferBytes(1<<17), sdk.WithMaxInFlight(1+c.Below(5)),
		sdk.WithSmallSegments(small))
	p.world.must(err)
	a := &appender{Process: p, topic: topic, log: log, producer: producer, send: plainly, slow: c.OneIn(3)}
	if f := p.world.scenario.Without.Send; f != nil {
		a.send = f(a.send)
	}
	p.AtEnd(func(ctx context.Context) { producer.Close(ctx) })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.appending = a
	return a
}

// record is the next record for a partition, and its place in the history.
func (a *appender) record(partition int, with *Together) (*sdk.Record, *Op) {
	return a.recordTo(a.topic, partition, with)
}

func (a *appender) recordTo(topic string, partition int, with *Together) (*sdk.Record, *Op) {
	value := fmt.Sprintf("%s/%d", a.Name, a.number)
	a.number++
	return &sdk.Record{Topic: topic, Partition: partition, Value: []byte(value)}, a.world.Invoke(a.Name, Partition{topic, partition}, value, with)
}

// valueHeader is where a tombstone carries what tells it from others.
const valueHeader = "value"

// valueOf is what tells a record from all others.
func valueOf(value []byte, headers []segment.Header) string {
	if value == nil && len(headers) > 0 {
		value = headers[0].Value
	}
	return string(value)
}

// together records what a call that appends all or none has returned, if the process lives to learn of it.
func (a *appender) together(records []*sdk.Record, t *Together, err error) {
	now := a.world.clock()
	if !a.Rest(a.Chance("told").Within(1, 10*time.Microsecond)) {
		return
	}
	for i, o := range t.Ops {
		a.world.Accept(o)
		a.world.Tell(o, now, records[i].Offset, err)
	}
}

// appends is the process's producer, nil before it is open.
func (p *Process) appends() *appender {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.appending
}

// Producer appends records one by one, in bursts of a few to a few partitions.
type Producer struct {
	Name   string
	Topic  string
	Bursts int
	Reads  bool // its processes follow the topic, too

	Also []string // topics to which it appends as well, in bursts of their own
	Keys int      // its records have one of so many keys, and one in five is a tombstone; 0: they have none
	Lull int      // before one burst in so many hours go by; 0: never
}

// Play implements Actor.
func (x *Producer) Play(w *World) {
	w.Lives(x.Name, Life{}, x.Bursts, func(p *Process, left int) {
		a := p.appender(x.Topic)
		if a == nil {
			return
		}
		if x.Reads {
			a.accompany()
		}
		a.bursts(x, left)
	})
}

// bursts plays so many bursts, or as many as the process lives to begin. Then it waits until all is told.
func (a *appender) bursts(x *Producer, left int) {
	for ; left > 0 && a.Rest(pauses(a.Chance("burst"), x.Lull)); left-- {
		a.Turn()
		c := a.Chance("records")
		for _, topic := range append([]string{a.topic}, x.Also...) {
			for _, partition := range c.Some(1+c.Below(3), a.world.Partitions(topic)) {
				for range 1 + c.Below(3) {
					a.produceTo(a.ctx, topic, partition, x.Keys)
				}
			}
		}
	}
	a.producer.Flush(a.ctx) // ends with the process at the latest
}

// lullMost is the longest of the lulls.
const lullMost = 8 * time.Hour

// pauses is how long somebody waits until it appends again; once in lull for hours.
func pauses(c Chance, lull int) time.Duration {
	d := c.Within(time.Millisecond, 1500*time.Millisecond)
	if c.OneIn(lull) {
		d += c.Within(0, lullMost)
	}
	return d
}

// produce sends the next record.
func (a *appender) produce(ctx context.Context, partition int) *Op {
	return a.produceTo(ctx, a.topic, partition, 0)
}

// produceTo sends the next record to a topic, with one of so many keys, or none for 0.
func (a *appender) produceTo(ctx context.Context, topic string, partition, keys int) *Op {
	r, o := a.recordTo(topic, partition, nil)
	if keys > 0 {
		c := a.Chance("key")
		r.Key = fmt.Appendf(nil, "k%d", c.Below(keys))
		if c.OneIn(5) {
			r.Headers, r.Value = []sdk.Header{{Key: valueHeader, Value: r.Value}}, nil
		}
	}
	a.send(ctx, a.producer, r, a.promise(o))
	a.world.Accept(o)
	return o
}

// promise is told what became of the record. A dead process is told nothing. It takes a moment, so that who waited for the room that is free now comes
// before it.
func (a *appender) promise(o *Op) func(*sdk.Record, error) {
	return func(r *sdk.Record, err error) {
		now, c := a.world.clock(), a.Chance("told "+o.Value)
		if !a.Rest(c.Within(1, 10*time.Microsecond)) {
			return
		}
		a.world.Tell(o, now, r.Offset, err)
		if a.slow && c.OneIn(4) {
			a.world.Sleep(c.Within(0, 200*time.Millisecond))
		}
	}
}

// Prove implements Actor: a record gets into every partition. The first shows the producer which there are.
func (x *Producer) Prove(w *World) {
	p := w.Living(x.Name)
	if p == nil || p.appends() == nil {
		return
	}
	ctx, cancel := w.env.WithTimeout(context.Background(), Soon)
	defer cancel()
	a, ops := p.appends(), []*Op(nil)
	if w.wasDeleted(x.Topic) { // which the producer learns by one that is refused
		a.produce(ctx, 0)
		a.flush(ctx)
	}
	for partition := range w.Partitions(x.Topic) {
		ops = append(ops, a.produce(ctx, partition))
		if partition == 0 {
			a.flush(ctx)
		}
	}
	a.flush(ctx)
	a.proven(ops)
	if x.Reads {
		a.reading().prove(w)
	}
}

func (a *appender) flush(ctx context.Context) {
	if err := a.producer.Flush(ctx); err != nil {
		a.world.Bad(About{By: a.Name}, "%s cannot flush, though nothing fails any more: %v", a.Name, err)
	}
}

// proven reports what was not acknowledged.
func (a *appender) proven(ops []*Op) {
	for _, o := range ops {
		if o.Outcome() != sdk.Applied {
			a.world.Bad(o.about(), "%v: %v, though nothing fails any more", o, o.Err)
		}
	}
}
