package repair_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/repair"
	"github.com/varvelog/varve/functions/verify"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
	"github.com/varvelog/varve/segment/store/mem"
)

// A table that is put back a second time, to a moment in the era that the first repair began, is repaired by one run: what that era's head has is archived behind the row without records.
func TestPutBackInTheNextEra(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("t", 2, 2)
		a := w.writer()
		a.minutes("t", 2)
		o, old := w.copied()
		a.minutes("t", 2)
		time.Sleep(20 * minute)
		w.putBack(old)
		time.Sleep(20 * minute)
		w.mustRepair(o)
		time.Sleep(20 * minute)
		o, old = w.copied()
		a.minutes("t", 2)
		time.Sleep(20 * minute)
		w.putBack(old)
		time.Sleep(20 * minute)
		w.mustRepair(o)
		w.sound("t")
		w.whole()
	})
}

// twice is a log that has been put back and repaired twice.
func twice(t testing.TB) (*world, repair.Options) {
	w := newWorld(t)
	w.create("t", 2, 2)
	a := w.writer()
	var o repair.Options
	for range 2 {
		a.minutes("t", 2)
		at, old := w.copied()
		o = at
		a.minutes("t", 2)
		time.Sleep(20 * minute)
		w.putBack(old)
		w.mustRepair(o)
		a.minutes("t", 2)
	}
	return w, o
}

// A table that knows of a repair was not put back to a moment before that began: another moment is refused, whether that repair is finished or not, and nothing is begun.
func TestAnotherMoment(t *testing.T) {
	for _, cut := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, o := restored(t)
			if cut {
				if calls := w.mishaps(o, 60, mishap{crash: true}); calls < 60 {
					t.Fatalf("it was not cut off: %d requests", calls)
				}
			} else {
				w.mustRepair(o)
			}
			time.Sleep(20 * minute)
			_, err := compact.Run(t.Context(), w.adapter(w.env), w.objects, compact.Options{All: true, Env: w.env})
			if cut != errors.Is(err, compact.ErrUnrepaired) {
				t.Errorf("compaction, where the repair was cut off is %v: %v", cut, err)
			}
			for _, wrong := range []repair.Options{{Back: o.Back.Add(-minute)}, {Back: o.Back.Add(minute)}, {Lost: true}} {
				wrong.Env = o.Env
				var field *metadata.FieldError
				if _, err := w.repair(wrong); !errors.As(err, &field) || !strings.Contains(field.Valid, o.Back.Truncate(time.Millisecond).UTC().Format(time.RFC3339Nano)) {
					t.Errorf("put back to %v, lost %v: %v", wrong.Back, wrong.Lost, err)
				}
			}
			if _, err := w.objects.Stat(t.Context(), segment.EraName(2)); !errors.Is(err, store.ErrNotExist) {
				t.Errorf("another era has begun: %v", err)
			}
			w.finished(o)
		})
	}
}

// TestPutBackToTheMiddle: a repair is cut off at a request, for each of them, and the table copied then. That repair is finished, or never is; the table is put back to the copy, and repaired again.
func TestPutBackToTheMiddle(t *testing.T) {
	calls := 0
	synctest.Test(t, func(t *testing.T) {
		w, o := restored(t)
		calls = w.mishaps(o, -1, mishap{})
	})
	every := sampleOf(6 * raceShare)()
	for n := every / 2; n < calls; n += every {
		synctest.Test(t, func(t *testing.T) {
			w, o := restored(t)
			w.mishaps(o, n, mishap{applied: true, crash: true})
			next, old := w.copied()
			if _, err := w.objects.Stat(t.Context(), segment.EraName(1)); errors.Is(err, store.ErrNotExist) {
				return // nothing has begun
			}
			if n/every%2 == 0 {
				w.mustRepair(o)
				w.reopen()
				w.writer().write("t", 2)
			}
			time.Sleep(20 * minute)
			w.putBack(old)
			time.Sleep(20 * minute)
			w.finished(next)
			if t.Failed() {
				t.Errorf("request %d of %d", n, calls)
			}
		})
	}
}

// A table that was compacted after it was put back counts what it was given since as old. The repair refuses it, and goes well when the table is put back once more.
func TestCompactedBeforeTheRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("t", 2, 2)
		a := w.writer()
		a.minutes("t", 9)
		o, old := w.copied()
		again := w.snapshot()
		for range 3 {
			a.minutes("t", 3)
			w.compact("t")
		}
		w.putBack(old)
		time.Sleep(20 * minute)
		for range 4 {
			a.minutes("t", 2)
			w.compact("t")
		}
		time.Sleep(20 * minute)
		before := w.scan()
		if _, err := w.repair(o); !errors.Is(err, repair.ErrCompacted) {
			t.Errorf("%v", err)
		}
		if _, err := w.objects.Stat(t.Context(), segment.EraName(1)); !errors.Is(err, store.ErrNotExist) || !reflect.DeepEqual(w.scan(), before) {
			t.Errorf("something was begun: %v", err)
		}
		w.putBack(again)
		w.finished(o)
	})
}

// A moment after the one that the table was put back to makes old of what was committed since, and the archive has other records at these offsets: it is refused, by a dry run
// too, and the repair goes well with the right one.
func TestMomentAfterTheRightOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("t", 2, 2)
		a := w.writer()
		a.minutes("t", 9)
		o, old := w.copied()
		a.minutes("t", 12)
		w.compact("t")
		w.putBack(old)
		a.minutes("t", 5)
		later := o
		later.Back = w.env.Now()
		time.Sleep(30 * minute)
		before := w.scan()
		for _, later.DryRun = range []bool{true, false} {
			if _, err := w.repair(later); !errors.Is(err, repair.ErrMoment) {
				t.Errorf("%v", err)
			}
		}
		if _, err := w.objects.Stat(t.Context(), segment.EraName(1)); !errors.Is(err, store.ErrNotExist) || !reflect.DeepEqual(w.scan(), before) {
			t.Errorf("something was begun: %v", err)
		}
		w.finished(o)
	})
}

const missing = "-"

// tamper gives the log a bucket in which an object is another, or missing.
func (w *world) tamper(name, body string) {
	w.Helper()
	to := mem.New()
	all, err := w.objects.List(w.Context(), "", "", 0)
	check(w, err)
	for _, o := range all.Objects {
		b, err := w.objects.Get(w.Context(), o.Name, 0, o.Size, nil)
		check(w, err)
		if o.Name == name && body == missing {
			continue
		} else if o.Name == name {
			b = []byte(body)
		}
		check(w, to.Put(w.Context(), o.Name, b))
	}
	w.objects, w.faulty = to, fault.New(to, w.env, func(fault.Call) fault.Fault { return fault.Fault{} })
	w.Cleanup(func() { w.faulty.Close() })
}

// An era's object that is damaged, or another's, is told of, also if it is not of the latest: which segments its repair has put follows from it. No repair begins without it.
func TestEraThatCannotBeRead(t *testing.T) {
	for _, name := range []string{segment.EraName(1), segment.EraName(2)} {
		for what, body := range map[string]string{"missing": missing, "empty": "", "another's": `{"era":7,"restored_to_ms":1,"begun_ms":1,"jump":17592186044416}`} {
			synctest.Test(t, func(t *testing.T) {
				w, o := twice(t)
				w.whole()
				w.tamper(name, body)
				if told := w.kinds(); told[verify.EraUnreadable] != 1 {
					t.Errorf("%s is %s: verify tells %v", name, what, told)
				}
				before := w.scan()
				if _, err := w.repair(o); !errors.Is(err, metadata.ErrCorrupt) || !strings.Contains(err.Error(), name) {
					t.Errorf("%s is %s: %v", name, what, err)
				}
				if !reflect.DeepEqual(w.scan(), before) {
					t.Error("the table was changed")
				}
			})
		}
	}
}

var seeds = flag.Int("seeds", 12/raceShare/raceShare, "how many histories of repairs TestHistoriesOfRepairs plays")
var oneSeed = flag.Int64("seed", -1, "the only one that it plays")

// TestHistoriesOfRepairs plays logs whose tables are put back up to three times. Before and between, records are appended, lanes compacted, the topic is grown, and swept; repairs are
// cut off at any request, and run again when what they add to has been compacted. Every record that was acknowledged is there once, and at its offset is it, or an answer that says
// that the history was rewritten.
func TestHistoriesOfRepairs(t *testing.T) {
	first, last := int64(0), int64(*seeds)
	if *oneSeed >= 0 {
		first, last = *oneSeed, *oneSeed+1
	}
	for seed := first; seed < last; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &history{world: newWorld(t), chance: rand.New(rand.NewPCG(uint64(seed), 0)), partitions: 2}
				defer func() {
					if t.Failed() {
						t.Logf("history: %s", strings.Join(h.trace, " "))
					}
				}()
				h.play()
			})
		})
	}
}

// history is a log to which things happen.
type history struct {
	*world
	chance     *rand.Rand
	partitions int
	writer     *writer
	trace      []string
}

func (h *history) note(format string, args ...any) {
	h.trace = append(h.trace, fmt.Sprintf(format, args...))
}

func (h *history) play() {
	h.create("t", h.partitions, 2+h.chance.IntN(2)*2)
	h.writer = h.world.writer()
	h.live(2 + h.chance.IntN(7))
	o, old := h.copied()
	amid := false // of a repair
	h.note("COPY")
	for range 1 + h.chance.IntN(3) {
		h.live(2 + h.chance.IntN(9))
		time.Sleep(time.Duration(11+h.chance.IntN(60)) * minute)
		h.putBack(old)
		h.note("BACK")
		topic, err := h.adapter(h.env).Topic(h.Context(), "t")
		check(h, err)
		if amid || h.partitions > topic.Partitions { // who remembers a change of the topic that the table has forgotten is refused until the repair
			h.partitions, h.writer = topic.Partitions, h.world.writer()
		}
		if h.chance.IntN(3) == 0 { // before the repair
			h.write("t", topic.Partitions)
		}
		time.Sleep(17 * minute)
		var next repair.Options
		var middle *dynamodb.Engine // a copy of a table whose repair was cut off
		for range h.chance.IntN(4) {
			h.cutOff(o)
			if h.chance.IntN(3) == 0 {
				next, middle = h.copied()
				h.note("COPY")
			}
		}
		h.again(o)
		h.reopen()
		topic, err = h.adapter(h.env).Topic(h.Context(), "t")
		check(h, err)
		h.partitions, h.writer = topic.Partitions, h.world.writer()
		h.soundNow()
		if h.chance.IntN(3) > 0 {
			for range 1 + h.chance.IntN(8) {
				h.write("t", h.partitions)
				h.pack()
			}
			h.again(o)
			h.soundNow()
		}
		if h.chance.IntN(2) == 0 {
			if h.chance.IntN(2) == 0 {
				time.Sleep(28 * time.Hour)
				middle = nil // what it names may be deleted by now
			}
			h.note("SWEEP")
			check(h, h.sweep())
			h.soundNow()
			h.again(o)
			h.soundNow()
		}
		amid = middle != nil
		if o, old = next, middle; !amid {
			o, old = h.copied()
			h.note("COPY")
		}
	}
}

// live is a while in the life of a log.
func (h *history) live(steps int) {
	for range steps {
		switch n := h.chance.IntN(20); {
		case n < 10:
			h.write("t", h.partitions)
		case n < 15:
			h.write("t", h.partitions)
			h.pack()
		case n < 17:
			time.Sleep(time.Duration(20+50*h.chance.IntN(2)) * minute)
			h.note("wait")
		case n < 18 && h.partitions < 6:
			h.partitions++
			h.alter("t", sdk.Alteration{Partitions: h.partitions})
			h.writer = h.world.writer()
			h.note("grow")
		default:
			h.pack()
		}
	}
	h.write("t", h.partitions)
}

func (h *history) write(topic string, partitions int) {
	for range 1 + h.chance.IntN(3) {
		h.writer.write(topic, partitions)
		h.note("w")
		time.Sleep(minute)
	}
}

func (h *history) pack() {
	h.compact("t")
	h.note("pack")
}

// cutOff runs a repair of which a request is the last.
func (h *history) cutOff(o repair.Options) {
	n := h.chance.IntN(120)
	h.mishaps(o, n, mishap{applied: h.chance.IntN(2) == 0, crash: true})
	h.note("cut(%d)", n)
	if h.chance.IntN(5) == 0 {
		h.write("t", 2)
	}
}

func (h *history) again(o repair.Options) {
	h.Helper()
	report, err := h.repair(o)
	if err != nil || !report.Finished {
		h.Fatalf("%+v: %v", report, err)
	}
	h.note("repair(%d)", report.Era)
}

func (h *history) soundNow() {
	h.Helper()
	h.sound("t")
	h.whole()
	if h.Failed() {
		h.FailNow()
	}
}
