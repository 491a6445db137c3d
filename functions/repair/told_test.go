package repair_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/repair"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

func (w *world) alter(topic string, a sdk.Alteration) {
	w.Helper()
	_, err := w.log.Admin().AlterTopic(w.Context(), topic, a)
	check(w, err)
}

// grownAndRestored is a log whose topic was grown after the moment that its table was put back to. Of what was appended since, something is in the archive if archive says so.
func grownAndRestored(t testing.TB, width, to int, archive bool) (*world, repair.Options) {
	w := newWorld(t)
	w.create("t", 2, width)
	a := w.writer()
	a.minutes("t", 9)
	o, old := w.copied()
	w.alter("t", sdk.Alteration{Partitions: to})
	b := w.writer()
	for range 9 {
		b.write("t", to)
		time.Sleep(minute)
	}
	if archive {
		w.compact("t")
		b.write("t", to)
		b.write("t", to)
	}
	time.Sleep(20 * minute)
	w.putBack(old)
	w.reopen()
	return w, o
}

// grownWorld is how a topic is grown in a test: partitions of a lane, how many the topic has then, and whether something was archived since.
type grownWorld struct {
	width, to int
	archive   bool
}

func grownWorlds(t *testing.T, worlds []grownWorld, test func(t *testing.T, width, to int, archive bool)) {
	for i, g := range worlds {
		if i%raceShare > 0 {
			continue
		}
		t.Run(fmt.Sprintf("%d to a lane, %d, archived %t", g.width, g.to, g.archive), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, g.width, g.to, g.archive) })
		})
	}
}

// A topic that was grown after the moment is grown again by its repair, and has all that its new partitions had.
func TestGrownTopicIsGrownAgain(t *testing.T) {
	// within the lane; by one that is begun, and another; by two, by one
	grownWorlds(t, []grownWorld{{64, 4, false}, {64, 4, true}, {3, 6, true}, {2, 6, true}, {2, 4, false}}, func(t *testing.T, width, to int, archive bool) {
		w, o := grownAndRestored(t, width, to, archive)
		o.DryRun = true
		plan := w.mustRepair(o)
		row, err := w.adapter(w.env).Topic(t.Context(), "t")
		check(t, err)
		if row.Partitions != 2 {
			t.Errorf("a dry run has grown it to %d", row.Partitions)
		}
		o.DryRun = false
		report := w.mustRepair(o)
		want := []repair.Grown{{Topic: "t", From: 2, To: to}}
		if !slices.Equal(report.Grown, want) || !slices.Equal(plan.Grown, want) {
			t.Errorf("planned %+v, done %+v", plan.Grown, report.Grown)
		}
		kept, moved := w.sound("t")
		if archive != (kept > 18) {
			t.Errorf("%d records at their offsets, %d rewritten", kept, moved)
		}
		w.whole()
		for _, h := range w.heads("t") {
			if h.ConfigVersion < metadata.VersionStep {
				t.Errorf("lane %s is of version %d", h.Lane, h.ConfigVersion)
			}
		}
		w.writer().write("t", to)
		w.compact("t")
		w.sound("t")
		w.whole()
		if again := w.mustRepair(o); again.Again != 0 || len(again.Grown) > 0 {
			t.Errorf("once more: %+v", again)
		}
	})
}

// Somebody has grown it again before the repair, and appended: by then other lanes have its new partitions. What the forgotten ones had is moved to them, once, also if the table is
// put back again or lost.
func TestGrownTopicThatWasGrownByHand(t *testing.T) {
	grownWorlds(t, []grownWorld{{64, 4, false}, {64, 4, true}, {2, 4, false}, {2, 4, true}}, func(t *testing.T, width, to int, archive bool) {
		w, o := grownAndRestored(t, width, to, archive)
		w.alter("t", sdk.Alteration{Partitions: to})
		old := w.snapshot()
		w.writer().write("t", to)
		time.Sleep(20 * minute)
		report := w.mustRepair(o)
		if len(report.Grown) > 0 || len(report.Unreadable) > 0 {
			t.Errorf("%+v", report)
		}
		w.sound("t")
		w.whole()
		if again := w.mustRepair(o); again.Again != 0 {
			t.Errorf("once more: %+v", again)
		}
		w.writer().write("t", to)
		w.compact("t")
		w.sound("t")
		time.Sleep(20 * minute)
		w.putBack(old)
		if report := w.mustRepair(o); report.Era != 2 {
			t.Errorf("put back again: %+v", report)
		}
		w.all("t")
		w.whole()
		time.Sleep(20 * minute)
		w.lose()
		w.mustRepair(repair.Options{Lost: true, Env: w.env})
		w.reopen()
		w.all(w.onlyTopic())
		w.whole()
	})
}

// Segments that are younger than a quarter of an hour when the repair runs are told of, and come back with the same repair a quarter of an hour later, whoever writes meanwhile. A
// third run finds nothing.
func TestYoungSegmentsComeWithTheNextRun(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.create("t", 2, 2)
			a := w.writer()
			a.minutes("t", 9)
			w.compact("t")
			o, old := w.copied()
			a.minutes("t", 20)
			if lost {
				w.lose()
				o = repair.Options{Lost: true, Env: w.env}
			} else {
				w.putBack(old)
			}
			report := w.mustRepair(o)
			topic := "t"
			if w.reopen(); lost {
				topic = w.onlyTopic()
			}
			if report.Young < 10 || !report.Finished {
				t.Errorf("%+v", report)
			}
			w.create("u", 1, 1) // has no part in the era
			b := w.writer()
			b.minutes(topic, 16)
			b.write("u", 1)
			if report = w.mustRepair(o); report.Young != 0 || report.Again < 10 {
				t.Errorf("second run: %+v", report)
			}
			w.soundAs("t", topic)
			w.whole()
			b.minutes(topic, 3)
			if again := w.mustRepair(o); again.Again != 0 || again.Young != 0 {
				t.Errorf("third run: %+v", again)
			}
			if _, moved := w.sound("u"); moved > 0 {
				t.Error("a topic that was made after the repair was repaired")
			}
		})
	}
}

// The only segments that tell of a growth are young when the repair runs. The new partitions go on in the new era all the same, or they would give offsets twice.
func TestGrowthThatOnlyYoungSegmentsTell(t *testing.T) {
	for _, width := range []int{64, 2} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.create("t", 2, width)
			w.writer().minutes("t", 9)
			o := w.options()
			o.Back = w.env.Now()
			time.Sleep(20 * minute)
			old := w.snapshot()
			w.alter("t", sdk.Alteration{Partitions: 4})
			w.writer().write("t", 4)
			w.putBack(old)
			w.writer().write("t", 2)
			if report := w.mustRepair(o); report.Young == 0 || len(report.Grown) != 1 {
				t.Errorf("%+v", report)
			}
			w.reopen()
			w.writer().write("t", 4)
			time.Sleep(16 * minute)
			w.mustRepair(o)
			w.sound("t")
			w.whole()
			w.alter("t", sdk.Alteration{Partitions: 5}) // this one is new
			w.writer().write("t", 5)
			if again := w.mustRepair(o); again.Again != 0 {
				t.Errorf("%+v", again)
			}
			w.sound("t")
			w.whole()
		})
	}
}

// What comes back may be of a class that the restored row does not know, as retention was changed after the moment. The row has it then among what is stored, or a retention would be promised
// that the class's rule does not keep, and a deletion would leave its objects.
func TestClassesThatComeBackAreStored(t *testing.T) {
	for name, archive := range map[string]bool{"intake": false, "archive": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				_, err := w.log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: "t", Partitions: 2, LaneWidth: 2, Config: map[string]string{"retention.ms": "2592000000"}})
				check(t, err)
				w.writer().minutes("t", 9)
				o, old := w.copied()
				w.alter("t", sdk.Alteration{Config: map[string]string{"retention.ms": "604800000"}})
				a := w.writer()
				a.minutes("t", 9)
				if archive {
					w.compact("t")
				}
				time.Sleep(20 * minute)
				w.putBack(old)
				w.reopen()
				w.mustRepair(o)
				w.sound("t")
				w.whole()
				table := w.adapter(w.env)
				row, err := table.Topic(t.Context(), "t")
				check(t, err)
				if !slices.Contains(row.Stored, 7) || !slices.Contains(row.Classes, 7) || row.EffectiveRetention().Time != 7*24*time.Hour {
					t.Errorf("classes %v, stored %v, in effect %v", row.Classes, row.Stored, row.EffectiveRetention())
				}
				for _, l := range row.Lanes {
					state, err := table.State(t.Context(), l, metadata.Strong)
					check(t, err)
					if h := w.heads("t")[0]; h.ConfigVersion != row.Version || state.Version != row.Version || state.Class != segment.Class(30) {
						t.Errorf("lane %s: head of version %d, state %d with class %s", l, h.ConfigVersion, state.Version, state.Class)
					}
				}
			})
		})
	}
}

// A writer that remembers a change of the retention that the table has forgotten reads the row when the repair has begun, and goes on under the row's class.
func TestWritersForgetWhatTheTableHasForgotten(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.create("t", 2, 2)
			a := w.writer()
			a.minutes("t", 3)
			o, old := w.copied()
			for _, days := range []string{"3", "2"} {
				w.alter("t", sdk.Alteration{Config: map[string]string{"retention.ms": days + "00000000"}})
				a.minutes("t", 3)
			}
			time.Sleep(20 * minute)
			topic := "t"
			if lost {
				w.lose()
				o = repair.Options{Lost: true, Env: w.env}
				plan := o
				plan.DryRun = true
				o.Names = map[segment.TopicID]string{segment.TopicID(w.mustRepair(plan).Topics[0].ID): topic}
			} else {
				w.putBack(old)
			}
			w.mustRepair(o)
			w.reopen()
			row, err := w.adapter(w.env).Topic(t.Context(), topic)
			check(t, err)
			looked := 0
			for range 3 {
				a.minutes(topic, 1)
				entries := w.heads(topic)[0].Entries // none where they have just been spilled
				if len(entries) == 0 {
					continue
				}
				looked++
				if id := entries[len(entries)-1].ID; id.Class() != row.Class() {
					t.Errorf("lost %t: appended under %s, the topic's class is %s", lost, id.Class(), row.Class())
				}
			}
			if looked < 2 {
				t.Errorf("lost %t: %d of 3 commits were seen", lost, looked)
			}
		})
	}
}

// A writer that has spilled what the table has forgotten does not continue the chunks of that time when, in the new era, it comes to the same order.
func TestWritersForgetChunks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("t", 2, 2)
		a, b := w.writer(), w.writer()
		orders := func(x *writer, to int64, partitions int) {
			for w.heads("t")[0].Next < to {
				x.write("t", partitions)
				time.Sleep(minute)
			}
		}
		orders(a, 5, 1)
		o, old := w.copied()
		orders(a, 16, 1)
		w.compact("t")
		time.Sleep(20 * minute)
		w.putBack(old)
		w.mustRepair(o)
		if h := w.heads("t")[0]; h.Next != 8 {
			t.Fatalf("the era begins at order %d", h.Next)
		}
		orders(b, 16, 2)
		orders(a, 24, 1) // nothing of partition 1
		synctest.Wait()
		w.whole()
	})
}

// The latest times of the rows go on rising in the new era, though the chunks before it do not know those of what came back from the archive.
func TestLatestTimesGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("t", 2, 2)
		a := w.writer()
		a.minutes("t", 5)
		o, old := w.copied()
		ahead := w.env.Now().Add(50 * minute).Truncate(time.Millisecond)
		check(t, a.p.ProduceSync(t.Context(), &sdk.Record{Topic: "t", Value: []byte("ahead"), Timestamp: ahead}).Err())
		w.compact("t")
		a.minutes("t", 3)
		time.Sleep(20 * minute)
		w.putBack(old)
		w.mustRepair(o)
		for range 2 {
			for range 8 {
				a.write("t", 2)
			}
			w.compact("t")
			w.whole()
		}
		if first, err := w.log.Admin().OffsetForTime(t.Context(), "t", 0, ahead); err != nil || first != 5 {
			t.Errorf("from %v on the first is %d, %v", ahead, first, err)
		}
	})
}

// A writer that remembers a growth of which no segment tells learns that the partitions are none any more, and what it has for them is refused.
func TestWritersForgetPartitions(t *testing.T) {
	for name, send := range map[string]func(context.Context, *sdk.Producer, *sdk.Record) error{
		"produced":            func(ctx context.Context, p *sdk.Producer, r *sdk.Record) error { return p.ProduceSync(ctx, r).Err() },
		"appended atomically": func(ctx context.Context, p *sdk.Producer, r *sdk.Record) error { return p.AppendAtomic(ctx, r) },
		"for a transaction": func(ctx context.Context, p *sdk.Producer, r *sdk.Record) error {
			_, err := p.Prepare(ctx, r)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { writersForgetPartitions(t, send) }) })
	}
}

func writersForgetPartitions(t *testing.T, send func(context.Context, *sdk.Producer, *sdk.Record) error) {
	w := newWorld(t)
	w.create("t", 2, 64)
	w.writer().minutes("t", 3)
	o, old := w.copied()
	w.alter("t", sdk.Alteration{Partitions: 4})
	a := w.writer()
	a.minutes("t", 1) // knows of all four
	time.Sleep(20 * minute)
	w.putBack(old)
	w.mustRepair(o)
	w.reopen()
	for range 2 {
		err := send(t.Context(), a.p, &sdk.Record{Topic: "t", Partition: 3, Value: []byte("lost")})
		if !errors.Is(err, sdk.ErrNoPartition) || sdk.OutcomeOf(err) != sdk.NotApplied {
			t.Errorf("to a partition that is none any more: %v", err)
		}
	}
	a.write("t", 2)
	w.sound("t")
	w.whole()
	w.alter("t", sdk.Alteration{Partitions: 4})
	a.write("t", 2)
	a.write("t", 4)
	w.sound("t")
	w.whole()
}

// What such a writer sends together with what has a partition is withdrawn: the commit names the slot, with no record. That is no damage.
func TestWithdrawnFromForgottenPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("t", 2, 64)
		w.writer().minutes("t", 3)
		o, old := w.copied()
		w.alter("t", sdk.Alteration{Partitions: 4})
		p, err := w.open().NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()), sdk.WithLinger(time.Second, time.Second))
		check(t, err)
		a := &writer{w, p}
		a.minutes("t", 1) // knows of all four
		time.Sleep(20 * minute)
		w.putBack(old)
		w.mustRepair(o)
		w.reopen()
		p.Produce(t.Context(), &sdk.Record{Topic: "t", Partition: 3, Value: []byte("lost")}, func(_ *sdk.Record, err error) {
			if !errors.Is(err, sdk.ErrNoPartition) {
				t.Errorf("to a partition that is none any more: %v", err)
			}
		})
		a.write("t", 2)
		if h := w.heads("t")[0]; len(h.Entries[len(h.Entries)-1].Slots) != 3 {
			t.Fatalf("the last commit has slots %v", h.Entries[len(h.Entries)-1].Slots)
		}
		w.sound("t")
		w.whole()
	})
}
