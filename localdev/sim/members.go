package sim

import (
	"context"
	"errors"
	"time"

	"github.com/varvelog/varve/sdk"
)

// member is one life of a member of a group.
type member struct {
	*Process
	group    *Group
	nature   nature
	brief    bool // it lives for less than a third of the time-out, after which members are taken to be silent
	consumer *sdk.Consumer
	out      *appender // of one that steps
	froze    int       // times that it had been frozen when it last knew what it has
}

// life plays a life of a member: until it dies, or is over.
func (x *Group) life(p *Process, n nature) {
	m := &member{Process: p, group: x, nature: n}
	until := p.world.Now() + 1<<60
	switch {
	case n.short && p.Chance("is brief").OneIn(3):
		m.brief = true
		until = p.world.Now() + p.Chance("lives").Within(x.Timeout/20, x.Timeout/3)
	case n.short:
		until = p.world.Now() + p.Chance("lives").Within(x.Timeout/3, x.Timeout)
	case n.static:
		until = p.world.Now() + p.Chance("lives").Within(2*x.Timeout, 12*x.Timeout)
	}
	if !m.join() || !m.polls(until) {
		return
	}
	switch {
	case n.static && !p.world.Over() && p.Chance("overlaps").OneIn(2): // the next life begins while this one goes on
		p.world.Follow(func() { p.Run(func() { m.polls(1 << 60) }) })
	case p.world.Over() || n.polite:
		err := m.consumer.Close(p.ctx)
		if p.Rest(1) && err == nil {
			p.came("left")
		}
	default:
		p.Kill("by vanishing")
	}
}

// polls polls until then, or until the world is over; false when the member is over before.
func (m *member) polls(until time.Duration) bool {
	for m.world.Now() < until && !m.world.Over() {
		if !m.poll() {
			return false
		}
	}
	return true
}

// join opens what the member needs; false when it dies before.
func (m *member) join() bool {
	x, c := m.group, m.Chance("member")
	var log *sdk.Log
	if x.Out != "" {
		if m.out = m.appender(x.Out); m.out == nil {
			return false
		}
		log = m.out.log
	} else if log = m.Open(); log == nil {
		return false
	}
	options := []sdk.ConsumerOption{sdk.WithSessionTimeout(x.Timeout), sdk.WithTopicRefresh(x.Timeout / 2), sdk.WithRevokeTimeout(x.Timeout),
		sdk.AutoCommit(c.Within(200*time.Millisecond, 2*time.Second)), sdk.OnAssigned(m.assigned), sdk.OnRevoked(m.lost), sdk.OnLost(m.lost),
		sdk.Reading(sdk.WithWait(c.Within(200*time.Millisecond, time.Second)))}
	if m.nature.manual || x.Out != "" {
		options = append(options, sdk.ManualCommit())
	}
	if m.nature.static {
		options = append(options, sdk.WithInstanceID(m.Part))
	}
	if c.OneIn(3) {
		options = append(options, sdk.Reading(sdk.WithPollBytes(1+c.Below(200))))
	}
	for m.Rest(c.Within(1, 300*time.Millisecond)) {
		consumer, err := log.NewConsumer(m.ctx, x.Name, []string{x.Topic}, options...)
		if err == nil {
			m.consumer = consumer
			m.AtEnd(func(ctx context.Context) { consumer.Close(ctx) })
			return true
		}
		if m.Alive() && m.world.Calm() {
			m.world.Bad(About{By: m.Name}, "%s cannot join, though nothing fails any more: %v", m.Name, err)
			return false
		}
	}
	return false
}

func (m *member) share(tp sdk.TopicPartition) Share {
	return Share{m.group.Name, Partition{tp.Topic, tp.Partition}}
}

func (m *member) fact(k FactKind, s Share, f Fact) {
	f.Kind, f.By, f.Share = k, m.Name, s
	if m.Alive() {
		m.world.Fact(f)
	}
}

// assigned is OnAssigned.
func (m *member) assigned(_ context.Context, tps []sdk.TopicPartition) map[sdk.TopicPartition]int64 {
	for _, tp := range tps {
		m.fact(Assigned, m.share(tp), Fact{})
	}
	m.froze = m.taken("frozen")
	return nil
}

// lost is OnLost, and OnRevoked, after which nothing more is to be delivered either.
func (m *member) lost(_ context.Context, tps []sdk.TopicPartition) {
	for _, tp := range tps {
		m.fact(Lost, m.share(tp), Fact{})
	}
	if n := m.taken("frozen"); n > m.froze {
		m.froze = n
		m.came("lost something after a freeze")
	}
}

// poll is one turn of the member; false when it is over.
func (m *member) poll() bool {
	fetches, err := m.consumer.Poll(m.ctx)
	age := m.beatAge()
	for _, f := range fetches { // at this very moment
		for _, r := range f.Records {
			m.fact(Given, m.share(sdk.TopicPartition{Topic: f.Topic, Partition: r.Partition}), Fact{Offset: r.Offset, Age: age, Timeout: m.group.Timeout})
		}
	}
	if !m.Rest(m.Chance("polled").Within(1, 20*time.Millisecond)) {
		return false
	}
	if err != nil {
		return m.failed(err)
	}
	for _, f := range fetches {
		if !m.work(f) {
			return false
		}
	}
	return m.group.Out != "" || !m.nature.manual || m.commit()
}

// failed takes an error of Poll, and tells whether the member goes on.
func (m *member) failed(err error) bool {
	switch {
	case errors.Is(err, sdk.ErrFenced):
		m.came("told that it is fenced")
		return false
	case !errors.Is(err, sdk.ErrUnreachable): // that may have been so a while ago; Prove finds a member that does not get on
		m.world.Bad(About{By: m.Name}, "%s was told %v", m.Name, err)
	}
	m.Note("unreachable")
	return m.Rest(m.Chance("unreachable").Within(1, 100*time.Millisecond))
}

// work handles what the member was given of one partition.
func (m *member) work(f sdk.Fetch) bool {
	c := m.Chance("work")
	takes := c.Within(1, 30*time.Millisecond)
	if m.nature.slow && c.OneIn(6) {
		takes = c.Within(m.group.Timeout/2, 2*m.group.Timeout)
	}
	if !m.Rest(takes) {
		return false
	}
	if m.group.Out != "" {
		return m.steps(f, c)
	}
	m.finished(f.Topic, f.Records)
	return true
}

func (m *member) finished(topic string, records []sdk.Record) {
	for _, r := range records {
		m.fact(Finished, m.share(sdk.TopicPartition{Topic: topic, Partition: r.Partition}), Fact{Offset: r.Offset})
		if m.Alive() {
			m.world.HasRead(m.Name, Partition{topic, r.Partition}, r.Offset, valueOf(r.Value, r.Headers))
		}
	}
}

// commit commits what the last Poll has returned, mostly.
func (m *member) commit() bool {
	if m.Chance("commit").OneIn(4) {
		return true
	}
	err := m.consumer.Commit(m.ctx)
	if !m.Rest(1) {
		return false
	}
	switch {
	case err == nil:
		if m.nature.short {
			m.came("short-lived, and has committed")
		}
		if m.brief {
			m.came("brief, and has committed")
		}
	case errors.Is(err, sdk.ErrNotHeld):
		m.came("commit of something that is not held")
	case !errors.Is(err, sdk.ErrUnreachable) && !errors.Is(err, sdk.ErrBehind):
		m.world.Bad(About{By: m.Name}, "%s cannot commit: %v", m.Name, err)
	}
	return true
}

// steps writes the results of a few records after the other, each few with their offsets.
func (m *member) steps(f sdk.Fetch, c Chance) bool {
	for rest := f.Records; len(rest) > 0; {
		n := min(1+c.Below(4), len(rest))
		m.finished(f.Topic, rest[:n])
		on, alive := m.step(f, rest[:n], c)
		if !alive || !on {
			return alive
		}
		rest = rest[n:]
	}
	return true
}

// step writes the results of records with their offset, and again where that was for nothing; on tells whether to go on behind them.
func (m *member) step(f sdk.Fetch, records []sdk.Record, c Chance) (on, alive bool) {
	from := sdk.TopicPartition{Topic: f.Topic, Partition: f.Partition}
	for {
		t, results := &Together{Loose: true}, []*sdk.Record(nil)
		for _, r := range records {
			result, o := m.out.record(c.Below(m.world.Partitions(m.group.Out)), t)
			o.From = &Source{m.share(from), r.Offset}
			results = append(results, result)
		}
		err := m.consumer.Step(m.ctx, m.out.producer, map[sdk.TopicPartition]sdk.CommitOffset{from: {Offset: records[len(records)-1].Offset + 1}}, results...)
		m.out.together(results, t, err)
		switch {
		case !m.Alive():
			return false, false
		case err == nil:
			m.came("stepped")
			return true, true
		case errors.Is(err, sdk.ErrUnknown):
			m.came("step unknown")
			return false, true
		case errors.Is(err, sdk.ErrNotHeld), errors.Is(err, sdk.ErrBehind):
			m.came("step of something that is not held")
			return false, true
		}
		m.came("step for nothing")
		if !m.Rest(c.Within(1, 200*time.Millisecond)) {
			return false, false
		}
	}
}
