package sim

import (
	"errors"

	"github.com/varvelog/varve/sdk"
)

// The actors of this file append several records together, all or none: where the end is as they believe it to be, as long as they hold a fence, or to
// several lanes at once.

// Comparer appends to one partition only at the end that it knows.
type Comparer struct {
	Name, Topic string
	Partition   int
	Appends     int
	Lull        int // as of a Producer
}

// Play implements Actor.
func (x *Comparer) Play(w *World) {
	w.turns(x.Name, x.Topic, x.Appends, x.Lull, func(a *appender) func() {
		end := int64(-1)
		return func() { end, _ = a.appendAt(x.Partition, end) }
	})
}

// Prove implements Actor: it appends at the end that it reads.
func (x *Comparer) Prove(w *World) {
	w.prove(x.Name, func(a *appender) *Together {
		_, t := a.appendAt(x.Partition, -1)
		return t
	})
}

// Holder appends to one partition under a fencing token, which it takes from whoever has it, now and then.
type Holder struct {
	Name, Topic string
	Partition   int
	Appends     int
	Lull        int // as of a Producer
}

// Play implements Actor.
func (x *Holder) Play(w *World) {
	w.turns(x.Name, x.Topic, x.Appends, x.Lull, func(a *appender) func() {
		token := int64(0)
		return func() { token, _ = a.appendUnder(x.Partition, token) }
	})
}

// Prove implements Actor: it takes the fence and appends under it.
func (x *Holder) Prove(w *World) {
	w.prove(x.Name, func(a *appender) *Together {
		_, t := a.appendUnder(x.Partition, 0)
		return t
	})
}

// Transactor appends to several partitions, and so lanes, at once.
type Transactor struct {
	Name, Topic string
	Appends     int
	Lull        int // as of a Producer
}

// Play implements Actor.
func (x *Transactor) Play(w *World) {
	w.turns(x.Name, x.Topic, x.Appends, x.Lull, func(a *appender) func() {
		return func() { a.appendAtomic(w.Partitions(x.Topic)) }
	})
}

// Prove implements Actor: it appends to several at once. The first shows it how far the topic has grown.
func (x *Transactor) Prove(w *World) {
	w.prove(x.Name, func(a *appender) *Together { return a.appendAtomic(2) })
	w.prove(x.Name, func(a *appender) *Together { return a.appendAtomic(w.Partitions(x.Topic)) })
}

// turns plays so many turns of a part that appends, hours apart after one in lull; begin begins a life of it.
func (w *World) turns(part, topic string, turns, lull int, begin func(*appender) (turn func())) {
	w.Lives(part, Life{}, turns, func(p *Process, left int) {
		a := p.appender(topic)
		if a == nil {
			return
		}
		for turn := begin(a); left > 0 && a.Rest(pauses(a.Chance("turn"), lull)); left-- {
			a.Turn()
			turn()
		}
	})
}

// prove reports the part, if it lives, when it cannot append.
func (w *World) prove(part string, once func(*appender) *Together) {
	p := w.Living(part)
	if p == nil || p.appends() == nil {
		return
	}
	if t := once(p.appends()); t != nil {
		p.appends().proven(t.Ops)
	} else {
		w.Bad(About{By: p.Name}, "%s cannot append, though nothing fails any more", p.Name)
	}
}

// records are a few for a partition.
func (a *appender) records(partition int, t *Together) (records []*sdk.Record) {
	for range 1 + a.Chance("several").Below(3) {
		r, _ := a.record(partition, t)
		records = append(records, r)
	}
	return records
}

// appendAt appends a few records where the end is; -1 is one that must be read first. It returns the end as it is then, -1 if that is not known.
func (a *appender) appendAt(partition int, end int64) (next int64, _ *Together) {
	if end < 0 {
		asked := a.world.clock()
		offsets, err := a.log.Admin().Offsets(a.ctx, a.topic)
		if !a.Rest(1) || err != nil {
			return -1, nil
		}
		for i, o := range offsets {
			a.world.ReadEnd(a.Name, Partition{a.topic, i}, asked, o.End)
		}
		end = offsets[partition].End
	}
	t := &Together{End: &end}
	records := a.records(partition, t)
	err := a.producer.AppendIf(a.ctx, a.topic, partition, records, sdk.EndIs(end))
	a.together(records, t, err)
	var refused *sdk.ConditionError
	switch {
	case err == nil:
		return end + int64(len(records)), t
	case errors.As(err, &refused):
		return refused.End, t
	}
	return -1, t
}

// appendUnder appends a few records under the token, 0 being one that must be taken first, and returns the token that the process still has.
func (a *appender) appendUnder(partition int, token int64) (int64, *Together) {
	if token == 0 || a.Chance("take over").OneIn(8) {
		if token = a.takeFence(partition); token == 0 {
			return 0, nil
		}
	}
	t := &Together{Token: token}
	records := a.records(partition, t)
	err := a.producer.AppendIf(a.ctx, a.topic, partition, records, sdk.TokenIs(token))
	a.together(records, t, err)
	if errors.Is(err, sdk.ErrRefused) {
		token = 0
	}
	return token, t
}

// takeFence raises the partition's token and returns it, or 0 if that did not succeed.
func (a *appender) takeFence(partition int) int64 {
	admin, at, asked := a.log.Admin(), Partition{a.topic, partition}, a.world.clock()
	now, err := admin.Fence(a.ctx, a.topic, partition)
	if err != nil || !a.Rest(1) {
		return 0
	}
	a.world.ReadToken(a.Name, at, asked, now)
	to := now + 1 + a.Chance("token").Int64N(3)
	told := a.world.SetsToken(a.Name, at, now, to)
	if err := admin.SetFence(a.ctx, a.topic, partition, now, to); err != nil || !a.Rest(1) {
		return 0
	}
	told()
	a.world.Fence(a.Name, at, to)
	return to
}

// appendAtomic appends a few records to a few of the first so many partitions.
func (a *appender) appendAtomic(of int) *Together {
	t, c := &Together{Loose: true}, a.Chance("partitions")
	var records []*sdk.Record
	for _, partition := range c.Some(2+c.Below(3), of) {
		records = append(records, a.records(partition, t)...)
	}
	err := a.producer.AppendAtomic(a.ctx, records...)
	a.together(records, t, err)
	if err == nil {
		a.world.Count("appended to several lanes at once")
	}
	return t
}
