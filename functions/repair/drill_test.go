package repair_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/repair"
	"github.com/varvelog/varve/functions/verify"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// TestDrillRestore puts the table back to an hour ago, or to a raceShare of it, while writers go on.
func TestDrillRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("t", 4, 2)
		a, b := w.writer(), w.writer()
		for range 30 / raceShare {
			a.write("t", 4)
			time.Sleep(minute)
		}
		w.compact("t")
		for range 5 { // not in the archive at that moment
			b.write("t", 4)
			time.Sleep(minute)
		}
		back := w.env.Now()
		time.Sleep(time.Second)
		old := w.snapshot()
		for i := range 60 / raceShare {
			a.write("t", 4)
			b.write("t", 3)
			time.Sleep(minute)
			if i == 20/raceShare {
				w.compact("t")
			}
		}
		before := len(w.acks)
		w.putBack(old)
		for range 20 { // they do not know
			a.write("t", 4)
			time.Sleep(minute)
		}
		if told := w.kinds(); told[verify.TableBehind] != 1 {
			t.Errorf("verify tells %v", told)
		}
		done := make(chan struct{})
		stop := make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
					a.write("t", 4)
					time.Sleep(10 * time.Second)
				}
			}
		}()
		o := w.options()
		o.Back = back
		dry := o
		dry.DryRun = true
		plan := w.mustRepair(dry)
		report := w.mustRepair(o)
		close(stop)
		<-done
		for range 12 / raceShare {
			b.write("t", 4)
			time.Sleep(minute)
		}
		kept, moved := w.sound("t")
		t.Logf("%d records acknowledged before the restore, %d in all; %d at their offsets, %d offsets rewritten", before, len(w.acks), kept, moved)
		t.Logf("planned %+v", *plan)
		t.Logf("done %+v", *report)
		w.whole()
		w.compact("t")
		w.sound("t")
		w.whole()
		if told := w.kinds(); told[verify.TableBehind] != 0 {
			t.Errorf("verify tells %v", told)
		}
		if again := w.mustRepair(o); again.Again != 0 || again.Era != 1 {
			t.Errorf("once more: %+v", again)
		}
		w.sound("t")
	})
}

// TestDrillLost loses the table. What was archived comes back at its offsets, the rest behind them.
func TestDrillLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("t", 5, 2)
		w.create("u", 1, 1)
		a := w.writer()
		for i := range (40/raceShare + 8) / 8 * 8 {
			a.write("t", 5)
			if i%2 == 0 {
				a.write("u", 1)
			}
			time.Sleep(minute)
			if i%8 == 7 {
				w.compact("t", "u")
			}
		}
		archived := map[string]int64{}
		for _, x := range w.acks {
			archived[x.topic] = max(archived[x.topic], x.offset+1)
		}
		for range 3 {
			a.write("t", 5)
			a.write("u", 1)
		}
		time.Sleep(30 * minute)
		w.lose()
		o := repair.Options{Lost: true, Env: w.env, DryRun: true}
		plan := w.mustRepair(o)
		if len(plan.Topics) != 2 {
			t.Fatalf("%+v", plan)
		}
		o.DryRun, o.Names = false, map[segment.TopicID]string{}
		for _, r := range plan.Topics {
			o.Names[segment.TopicID(r.ID)] = map[int]string{5: "t", 1: "u"}[r.Partitions]
		}
		report := w.mustRepair(o)
		w.reopen()
		for _, topic := range []string{"t", "u"} {
			kept, moved := w.sound(topic)
			t.Logf("topic %s: %d records at their offsets, %d offsets rewritten", topic, kept, moved)
		}
		for _, p := range report.Partitions {
			if p.Exact != archived[p.Topic] || p.Cut != metadata.EraStep || p.Appended != 3 || p.Returned != p.Exact {
				t.Errorf("%+v, archived were %d", p, archived[p.Topic])
			}
		}
		w.whole()
		b := w.writer()
		for range 9 {
			b.write("t", 5)
		}
		w.compact("t", "u")
		w.sound("t")
		w.whole()
	})
}

// TestDrillTwice puts the table back to before a repair, and loses it then: offsets still stand for one record, and no record comes twice.
func TestDrillTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("t", 2, 2)
		a := w.writer()
		write := func(n int) { a.minutes("t", n) }
		write(10)
		first := w.options()
		first.Back = w.env.Now()
		time.Sleep(time.Second)
		old, older := w.snapshot(), w.snapshot()
		write(10)
		w.putBack(old)
		write(3)
		time.Sleep(20 * minute)
		w.mustRepair(first)
		write(12)
		w.sound("t")
		time.Sleep(20 * minute)
		w.putBack(older)
		if told := w.kinds(); told[verify.RepairUnfinished] != 1 {
			t.Errorf("verify tells %v", told)
		}
		report := w.mustRepair(first)
		if report.Era != 2 || report.Jump != 2*metadata.EraStep {
			t.Errorf("%+v", report)
		}
		w.sound("t")
		w.whole()
		write(5)
		time.Sleep(20 * minute)
		w.lose()
		report = w.mustRepair(repair.Options{Lost: true, Env: w.env})
		if report.Era != 3 || report.Jump != 3*metadata.EraStep {
			t.Errorf("%+v", report)
		}
		w.reopen()
		w.soundAs("t", w.onlyTopic())
		w.whole()
	})
}

// TestPositionsInACut: a reader whose position lies in a cut is told, and goes on behind it if that is its policy.
func TestPositionsInACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, o := restored(t)
		w.mustRepair(o)
		var outside *sdk.RangeError
		if _, err := w.at("t", 0, 19); !errors.As(err, &outside) || outside.CutTo != metadata.EraStep || outside.Start != 0 || outside.End <= metadata.EraStep {
			t.Fatalf("%+v, %v", outside, err)
		}
		r, err := w.log.NewReader(w.Context(), "t", sdk.ReadPartitions(0), sdk.FromOffsets(map[int]int64{0: 19}), sdk.OnExpired(sdk.ResetEarliest), sdk.To(sdk.Latest))
		check(t, err)
		defer r.Close()
		fetches, err := r.Poll(w.Context())
		if err != nil || fetches[0].Records[0].Offset != metadata.EraStep {
			t.Errorf("%+v, %v", fetches, err)
		}
	})
}

// TestSmallSegments: what was in the table itself and not archived is lost with it; what was, comes back exact; what was written since is appended again.
func TestSmallSegments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("t", 2, 2)
		a := w.writer(sdk.WithSmallSegments(4000))
		write := func(n int) { a.minutes("t", n) }
		write(9)
		w.compact("t")
		write(3)
		o, old := w.copied()
		write(5)
		w.compact("t")
		before := len(w.acks)
		write(3)
		w.gone = map[string]bool{}
		for _, x := range w.acks[before:] {
			w.gone[x.value] = true
		}
		w.putBack(old)
		write(2)
		time.Sleep(20 * minute)
		report := w.mustRepair(o)
		kept, moved := w.sound("t")
		t.Logf("%d at their offsets, %d rewritten, %d lost with the table", kept, moved, len(w.gone))
		for _, p := range report.Partitions {
			if p.Returned != 8 || p.Appended != 2 { // 3 that were not archived at that moment, and 5 after it
				t.Errorf("%+v", p)
			}
		}
		if n := len(w.read("t")); n != before+4 {
			t.Errorf("%d records, want %d", n, before+4)
		}
		w.whole()
	})
}

// TestDrillForgetsProducers: a table that was put back, or lost, takes a request that was appended since for the next one, or the first. After the repair nobody can say
// whether it was, and nobody appends it again in silence.
func TestDrillForgetsProducers(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.create("t", 1, 1)
			ctx := context.Background()
			once := func(id sdk.ProducerID, n int64) error { // as one process after another
				p, err := w.log.NewProducer()
				check(t, err)
				defer p.Close(ctx)
				_, err = p.AppendOnce(ctx, id, n, &sdk.Record{Topic: "t", Value: []byte{byte(n)}})
				return err
			}
			young, old := metadata.NewProducerID(w.env.Now(), 2), metadata.NewProducerID(w.env.Now(), 1)
			check(t, once(old, 1))
			time.Sleep(minute)
			o := w.options()
			o.Back = w.env.Now()
			time.Sleep(time.Second)
			before := w.snapshot()
			check(t, once(old, 2))
			check(t, once(young, 1))
			time.Sleep(30 * minute)
			if lost {
				w.lose()
				o = repair.Options{Lost: true, Env: w.env, DryRun: true}
				plan := w.mustRepair(o)
				o.DryRun, o.Names = false, map[segment.TopicID]string{segment.TopicID(plan.Topics[0].ID): "t"}
			} else {
				w.putBack(before)
			}
			w.mustRepair(o)
			if lost {
				w.reopen()
			}
			if err := once(old, 2); !errors.Is(err, sdk.ErrProducerEvicted) {
				t.Errorf("lost %v: the second request of the one that was known: %v", lost, err)
			}
			if err := once(young, 1); !errors.Is(err, sdk.ErrProducerEvicted) {
				t.Errorf("lost %v: the first request of the one that was not: %v", lost, err)
			}
			check(t, once(metadata.NewProducerID(w.env.Now(), 1), 1))
		})
	}
}
