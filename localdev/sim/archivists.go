package sim

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

// Changer changes a topic, hours apart: its retention, and so the class under which its segments are, or how many partitions it has.
type Changer struct {
	Name, Topic string
	Changes     []sdk.Alteration
}

// Play implements Actor.
func (x *Changer) Play(w *World) {
	w.Lives(x.Name, Life{}, len(x.Changes), func(p *Process, left int) {
		log := p.Open()
		if log == nil {
			return
		}
		for ; left > 0 && p.Rest(p.Chance("change").Within(0, 10*time.Hour)); left-- {
			change := x.Changes[len(x.Changes)-left]
			ms, retention := change.Config[metadata.RetentionMs]
			if retention {
				keep, err := strconv.Atoi(ms)
				w.must(err)
				w.Keep(x.Topic, time.Duration(keep)*time.Millisecond)
			}
			if !(&Keeper{Topic: x.Topic}).change(p, log, change) {
				return
			}
			if retention {
				w.Held(x.Topic)
			}
			p.Turn()
		}
	})
}

// Prove implements Actor.
func (x *Changer) Prove(*World) {}

// Deleter deletes a topic and creates it again, hours apart.
type Deleter struct {
	Name  string
	Topic sdk.NewTopic
	Times int
}

// Play implements Actor. What a life that dies has begun the next completes.
func (x *Deleter) Play(w *World) {
	var d *Deletion
	w.Lives(x.Name, Life{}, x.Times, func(p *Process, left int) {
		log := p.Open()
		for ; log != nil && left > 0 && p.Rest(p.Chance("delete").Within(0, 10*time.Hour)); left-- {
			interrupted := d != nil
			if !interrupted {
				d = w.Deletes(x.Topic.Name)
			}
			if !p.until("delete "+x.Topic.Name, sdk.ErrUnknownTopic, func() error { return log.Admin().DeleteTopic(p.ctx, x.Topic.Name) }) {
				return
			}
			if interrupted && !p.until("finish deletions", nil, func() error { // or the topic takes records still, until a sweep finishes it
				_, err := log.Admin().CleanTopics(p.ctx)
				return err
			}) {
				return
			}
			w.Count("topic deleted")
			p.Rest(p.Chance("create").Within(0, 3*time.Hour))
			if !p.until("create "+x.Topic.Name, sdk.ErrTopicExists, func() error {
				_, err := log.Admin().CreateTopic(p.ctx, x.Topic)
				return err
			}) {
				return
			}
			w.Recreated(d)
			d = nil
			p.Turn()
		}
	})
}

// until does something until it is done, and tells whether it was. done is the error that says that it was done before.
func (p *Process) until(what string, done error, do func() error) bool {
	for {
		err := do()
		if !p.Rest(p.Chance(what).Within(1, time.Second)) {
			return false
		}
		if err == nil || errors.Is(err, done) {
			p.Note("%s: done", what)
			return true
		}
		p.Note("cannot %s: %s", what, brief(err))
		if p.world.Calm() {
			p.world.Bad(About{By: p.Name}, "cannot %s, though nothing fails any more: %v", what, err)
			return false
		}
	}
}

// Prove implements Actor.
func (x *Deleter) Prove(*World) {}

// Replayer replays a topic now and then.
type Replayer struct {
	Name, Topic string
	Every       time.Duration
	Times       int // at most; 0: as often as there is time
}

// Play implements Actor.
func (x *Replayer) Play(w *World) {
	w.Follow(func() {
		for n := 0; x.Times == 0 || n < x.Times; n++ {
			p := w.start(x.Name+"."+strconv.Itoa(n), x.Name, Life{Seldom: 6})
			if w.Idle(p.Chance("begins").Within(0, x.Every)); w.Calming() {
				return
			}
			p.Run(func() { x.replay(p) })
		}
	})
}

// replay replays once. Only that nobody answered may end it before the end.
func (x *Replayer) replay(p *Process) {
	log := p.Open()
	if log == nil {
		return
	}
	defer log.Close()
	replay, err := log.NewReplay(p.ctx, x.Topic, sdk.ReplayBuffer(1+p.Chance("buffer").Below(10000)), sdk.ReplayParallel(1+p.Chance("parallel").Below(4)))
	if err == nil {
		err = x.read(p, replay)
	}
	if p.Rest(1) && err != nil && !errors.Is(err, sdk.ErrUnreachable) {
		p.world.Bad(About{By: p.Name}, "%s was told %v", p.Name, err)
	}
}

// Prove implements Actor: a replay gets to the ends.
func (x *Replayer) Prove(w *World) {
	p := w.Start(x.Name+" at last", Life{Safe: true})
	p.Run(func() { x.replay(p) })
}

// read runs the replay. What it passes without a record must have been removed.
func (x *Replayer) read(p *Process, replay *sdk.Replay) error {
	w := p.world
	var mu sync.Mutex
	next := map[int]int64{}
	for _, at := range replay.Checkpoint().Positions {
		next[at.Partition] = at.Next
	}
	err := replay.Run(p.ctx, func(_ context.Context, f sdk.Fetch) error {
		mu.Lock()
		defer mu.Unlock()
		for i := range f.Records {
			r := &f.Records[i]
			w.Read(p.Name, Partition{x.Topic, f.Partition}, next[f.Partition], r.Offset, valueOf(r.Value, r.Headers))
			next[f.Partition] = r.Offset + 1
		}
		return nil
	})
	if err != nil || !p.Alive() {
		return err
	}
	for _, at := range replay.Checkpoint().Positions {
		if next[at.Partition] < at.End {
			w.Skip(About{By: p.Name, At: Partition{x.Topic, at.Partition}}, next[at.Partition], at.End)
		}
	}
	w.Count("replayed")
	return nil
}

// Visitor now and then deletes the oldest records of a partition, and looks records up by time.
type Visitor struct {
	Name, Topic string
	Visits      int
	Every       time.Duration // each within this after the last; 0: hours
	Trims       bool
}

// Play implements Actor.
func (x *Visitor) Play(w *World) {
	w.Lives(x.Name, Life{}, x.Visits, func(p *Process, left int) {
		log := p.Open()
		for ; log != nil && left > 0 && p.Rest(p.Chance("visit").Within(0, cmp.Or(x.Every, 3*time.Hour))); left-- {
			p.Turn()
			c := p.Chance("partition")
			at := Partition{x.Topic, c.Below(w.Partitions(x.Topic))}
			if x.Trims && c.OneIn(4) {
				x.trim(p, log, at, c)
			}
			for range 4 {
				x.look(p, log, at, c)
			}
		}
	})
}

func (x *Visitor) trim(p *Process, log *sdk.Log, at Partition, c Chance) {
	offsets, err := log.Admin().Offsets(p.ctx, x.Topic)
	if err != nil || !p.Rest(1) {
		return
	}
	before := offsets[at.Number].Start + c.Int64N(1+(offsets[at.Number].End-offsets[at.Number].Start)/4)
	p.world.Trims(About{By: p.Name, At: at}, before)
	if _, err := log.Admin().DeleteRecords(p.ctx, x.Topic, at.Number, before); err == nil {
		p.counted("records deleted", 1)
	}
}

func (x *Visitor) look(p *Process, log *sdk.Log, at Partition, c Chance) {
	now := p.world.clock()
	from := time.UnixMilli(now.Add(-c.Within(-time.Hour, min(p.world.Now()+time.Hour, 12*time.Hour))).UnixMilli())
	offset, err := log.Admin().OffsetForTime(p.ctx, x.Topic, at.Number, from)
	switch {
	case !p.Rest(1):
		return
	case errors.Is(err, sdk.ErrNoOffset):
		offset = -1
	case errors.Is(err, sdk.ErrUnreachable), errors.Is(err, metadata.ErrUnavailable), errors.Is(err, metadata.ErrThrottled):
		return
	case err != nil:
		p.world.Bad(About{By: p.Name, At: at}, "%s was told %v", p.Name, err)
		return
	}
	p.world.Looks(About{By: p.Name, At: at}, from, now, offset)
}

// Prove implements Actor.
func (x *Visitor) Prove(*World) {}
