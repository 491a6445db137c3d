package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

// Callers are clients that have their requests appended by whichever gateway there is, and know nothing of what becomes of a gateway: they wait a moment for the
// answer, and then send the request again, as it is, to the same one or another, or to two at once. In one run of three they are idle half-way for so long that others,
// who come late, take their places; in the others only so many come as a lane has places for.
type Callers struct {
	Name, Topic string
	Clients     int
	Gateways    int
	Requests    int  // of each client
	Busy        bool // they are never idle

	clients    []*client
	partitions int // to which they append, of one lane
}

// client is one of them. Nothing befalls its own process.
type client struct {
	*Process
	of       *Callers
	id       sdk.ProducerID
	sequence int64 // of the last that was answered
	number   int
	ends     map[int]int64 // of partitions, as far as it has heard
}

// Play implements Actor.
func (x *Callers) Play(w *World) {
	row, err := w.table().Topic(context.Background(), x.Topic)
	w.must(err)
	x.partitions = min(4, row.Partitions, row.LaneWidth)
	done := make(chan struct{})
	var gateways, clients sync.WaitGroup
	for i := range x.Gateways {
		gateways.Go(func() {
			w.Lives(x.gateway(i), Life{}, 1, func(p *Process, _ int) {
				if p.appender(x.Topic) == nil {
					return
				}
				select {
				case <-done:
					p.Turn()
				case <-p.ctx.Done():
				}
			})
		})
	}
	early := min(x.Clients, metadata.MaxProducers-2)
	idle, n := !x.Busy && w.Chance(x.Name, "idle").OneIn(3), early
	if idle {
		n = x.Clients
	}
	for i := range n {
		c := &client{Process: w.Start(fmt.Sprintf("%s.c%d", x.Name, i), Life{Safe: true}), of: x, ends: map[int]int64{}}
		x.clients = append(x.clients, c)
		lull := 0 // before the request of this number, if it is idle
		if i < early {
			lull = x.Requests / 2
		}
		if !idle {
			lull = x.Requests
		}
		clients.Go(func() { c.play(lull) })
	}
	clients.Wait()
	close(done)
	gateways.Wait()
}

func (x *Callers) gateway(i int) string { return fmt.Sprintf("%s.g%d", x.Name, i) }

// play sends the client's requests. It is idle before the one of that number.
func (c *client) play(lull int) {
	c.renew()
	for n := range c.of.Requests {
		d := c.Chance("request").Within(time.Millisecond, 1500*time.Millisecond)
		if n == lull {
			d += c.Chance("lull").Within(26*time.Minute, 29*time.Minute)
		}
		c.Rest(d)
		c.request()
	}
}

// renew makes the client another producer.
func (c *client) renew() {
	c.id, c.sequence = metadata.NewProducerID(c.world.clock(), c.Chance("producer id").Uint64()), 0
}

// reply is what a gateway said.
type reply struct {
	once    sdk.Once
	records []*sdk.Record
	err     error
}

// request sends the next request until there is an answer.
func (c *client) request() {
	t, at := &Together{}, c.Chance("partitions").Some(1+c.Chance("several").Below(2), c.of.partitions)
	if len(at) == 1 && c.Chance("condition").OneIn(3) {
		end := c.ends[at[0]]
		t.End = &end
	}
	for range 1 + c.Chance("records").Below(3) {
		for _, partition := range at {
			value := fmt.Sprintf("%s/%d", c.Name, c.number)
			c.number++
			c.world.Invoke(c.Name, Partition{c.of.Topic, partition}, value, t)
		}
	}
	replies := make(chan reply, 4*patience)
	for tried := 0; tried < patience; {
		if c.of.standing(c.world) {
			c.Rest(c.Chance("all stand").Within(time.Minute, 2*time.Minute))
		} else {
			tried++
		}
		c.send(t, replies)
		if c.answered(t, replies) {
			return
		}
	}
	c.world.Bad(t.Ops[0].about(), "%v, sequence %d: no answer to %d attempts", t.Ops[0], c.sequence+1, patience)
}

// patience is how often a client sends a request before it takes it for lost.
const patience = 400

// standing says whether all gateways that live are frozen, perhaps for hours: nobody answers then, which is no gateway's fault.
func (x *Callers) standing(w *World) bool {
	for i := range x.Gateways {
		if p := w.Living(x.gateway(i)); p != nil && !p.Frozen() {
			return false
		}
	}
	return true
}

// send sends the request to one gateway or two. Each has records of its own.
func (c *client) send(t *Together, replies chan<- reply) {
	c.Rest(c.Chance("again").Within(time.Millisecond, 300*time.Millisecond))
	id, sequence := c.id, c.sequence+1
	for _, i := range c.Chance("gateways").Some(1+c.Chance("twice").Below(2), c.of.Gateways) {
		p := c.world.Living(c.of.gateway(i))
		if p == nil || p.appends() == nil {
			continue
		}
		a := p.appends()
		var records []*sdk.Record
		for _, o := range t.Ops {
			records = append(records, &sdk.Record{Topic: o.Partition.Topic, Partition: o.Partition.Number, Value: []byte(o.Value)})
		}
		c.Rest(c.Chance("sent").Within(1, 5*time.Millisecond))
		c.world.drivers.Go(func() {
			once, err := appendOnce(a, id, sequence, t, records)
			if a.Rest(a.Chance("answer to "+t.Ops[0].Value).Within(1, 10*time.Microsecond)) {
				replies <- reply{once, records, err}
			}
		})
	}
}

// appendOnce is the request, under its condition if it has one.
func appendOnce(a *appender, id sdk.ProducerID, sequence int64, t *Together, records []*sdk.Record) (sdk.Once, error) {
	if t.End == nil {
		return a.producer.AppendOnce(a.ctx, id, sequence, records...)
	}
	to := t.Ops[0].Partition
	return a.producer.AppendOnceIf(a.ctx, id, sequence, to.Topic, to.Number, records, sdk.EndIs(*t.End))
}

// answered waits a moment for a reply, and tells whether the request is over.
func (c *client) answered(t *Together, replies <-chan reply) bool {
	var r reply
	wait, stop := c.world.env.After(c.Chance("patience").Within(20*time.Millisecond, 2*time.Second))
	defer stop()
	select {
	case r = <-replies:
	case <-wait:
		return false
	}
	c.Rest(c.Chance("told").Within(1, 10*time.Microsecond))
	var refused *sdk.ConditionError
	switch {
	case errors.As(r.err, &refused) && refused.End > *t.End: // no attempt that is under way still can be applied any more
		c.world.Count("once: condition refused")
		c.ends[refused.Partition] = refused.End
		c.told(t, r, r.err)
		return true
	case r.err == nil && r.once.Repeated && r.once.OffsetsKnown:
		c.world.Count("once: repeated")
	case r.err == nil && r.once.Repeated:
		c.world.Count("once: repeated, offsets not known")
	case r.err == nil:
		c.world.Count("once: applied")
	case errors.Is(r.err, sdk.ErrProducerEvicted):
		c.world.Count("once: evicted")
		c.told(t, r, fmt.Errorf("%w: %w", sdk.ErrUnknown, r.err))
		c.renew()
		return true
	case errors.Is(r.err, sdk.ErrTooManyProducers):
		c.world.Count("once: too many producers")
		c.Rest(c.Chance("room").Within(30*time.Second, 3*time.Minute))
		return false
	case errors.Is(r.err, sdk.ErrSequenceGap), errors.Is(r.err, sdk.ErrInvalid):
		c.world.Bad(t.Ops[0].about(), "%v, sequence %d: %v", t.Ops[0], c.sequence+1, r.err)
		c.told(t, r, r.err)
		c.renew()
		return true
	default:
		return false
	}
	c.told(t, r, nil)
	if t.End != nil {
		c.world.Count("once: condition held")
	}
	for _, x := range r.records {
		if r.once.OffsetsKnown {
			c.ends[x.Partition] = max(c.ends[x.Partition], x.Offset+1)
		}
	}
	c.sequence++
	return true
}

func (c *client) told(t *Together, r reply, err error) {
	now := c.world.clock()
	for i, o := range t.Ops {
		c.world.Accept(o)
		c.world.Tell(o, now, r.records[i].Offset, err)
	}
}

// Prove implements Actor: a client that is known, or becomes so, gets an answer.
func (x *Callers) Prove(w *World) {
	living := false
	for i := range x.Gateways {
		living = living || w.Living(x.gateway(i)) != nil
	}
	if !living {
		return
	}
	c := x.clients[0]
	if c.sequence == 0 { // it is nobody's producer yet, and may have to wait until another has been idle for long
		c.request()
	}
	from := w.Now()
	c.request()
	if d := w.Now() - from; d > Soon+2*time.Minute { // some of which it may have waited for room
		w.Bad(About{By: c.Name}, "%s got an answer after %v only, though nothing fails any more", c.Name, d)
	}
}
