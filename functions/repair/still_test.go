package repair_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
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
			if at != env.BeforePublish {
				return
			}
			if publications++; publications%2 > 0 {
				time.Sleep(metadata.MaxArchiveAge + time.Second) // it is not sent any more
			} else {
				time.Sleep(compact.MaxDeadline + minute)
			}
		}
		w.mustRepair(o)
		if publications != 6 { // two of compaction and that of the cut, each once too late
			t.Errorf("%d publications", publications)
		}
		w.sound("t")
		w.whole()
	})
}

// A compactor that stands still between making the id of its segment and publishing it does not publish any more. By its id the publication would be a day old at once: the next sweep would delete
// what it has replaced, of which a table that is put back to the hours before knows nothing else, and a repair would not look at a segment that seems older than that.
func TestACompactorThatStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("t", 2, 2)
		a := w.writer()
		a.minutes("t", 20)
		e := w.env
		e.Pause = func(at env.Point) {
			if at == env.BeforePublish {
				time.Sleep(20 * time.Hour)
			}
		}
		var compacting sync.WaitGroup
		compacting.Go(func() {
			r, err := compact.Run(t.Context(), w.adapter(e), w.objects, compact.Options{All: true, Env: e})
			if err != nil || r.Segments > 0 {
				t.Errorf("%d segments were published: %v", r.Segments, err)
			}
		})
		time.Sleep(19 * time.Hour)
		o, old := w.copied()
		compacting.Wait()
		time.Sleep(5 * time.Hour)
		a.minutes("t", 2)
		check(t, w.sweep())
		w.putBack(old)
		a.minutes("t", 2)
		time.Sleep(20 * minute)
		w.mustRepair(o)
		w.sound("t")
		w.whole()
	})
}
