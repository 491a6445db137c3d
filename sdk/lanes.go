package sdk

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/walk"
)

// The head of a lane that is being followed is read eventually, once for all readers of the process: soon again while there is news, ever more
// rarely while there is none.
const (
	tailFloor   = 25 * time.Millisecond
	tailCeiling = 2 * time.Second
)

// lanes is the freshest image of each lane's head that this process has seen, shared by its readers and fed by its producers, so that a reader
// in the producer's process is woken without polling and all readers of a lane share one poll. It is a walk.Table whose eventual Head
// answers from memory.
type lanes struct {
	walk.Table
	env env.Env

	mu   sync.Mutex
	open map[metadata.LaneID]*tail // lanes that have readers
}

// tail is one lane's newest image. Fields are under lanes.mu.
type tail struct {
	readers int
	head    *metadata.Head // nil before the first
	news    chan struct{}  // closed when head gets a higher Next
	pause   time.Duration  // before the next poll
	poller  chan struct{}  // one token: whoever of those who wait holds it polls for all
}

func newLanes(table walk.Table, e env.Env) *lanes {
	return &lanes{Table: table, env: e, open: make(map[metadata.LaneID]*tail)}
}

// attach keeps images of the lane from now on, until as many detaches.
func (l *lanes) attach(lane metadata.LaneID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.open[lane]
	if t == nil {
		t = &tail{news: make(chan struct{}), pause: tailFloor, poller: make(chan struct{}, 1)}
		t.poller <- struct{}{}
		l.open[lane] = t
	}
	t.readers++
}

func (l *lanes) detach(lane metadata.LaneID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.open[lane]
	if t.readers--; t.readers == 0 {
		delete(l.open, lane)
	}
}

// observe takes an image that a producer got with its commit; an older one than is known is dropped.
func (l *lanes) observe(h *metadata.Head) { l.newest(h) }

// newest records the image if it is the newest so far, and returns the newest.
func (l *lanes) newest(h *metadata.Head) *metadata.Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.open[h.Lane]
	switch {
	case t == nil:
		return h
	case t.head != nil && (h.Next < t.head.Next || h.Next == t.head.Next && h.First <= t.head.First):
		return t.head
	}
	if t.head == nil || h.Next > t.head.Next {
		close(t.news)
		t.news = make(chan struct{})
	}
	t.head = h
	return h
}

// Head returns, when an eventual read will do, the newest image that is known, which is the more recent of the two anyway.
func (l *lanes) Head(ctx context.Context, lane metadata.LaneID, c metadata.Consistency) (*metadata.Head, error) {
	if c == metadata.Eventual {
		if h := l.known(lane); h != nil {
			return h, nil
		}
	}
	h, err := l.Table.Head(ctx, lane, c)
	if err != nil {
		return nil, err
	}
	return l.newest(h), nil
}

func (l *lanes) known(lane metadata.LaneID) *metadata.Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.open[lane]; t != nil {
		return t.head
	}
	return nil
}

// wait returns when the lane, which must be attached, is known to have commits beyond order next. Of all who wait, one at a time polls; the first
// error of a poll is for the one who polled, and the next goes on.
func (l *lanes) wait(ctx context.Context, lane metadata.LaneID, next int64) error {
	for {
		l.mu.Lock()
		t := l.open[lane]
		news, poller := t.news, t.poller
		done := t.head != nil && t.head.Next > next
		l.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-poller:
			err := l.poll(ctx, lane, t, news)
			poller <- struct{}{}
			if err != nil {
				return err
			}
		}
	}
}

// poll waits out the pause and reads the head once, unless news comes first.
func (l *lanes) poll(ctx context.Context, lane metadata.LaneID, t *tail, news <-chan struct{}) error {
	l.mu.Lock()
	pause := t.pause
	l.mu.Unlock()
	c, stop := l.env.After(l.env.Jitter(pause))
	defer stop()
	select {
	case <-c:
	case <-news:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	h, err := l.Table.Head(ctx, lane, metadata.Eventual)
	if errors.Is(err, metadata.ErrNoLane) { // only a strong read says that it is gone
		h, err = l.Table.Head(ctx, lane, metadata.Strong)
	}
	found := err == nil && l.newest(h) == h
	l.mu.Lock()
	defer l.mu.Unlock()
	if found {
		t.pause = tailFloor
	} else {
		t.pause = min(t.pause*3/2, tailCeiling)
	}
	return err
}
