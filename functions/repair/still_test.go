package repair_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/sdk"
)

// drowsy is the clocks of a machine that was suspended: its monotonic one has lost that time.
type drowsy struct {
	env.Clock
	lost atomic.Int64
}

func (d *drowsy) Mono() time.Duration { return d.Clock.Mono() - time.Duration(d.lost.Load()) }

// What a machine appends when it wakes up has an id of then, not of when it fell asleep: by that, a repair would take it for what the table had.
func TestASuspendedWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("t", 2, 2)
		e := env.System()
		clock := &drowsy{Clock: e.Clock}
		e.Clock = clock
		log, err := sdk.Open(t.Context(), "mem://", sdk.WithDriver(w), sdk.WithEnv(e))
		check(t, err)
		defer log.Close()
		p, err := log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()), sdk.WithLinger(0, 0))
		check(t, err)
		sleeper, other := &writer{w, p}, w.writer()
		sleeper.minutes("t", 2)
		time.Sleep(time.Hour)
		other.write("t", 2)
		o, old := w.copied()
		time.Sleep(time.Hour)
		clock.lost.Store(int64(2 * time.Hour))
		sleeper.write("t", 2)
		other.write("t", 2)
		w.putBack(old)
		time.Sleep(20 * minute)
		w.mustRepair(o)
		w.sound("t")
		w.whole()
	})
}

// A repair that stood still for longer than a compaction takes compacts the rest when it goes on.
func TestRepairStandsStillWhileItCompacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("t", 2, 2)
		a := w.writer()
		a.minutes("t", 20)
		o, old := w.copied()
		a.minutes("t", 3)
		w.putBack(old)
		a.minutes("t", 3)
		time.Sleep(20 * minute)
		publications := 0
		o.Env.Pause = func(at env.Point) {
			if at == env.BeforePublish {
				publications++
				time.Sleep(time.Hour)
			}
		}
		w.mustRepair(o)
		if publications < 3 { // two of compaction, and that of the cut
			t.Errorf("%d publications", publications)
		}
		w.sound("t")
		w.whole()
	})
}
