package repair_test

import (
	"context"
	"errors"
	"flag"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/repair"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/segment/store/fault"
)

// restored is a log with something of everything whose table was put back.
func restored(t testing.TB) (*world, repair.Options) {
	w := newWorld(t)
	w.create("t", 2, 2)
	a := w.writer()
	write := func(n int) { a.minutes("t", n) }
	write(9)
	w.compact("t")
	write(3)
	o, old := w.copied()
	write(3)
	w.compact("t")
	write(3)
	w.putBack(old)
	write(2)
	time.Sleep(20 * minute)
	return w, o
}

// lostTable is a log of whose table nothing is left: some of it was archived and merged, some was not.
func lostTable(t testing.TB) (*world, repair.Options) {
	w := newWorld(t)
	w.create("t", 2, 2)
	a := w.writer()
	for i := range 22 {
		a.write("t", 2)
		time.Sleep(minute)
		if i%6 == 5 {
			w.compact("t")
		}
	}
	time.Sleep(20 * minute)
	w.lose()
	return w, repair.Options{Lost: true, Env: w.env}
}

// mishap is what becomes of one request of a repair.
type mishap struct {
	applied, crash bool
}

// TestFaults lets every request of a repair fail, or be applied and fail, once by itself and once with the process that made it; what is run again then makes it whole.
func TestFaults(t *testing.T) {
	for name, begin := range map[string]func(testing.TB) (*world, repair.Options){"restored": restored, "lost": lostTable} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			synctest.Test(t, func(t *testing.T) {
				w, o := begin(t)
				calls = w.mishaps(o, -1, mishap{})
				w.finished(o)
			})
			worlds := 0
			for i, m := range []mishap{{false, false}, {true, false}, {false, true}, {true, true}} {
				for n := i * every() / 4; n < calls; n += every() {
					synctest.Test(t, func(t *testing.T) {
						w, o := begin(t)
						w.mishaps(o, n, m)
						w.finished(o)
						if t.Failed() {
							t.Fatalf("request %d of %d, %+v", n, calls, m)
						}
					})
					worlds++
				}
			}
			t.Logf("%d requests, %d worlds", calls, worlds)
		})
	}
}

// mishaps runs a repair of which the n-th request meets a mishap, and tells how many requests it made.
func (w *world) mishaps(o repair.Options, n int, m mishap) (calls int) {
	ctx, cancel := context.WithCancel(context.WithValue(w.Context(), marked{}, true))
	defer cancel()
	hit := func() bool {
		calls++
		if calls-1 != n {
			return false
		}
		if m.crash {
			cancel()
		}
		return true
	}
	w.mu.Lock()
	w.onTable = func(dynamodb.Call) dynamodb.Fault {
		switch {
		case !hit():
			return dynamodb.Fault{}
		case m.applied:
			return dynamodb.AnswerLost()
		}
		return dynamodb.Dropped()
	}
	w.onStore = func(c fault.Call) fault.Fault {
		switch {
		case !hit():
			return fault.Fault{}
		case m.applied:
			return fault.Fault{Kind: fault.LostAfter}
		}
		return fault.Fault{Kind: fault.LostBefore}
	}
	w.mu.Unlock()
	_, err := repair.Run(ctx, w.adapter(w.env), w.faulty, o)
	w.mu.Lock()
	w.onTable, w.onStore = nil, nil
	w.mu.Unlock()
	if n < 0 {
		check(w, err)
	}
	return calls
}

// finished runs the repair to its end, and looks at everything.
func (w *world) finished(o repair.Options) {
	w.Helper()
	report, err := w.repair(o)
	if err != nil || !report.Finished {
		w.Errorf("%+v: %v", report, err)
		return
	}
	w.reopen()
	topic := "t"
	if o.Lost {
		topic = w.onlyTopic()
	}
	w.soundAs("t", topic)
	w.whole()
	if again, err := w.repair(o); err != nil || again.Again != 0 || !again.Finished {
		w.Errorf("once more: %+v, %v", again, err)
	}
	w.writer().write(topic, 2)
	w.whole()
}

func (w *world) onlyTopic() string {
	w.Helper()
	topics, err := w.log.Admin().ListTopics(w.Context())
	check(w, err)
	if len(topics) != 1 {
		w.Fatalf("%d topics", len(topics))
	}
	return topics[0].Name
}

// TestNothingToRepair refuses a table that is not behind, and what makes no sense.
func TestNothingToRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("t", 2, 2)
		a := w.writer()
		for range 9 {
			a.write("t", 2)
		}
		time.Sleep(time.Second)
		o := w.options()
		o.Back = w.env.Now()
		time.Sleep(time.Hour)
		if report, err := w.repair(o); !errors.Is(err, repair.ErrNothing) || report.Finished {
			t.Errorf("%+v, %v", report, err)
		}
		for _, wrong := range []repair.Options{{Env: w.env}, {Env: w.env, Back: w.env.Now().Add(time.Hour)}, {Env: w.env, Lost: true}} {
			if _, err := w.repair(wrong); err == nil || errors.Is(err, repair.ErrNothing) {
				t.Errorf("%+v: %v", wrong, err)
			}
		}
		for _, h := range w.heads("t") {
			if h.Ends[0] != 9 {
				t.Errorf("%+v", h.Ends)
			}
		}
	})
}

// allFaults lets every request fail, not a sample.
var allFaults = flag.Bool("all-faults", false, "let every request fail, not a sample")

// sampleOf is 1 with -all-faults.
func sampleOf(n int) func() int {
	return func() int {
		if *allFaults {
			return 1
		}
		return n
	}
}
