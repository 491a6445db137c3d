package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/env"
)

// Every side has its turns, each round begins with another, and the first round does not count.
func TestAlternate(t *testing.T) {
	var order, told []string
	named := func(name string, streams int) side {
		n := int64(0)
		return side{name: name, streams: streams, turn: func(context.Context) (turn, error) {
			n++
			order = append(order, name)
			return turn{bytes: n, elapsed: time.Second}, nil
		}}
	}
	sides := []side{named("v", 0), named("a", 1), named("b", 4)}
	r := &run{Config: Config{Settings: Settings{Turns: 2}, Progress: func(s string) { told = append(told, s) }}}
	if err := r.alternate(t.Context(), sides); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, ""); got != "vababvbva" {
		t.Error(got)
	}
	for _, s := range sides {
		if len(s.turns) != 2 || s.turns[0].bytes != 2 || s.turns[1].bytes != 3 {
			t.Errorf("%s: %+v", s.name, s.turns)
		}
	}
	if told[0] != "warming up: v" || told[3] != "turn 1 of 2: a" || !strings.HasPrefix(told[8], "turn 2 of 2: a, v 0 MiB/s, a 0 MiB/s, b 0 MiB/s") {
		t.Errorf("%q", told)
	}
	sides[1].turn = func(context.Context) (turn, error) { return turn{}, errBroken }
	if err := r.alternate(t.Context(), sides); !errors.Is(err, errBroken) || !strings.HasPrefix(err.Error(), "a: ") {
		t.Errorf("%v", err)
	}
}

// Streams share the calls out, in order, and go on or stop as the time says.
func TestEach(t *testing.T) {
	for _, c := range []struct {
		streams, n, most   int
		least, limit, fail time.Duration
		calls              int
		took               time.Duration
	}{
		{streams: 1, n: 5, limit: time.Hour, calls: 5, took: 5 * time.Second},
		{streams: 4, n: 10, limit: time.Hour, calls: 10, took: 3 * time.Second},
		{streams: 4, n: 2, limit: time.Hour, calls: 2, took: time.Second},
		{streams: 4, n: 0, limit: time.Hour},
		{streams: 2, n: 2, least: 10 * time.Second, limit: time.Hour, calls: 20, took: 10 * time.Second},
		{streams: 2, n: 30, least: 10 * time.Second, limit: time.Hour, calls: 30, took: 15 * time.Second},
		{streams: 2, n: 30, least: 10 * time.Second, limit: 4 * time.Second, calls: 8, took: 4 * time.Second},
		{streams: 2, n: 2, most: 6, least: 10 * time.Second, limit: time.Hour, calls: 6, took: 3 * time.Second},
		{streams: 2, n: 30, limit: time.Hour, fail: 2 * time.Second, calls: 6, took: 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := env.System()
			r := &run{Config: Config{Env: e, Settings: Settings{TurnTime: c.limit}}}
			var calls atomic.Int64
			seen := make([]atomic.Bool, 100)
			busy := make([]atomic.Int64, c.streams)
			start := e.Mono()
			err := r.each(t.Context(), c.streams, c.n, cmp.Or(c.most, 100), c.least, func(ctx context.Context, stream, i int) error {
				if seen[i].Swap(true) || busy[stream].Add(1) > 1 {
					t.Errorf("call %d by stream %d comes twice", i, stream)
				}
				defer busy[stream].Add(-1)
				calls.Add(1)
				began := e.Mono() - start
				e.Sleep(context.WithoutCancel(ctx), time.Second)
				if c.fail > 0 && began >= c.fail {
					return errBroken
				}
				return nil
			})
			if (err != nil) != (c.fail > 0) || err != nil && !errors.Is(err, errBroken) {
				t.Errorf("%+v: %v", c, err)
			}
			if took := e.Mono() - start; int(calls.Load()) != c.calls || took != c.took {
				t.Errorf("%+v: %d calls in %v", c, calls.Load(), took)
			}
			for i := range seen {
				if seen[i].Load() != (i < c.calls) {
					t.Errorf("%+v: call %d", c, i)
				}
			}
		})
	}
}

func TestListOfNames(t *testing.T) {
	var names []string
	for i := range 22 {
		names = append(names, fmt.Sprint("n", i))
	}
	if got := list(names[:2]); got != "n0 n1" {
		t.Error(got)
	}
	if got := list(names); !strings.HasSuffix(got, " n19 and 2 more") {
		t.Error(got)
	}
}
