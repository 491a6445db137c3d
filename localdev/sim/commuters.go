package sim

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

// Commuter is the only member of a group: it comes, reads what there is, commits, and goes, or dies, and comes again minutes or hours later. Where it goes on is in
// the table only. Of a member that is there all the time a day would cost thousands of heartbeats.
type Commuter struct {
	Name, Topic string
	Away        time.Duration // at most
	Times       int           // that it comes at most while things fail; 0: as often as there is time

	mu   sync.Mutex
	next map[int]int64 // by partition: what it is to be given next, since it has come or got the partition anew
	done map[int]int64 // by partition: what is before it was finished, or passed, in any life
}

// commuterTimeout is that of its sessions.
const commuterTimeout = 30 * time.Second

// Play implements Actor.
func (x *Commuter) Play(w *World) {
	x.next, x.done = map[int]int64{}, map[int]int64{}
	w.Follow(func() {
		for n := 0; x.Times == 0 || n < x.Times; n++ {
			p := w.start(x.Name+"."+strconv.Itoa(n), x.Name, Life{Seldom: 3})
			c := p.Chance("away")
			away := x.Away
			if c.OneIn(3) {
				away = 2 * commuterTimeout
			}
			if w.Idle(c.Within(0, away)); w.Calming() {
				return
			}
			p.Run(func() { x.life(p, p.Chance("ends"), func() bool { return w.Calming() }) })
		}
	})
}

// life joins and reads until there is nothing, or it is over.
func (x *Commuter) life(p *Process, c Chance, over func() bool) {
	log := p.Open()
	if log == nil {
		return
	}
	options := []sdk.ConsumerOption{sdk.WithSessionTimeout(commuterTimeout), sdk.WithInstanceID(x.Name), sdk.OnAssigned(x.assigned(p)), sdk.Reading(sdk.WithWait(time.Second))}
	manual := c.OneIn(2)
	if manual {
		options = append(options, sdk.ManualCommit())
	}
	consumer, err := log.NewConsumer(p.ctx, x.Name, []string{x.Topic}, options...)
	if err != nil || !p.Rest(1) {
		return
	}
	p.AtEnd(func(ctx context.Context) { consumer.Close(ctx) })
	for idle := 0; idle < rarePolls && !over(); {
		n, on := x.poll(p, consumer, manual)
		if !on {
			return
		}
		if idle++; n > 0 || len(consumer.Assignment()) == 0 {
			idle = 0
		}
	}
	if c.OneIn(3) {
		p.Kill("by vanishing")
		return
	}
	consumer.Close(p.ctx)
	log.Close()
	p.Rest(1)
}

// poll is one turn; on is false when the life is over.
func (x *Commuter) poll(p *Process, consumer *sdk.Consumer, manual bool) (n int, on bool) {
	fetches, err := consumer.Poll(p.ctx)
	if !p.Rest(p.Chance("polled").Within(1, 20*time.Millisecond)) {
		return 0, false
	}
	switch {
	case errors.Is(err, sdk.ErrFenced):
		return 0, false
	case err != nil && !errors.Is(err, sdk.ErrUnreachable):
		p.world.Bad(About{By: p.Name}, "%s was told %v", p.Name, err)
		return 0, false
	case err != nil:
		p.Note("unreachable")
		return 0, p.Rest(time.Second)
	}
	for _, f := range fetches {
		n += len(f.Records)
		x.take(p, f)
		if !p.Rest(p.Chance("work").Within(1, 30*time.Millisecond)) {
			return n, false
		}
		x.finished(p, f)
	}
	if manual && !p.Chance("commit").OneIn(4) {
		err := consumer.Commit(p.ctx)
		if !p.Rest(1) {
			return n, false
		}
		if err != nil && !errors.Is(err, sdk.ErrNotHeld) && !errors.Is(err, sdk.ErrUnreachable) && !errors.Is(err, sdk.ErrBehind) {
			p.world.Bad(About{By: p.Name}, "%s cannot commit: %v", p.Name, err)
		}
	}
	return n, true
}

// assigned is OnAssigned: it goes on at what is committed, before which all was finished, or has been removed.
func (x *Commuter) assigned(p *Process) func(context.Context, []sdk.TopicPartition) map[sdk.TopicPartition]int64 {
	return func(_ context.Context, tps []sdk.TopicPartition) map[sdk.TopicPartition]int64 {
		if !p.Alive() {
			return nil
		}
		committed := x.committed(p.world)
		x.mu.Lock()
		defer x.mu.Unlock()
		for _, tp := range tps {
			at := max(committed[tp.Partition], 0)
			if done := x.done[tp.Partition]; at > done {
				p.world.Skip(About{By: p.Name, At: Partition{x.Topic, tp.Partition}}, done, at)
				x.done[tp.Partition] = at
			}
			x.next[tp.Partition] = at
		}
		p.came("commuter has come")
		return nil
	}
}

// committed is what the table says, by partition.
func (x *Commuter) committed(w *World) (offsets []int64) {
	table := w.table()
	row, err := table.Topic(context.Background(), x.Topic)
	w.must(err)
	lanes := map[metadata.LaneID]*metadata.GroupLane{}
	for i := range row.Partitions {
		at := row.Place(i)
		if lanes[at.Lane] == nil {
			lanes[at.Lane], err = table.GroupLane(context.Background(), x.Name, at.Lane)
			w.must(err)
		}
		offsets = append(offsets, lanes[at.Lane].Slots[at.Slot].Offset)
	}
	return offsets
}

func (x *Commuter) take(p *Process, f sdk.Fetch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, r := range f.Records {
		p.world.Read(p.Name, Partition{x.Topic, r.Partition}, x.next[f.Partition], r.Offset, valueOf(r.Value, r.Headers))
		x.next[f.Partition] = r.Offset + 1
	}
}

func (x *Commuter) finished(p *Process, f sdk.Fetch) {
	for _, r := range f.Records {
		p.world.Fact(Fact{Kind: Finished, By: p.Name, Share: Share{x.Name, Partition{x.Topic, r.Partition}}, Offset: r.Offset})
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.done[f.Partition] = max(x.done[f.Partition], f.Records[len(f.Records)-1].Offset+1)
}

// Prove implements Actor: it commits up to the ends.
func (x *Commuter) Prove(w *World) {
	began, ends := w.Now(), w.ends(x.Topic)
	behind := func() (partition int, committed int64) {
		for partition, committed := range x.committed(w) {
			if committed < ends[partition] {
				return partition, committed
			}
		}
		return -1, 0
	}
	late := func() bool { return w.Now()-began > 10*Soon }
	for n := 0; ; n++ {
		at, committed := behind()
		if at < 0 {
			return
		}
		if late() {
			w.Bad(About{By: x.Name, At: Partition{x.Topic, at}}, "%s has committed %d of %d in %v, though nothing fails any more", x.Name, committed, ends[at], w.Now()-began)
			return
		}
		p := w.Start(x.Name+" at last "+strconv.Itoa(n), Life{Safe: true})
		p.Run(func() { x.life(p, p.Chance("ends"), late) })
	}
}
