package lane_test

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/env"
	engine "github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/lane"
	"github.com/varvelog/varve/segment"
)

// together is three lanes, with a bench for each over one table.
type together struct {
	*bench
	lanes []*bench
}

func onThree(t *testing.T, f func(b *together)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db := newDatabase(t, env.System(), engine.Options{}, 3)
		b := &together{bench: newBench(t, db)}
		for _, l := range db.lanes {
			b.lanes = append(b.lanes, &bench{t: t, env: b.env, db: db, table: b.table, lane: l})
		}
		f(b)
		b.close()
		if err := db.engine.Close(); err != nil {
			t.Error(err)
		}
	})
}

// whole makes a segment with two records in slots 1 and 9 of each lane.
func (b *together) whole() lane.Whole {
	s := b.segment(1, 9)
	w := lane.Whole{ID: s.ID, Minted: s.Minted, Deadline: s.Deadline}
	for _, l := range b.lanes {
		w.Parts = append(w.Parts, lane.Part{Lane: l.lane, Version: 1, Slots: s.Slots})
	}
	return w
}

func (b *together) commitAll(w lane.Whole) ([]lane.Result, error) {
	return lane.CommitAll(context.Background(), lane.AllConfig{Table: b.table, Env: b.env, Writer: 3, Hooks: b.config.Hooks}, w)
}

// verify compares results, or their absence, with all three lanes.
func (b *together) verify(id segment.ID, rs []lane.Result, err, want error) {
	b.t.Helper()
	if !errors.Is(err, want) || (err == nil) != (want == nil) {
		b.t.Fatalf("%v, want %v", err, want)
	}
	for i, l := range b.lanes {
		r := lane.Result{ID: id, Err: err}
		if err == nil {
			r = rs[i]
			if r.Order < 0 || r.Slots[0].Base < 0 {
				b.t.Errorf("lane %d: %+v", i, r)
			}
		}
		l.check(r, want)
	}
}

func TestCommitAll(t *testing.T) {
	onThree(t, func(b *together) {
		b.lanes[1].config = b.config
		b.others(11)
		for range 12 {
			w := b.whole()
			rs, err := b.commitAll(w)
			b.verify(w.ID, rs, err, nil)
		}
		if h := b.lanes[2].strong(); h.Next != 12 || h.First != 8 {
			t.Errorf("lane 2 has [%d, %d): not spilled", h.First, h.Next)
		}
		if c := b.table.counts(); c["CommitAll"] != 12 {
			t.Errorf("%v", c)
		}
	})
}

// What is unknown is sent again under its token, which cannot apply it twice; what stays unknown is fenced.
func TestCommitAllUnknown(t *testing.T) {
	down := func(until time.Duration, applied bool) func(*bench) func(string, int) *fault {
		return func(b *bench) func(string, int) *fault {
			start := time.Now()
			return func(op string, n int) *fault {
				if op == "CommitAll" && time.Since(start) < until {
					return &fault{applied: applied && n == 1, wait: time.Second}
				}
				return nil
			}
		}
	}
	for name, c := range map[string]struct {
		fault    func(*bench) func(string, int) *fault
		branches map[lane.Branch]int
		want     error
	}{
		"lost":                      {down(3*time.Second, false), map[lane.Branch]int{}, nil},
		"answer lost":               {down(3*time.Second, true), map[lane.Branch]int{}, nil},
		"lost for the token's life": {down(11*time.Minute, false), map[lane.Branch]int{lane.NotApplied: 1}, lane.ErrStaleID},
		"applied, answers lost":     {down(11*time.Minute, true), map[lane.Branch]int{lane.FoundInHead: 1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			onThree(t, func(b *together) {
				b.table.fault = c.fault(b.bench)
				w := b.whole()
				w.Deadline += 20 * time.Minute
				rs, err := b.commitAll(w)
				b.verify(w.ID, rs, err, c.want)
				if !reflect.DeepEqual(b.branches, c.branches) {
					t.Errorf("settled by %v", b.branches)
				}
			})
		})
	}
}

// A repeat that is refused tells nothing of the first: that may be applied still, when the head has become as it asks.
func TestCommitAllRefusedRepeatIsSettled(t *testing.T) {
	onThree(t, func(b *together) {
		w := b.whole()
		w.Parts[0].Expect = []metadata.Expect{{Slot: 9, Offset: 1}}
		w.Parts[0].Slots = w.Parts[0].Slots[1:]
		late := make(chan struct{})
		b.table.fault = plan{"CommitAll": {{late: late}}}.decide
		_, err := b.commitAll(w)
		b.others(1) // now the offset is as asked for, but the fence stands
		close(late)
		synctest.Wait()
		b.verify(w.ID, nil, err, lane.ErrOffset)
		b.branch(lane.NotApplied)
	})
}

// A repeat has its token, so that it cannot apply twice; what is sent with other conditions has another.
func TestCommitAllTokens(t *testing.T) {
	onThree(t, func(b *together) {
		b.table.fault = func(op string, n int) *fault {
			switch {
			case op == "CommitAll" && n == 1:
				b.lanes[1].setConfig(2, class) // raises the epochs, so that the first is refused
			case op == "CommitAll" && n == 2:
				return lost
			}
			return nil
		}
		w := b.whole()
		rs, err := b.commitAll(w)
		b.verify(w.ID, rs, err, nil)
		if k := b.table.tokens; len(k) != 3 || k[0] == k[1] || k[1] != k[2] {
			t.Errorf("tokens %q", k)
		}
	})
}

// Repeats end when the id gets too old; the fence settles the rest.
func TestCommitAllTooOldToRepeat(t *testing.T) {
	onThree(t, func(b *together) {
		w := b.whole()
		w.Deadline += time.Hour
		time.Sleep(9 * time.Minute)
		start := time.Now()
		b.table.fault = func(op string, n int) *fault {
			if op == "CommitAll" {
				if old := time.Since(start) + 9*time.Minute; old >= metadata.MaxSegmentAge {
					t.Errorf("sent at the age of %v", old)
				}
				return &fault{applied: n == 1}
			}
			return nil
		}
		rs, err := b.commitAll(w)
		b.verify(w.ID, rs, err, nil)
		b.branch(lane.FoundInHead)
	})
}

func TestCommitAllCancelled(t *testing.T) {
	onThree(t, func(b *together) {
		b.table.fault = func(string, int) *fault { return &fault{err: metadata.ErrThrottled, wait: time.Second} }
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		w := b.whole()
		_, err := lane.CommitAll(ctx, lane.AllConfig{Table: b.table, Env: b.env}, w)
		b.verify(w.ID, nil, err, context.DeadlineExceeded)
		if _, err := lane.CommitAll(ctx, lane.AllConfig{Table: b.table, Env: b.env}, lane.Whole{}); !errors.Is(err, metadata.ErrInvalid) {
			t.Errorf("no parts: %v", err)
		}
	})
}

func TestCommitAllContended(t *testing.T) {
	onThree(t, func(b *together) {
		b.table.fault = func(op string, n int) *fault {
			if op == "CommitAll" {
				return &fault{err: metadata.ErrContended}
			}
			return nil
		}
		start := time.Now()
		w := b.whole()
		_, err := b.commitAll(w)
		b.verify(w.ID, nil, err, metadata.ErrContended)
		if !errors.Is(err, lane.ErrDeadline) || time.Since(start) != 2*time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestCommitAllRefusals(t *testing.T) {
	floor := func(b *together, w *lane.Whole) {
		b.lanes[1].setFloor(segment.NewID(w.ID.Time().Add(time.Minute), class, segment.InBucket, 1, segment.ID{}))
	}
	for name, c := range map[string]struct {
		do   func(*together, *lane.Whole)
		want error
	}{
		"token":         {func(_ *together, w *lane.Whole) { w.Parts[1].Tokens = []metadata.Token{{Slot: 1, Token: 5}} }, lane.ErrFenced},
		"offset":        {func(_ *together, w *lane.Whole) { w.Parts[2].Expect = []metadata.Expect{{Slot: 1, Offset: 5}} }, lane.ErrOffset},
		"no such lane":  {func(_ *together, w *lane.Whole) { w.Parts[1].Lane = "other" }, metadata.ErrNoLane},
		"floor":         {floor, lane.ErrStaleID},
		"another class": {func(b *together, _ *lane.Whole) { b.lanes[2].setConfig(2, 30) }, lane.ErrStaleID},
		"too old":       {func(_ *together, w *lane.Whole) { w.Deadline += time.Hour; time.Sleep(metadata.MaxSegmentAge) }, lane.ErrStaleID},
		"too late":      {func(*together, *lane.Whole) { time.Sleep(2 * time.Minute) }, lane.ErrDeadline},
		"class known":   {func(b *together, w *lane.Whole) { w.Parts[2].Version = 2; b.lanes[2].setConfig(2, 30) }, nil},
		"epochs raised after the look": {func(b *together, _ *lane.Whole) {
			b.table.fault = func(op string, n int) *fault {
				if op == "CommitAll" && n == 1 {
					b.lanes[1].setConfig(2, class)
				}
				return nil
			}
		}, nil},
		"the cap was only old": {func(b *together, _ *lane.Whole) {
			b.table.fault = func(op string, n int) *fault {
				if op == "CommitAll" && n == 1 {
					b.others(100)
				}
				return nil
			}
		}, nil},
		"lane deleted after the look": {func(b *together, _ *lane.Whole) {
			b.table.fault = func(op string, n int) *fault {
				if op == "CommitAll" && n == 1 {
					if err := b.table.Table.DeleteHead(context.Background(), b.lanes[1].lane); err != nil {
						b.t.Error(err)
					}
				}
				return nil
			}
		}, metadata.ErrNoLane},
	} {
		t.Run(name, func(t *testing.T) {
			onThree(t, func(b *together) {
				w := b.whole()
				c.do(b, &w)
				rs, err := b.commitAll(w)
				if c.want == metadata.ErrNoLane { // one of the three cannot be read
					b.lanes = []*bench{b.lanes[0], b.lanes[2]}
				}
				b.verify(w.ID, rs, err, c.want)
			})
		})
	}
}

// A head that is full is spilled first; when that fails until the deadline it is said.
func TestCommitAllFull(t *testing.T) {
	for _, broken := range []bool{false, true} {
		onThree(t, func(b *together) {
			var spill atomic.Bool
			b.table.fault = func(op string, n int) *fault {
				if op == "PutChunk" && !spill.Load() {
					return lost
				}
				return nil
			}
			for range metadata.MaxHeadEntries {
				b.commit(9)
			}
			spill.Store(!broken)
			w := b.whole()
			rs, err := b.commitAll(w)
			if broken {
				b.verify(w.ID, rs, err, lane.ErrBackpressure)
			} else {
				b.verify(w.ID, rs, err, nil)
			}
		})
	}
}
