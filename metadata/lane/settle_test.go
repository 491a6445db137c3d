package lane_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/lane"
)

// plan lets the first calls of an operation go wrong, one after another; nil entries are left alone.
type plan map[string][]*fault

func (p plan) decide(op string, n int) *fault {
	if n <= len(p[op]) {
		return p[op][n-1]
	}
	return nil
}

var (
	lost    = &fault{}              // the request never arrived
	applied = &fault{applied: true} // it was performed, the answer was lost
	late    = &fault{lateBy: 20 * time.Second}
)

func times(n int, f *fault) (fs []*fault) {
	for range n {
		fs = append(fs, f)
	}
	return fs
}

// The fault table: for every step of a commit and its settlement, lost before, lost after and applied late,
// while the commit itself was one of these.
func TestFaultTable(t *testing.T) {
	steps := map[string]plan{
		"nothing else":             {},
		"the read is lost":         {"Head": {nil, lost, lost}},
		"the fence is lost":        {"RaiseEpoch": {lost, lost}},
		"the fence's answer, too":  {"RaiseEpoch": {applied}},
		"the fence is late":        {"RaiseEpoch": {late, lost}},
		"the second is late":       {"Commit": {nil, late}},
		"the chunks do not come":   {"Chunks": times(3, lost)},
		"it is throttled":          {"Head": {nil, throttled}, "RaiseEpoch": {throttled}, "Chunks": {throttled}},
		"everything once":          {"Head": {nil, lost}, "RaiseEpoch": {applied}, "Chunks": {lost}},
		"the second attempt, too":  {"Commit": {nil, lost}}, // the first is set below
		"and its answer":           {"Commit": {nil, applied}},
		"and it is throttled":      {"Commit": {nil, throttled}},
		"everything for a quarter": {"Head": append([]*fault{nil}, times(15, lost)...), "RaiseEpoch": times(15, lost), "Chunks": times(15, lost)},
	}
	for name, p := range steps {
		for _, c := range []struct {
			name  string
			first *fault
			want  lane.Branch
		}{
			{"commit lost", lost, lane.NotApplied},
			{"commit applied", applied, lane.FoundInHead},
			{"commit late", late, lane.NotApplied},
		} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				on(t, func(b *bench) {
					b.others(3)
					with := plan{}
					for op, fs := range p {
						with[op] = fs
					}
					with["Commit"] = append([]*fault{c.first}, p["Commit"][min(1, len(p["Commit"])):]...)
					b.table.fault = with.decide
					r := b.commit(1, 5)
					b.check(r, nil)
					b.note(func() {
						if b.branches[c.want] < 1 || b.branches[lane.Unknown] > 0 {
							t.Errorf("settled by %v", b.branches)
						}
					})
					again := b.commit(1, 5)
					time.Sleep(time.Minute) // what is late has arrived
					b.check(r, nil)
					b.check(again, nil)
				})
			})
		}
	}
}

var throttled = &fault{err: metadata.ErrThrottled}

// A commit that is applied late: by what it meets then, it is found or it can no longer be applied.
func TestAppliedLate(t *testing.T) {
	for _, c := range []struct {
		name   string
		op     string // when this is called, before it is performed
		n      int
		want   lane.Branch
		fences int
	}{
		{"before the read", "Head", 2, lane.FoundInHead, 0},
		{"before the fence", "RaiseEpoch", 1, lane.FoundInHead, 1},
		{"after the fence", "Commit", 2, lane.NotApplied, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			on(t, func(b *bench) {
				late := make(chan struct{})
				b.table.fault = func(op string, n int) *fault {
					if op == "Commit" && n == 1 {
						return &fault{late: late}
					}
					if op == c.op && n == c.n {
						close(late)
						return &fault{delay: time.Millisecond}
					}
					return nil
				}
				r := b.commit(1)
				b.check(r, nil)
				b.branch(c.want)
				if n := b.table.counts()["RaiseEpoch"]; n != c.fences {
					t.Errorf("%d fences, want %d: each costs the others that share the epoch an attempt", n, c.fences)
				}
			})
		})
	}
}

// The fence is what keeps a late attempt out after its entry has left the head: attribute_not_exists alone
// would let it in again.
func TestLateAfterItsCopyWasSpilled(t *testing.T) {
	on(t, func(b *bench) {
		late := make(chan struct{})
		b.table.fault = func(op string, n int) *fault {
			if op == "Commit" && n == 1 {
				return &fault{late: late}
			}
			return nil
		}
		r := b.commit(1)
		b.others(10)
		close(late)
		synctest.Wait()
		b.check(r, nil)
		b.branch(lane.NotApplied)
	})
}

func TestFoundInChunk(t *testing.T) {
	on(t, func(b *bench) {
		b.others(6)
		b.table.fault = plan{"Commit": {{applied: true, then: func(context.Context) { b.others(10) }}}}.decide
		b.check(b.commit(1, 5), nil)
		b.branch(lane.FoundInChunk)
	})
}

// An update whose entries a chunk boundary has split is found by any of them, and all get their places.
func TestFoundSplitByAChunk(t *testing.T) {
	on(t, func(b *bench) {
		b.others(6)
		b.table.fault = plan{"Commit": {
			{delay: time.Second}, // the next ones gather meanwhile
			{applied: true, then: func(context.Context) { b.others(3) }},
		}}.decide
		var results []<-chan lane.Result
		for range 5 {
			results = append(results, b.send(b.segment(1, 9)))
			synctest.Wait()
		}
		for _, c := range results {
			b.check(<-c, nil)
		}
		b.note(func() {
			if len(b.commits) != 2 || b.commits[1].Segments != 4 {
				t.Errorf("commits %+v", b.commits)
			}
		})
	})
}

// A chunk that would tell is missing: nobody knows, so nobody says failed, and it is not sent again.
func TestChunkMissingIsUnknown(t *testing.T) {
	on(t, func(b *bench) {
		b.others(6)
		b.table.fault = func(op string, n int) *fault {
			switch {
			case op == "Commit" && n == 1:
				return &fault{applied: true, then: func(context.Context) { b.others(10) }}
			case op == "Chunks":
				return &fault{empty: true}
			}
			return nil
		}
		r := b.commit(1)
		b.check(r, lane.ErrUnknown)
		var unknown *lane.UnknownError
		if !errors.As(r.Err, &unknown) || unknown.ID != r.ID || unknown.Since != 6 || !errors.Is(r.Err, metadata.ErrNoChunk) {
			t.Errorf("%+v", r.Err)
		}
		b.branch(lane.Unknown)
		if n := b.table.counts()["Commit"]; n != 1 {
			t.Errorf("%d commits were sent", n)
		}
	})
}

// The table is gone from the attempt to the end of the budget: the outcome is unknown then, not earlier, not
// failed. What is sent afterwards waits for a fence, since the attempt could still be applied behind it.
func TestUnsettledIsUnknownAndThenFenced(t *testing.T) {
	on(t, func(b *bench) {
		b.check(b.commit(1), nil)
		late := make(chan struct{})
		var down atomic.Bool
		down.Store(true)
		b.table.fault = func(op string, n int) *fault {
			switch {
			case op == "Commit" && down.Load():
				return &fault{late: late, wait: 3 * time.Second}
			case down.Load():
				return &fault{wait: time.Second}
			}
			return nil
		}
		start := time.Now()
		r := b.commit(1)
		b.check(r, lane.ErrUnknown)
		if took := time.Since(start); took < 150*time.Second || took > 152*time.Second {
			t.Errorf("given up after %v, want deadline 2m + budget 30s", took)
		}
		b.branch(lane.Unknown)
		down.Store(false)
		b.table.counts()
		second := b.commit(1)
		close(late)
		synctest.Wait()
		b.check(second, nil)
		b.check(r, lane.ErrUnknown)
		if c := b.table.counts(); c["RaiseEpoch"] != 1 || c["Commit"] != 1 {
			t.Errorf("after the unknown one: %v", c)
		}
		if entries, _ := b.log(); len(entries) != 2 {
			t.Errorf("%d entries: the late attempt was applied behind its successor", len(entries))
		}
	})
}

// BR-07: our own write looks like somebody else's.
func TestBR07_OwnWriteIsRecognised(t *testing.T) {
	t.Run("sent twice below us", func(t *testing.T) {
		on(t, func(b *bench) {
			b.others(2)
			b.table.fault = func(op string, n int) *fault {
				if op == "Commit" && n == 1 {
					return &fault{twice: true}
				}
				return nil
			}
			b.check(b.commit(1), nil)
			b.branch()
		})
	})
	t.Run("a competitor won", func(t *testing.T) {
		on(t, func(b *bench) {
			b.others(2)
			s := b.segment(9)
			s.Expect = []metadata.Expect{{Slot: 9, Offset: 4}}
			b.table.fault = plan{"Commit": {{err: metadata.ErrOutcomeUnknown, then: func(context.Context) { b.others(1) }}}}.decide
			r := <-b.send(s)
			b.check(r, lane.ErrOffset)
			var condition *lane.ConditionError
			if !errors.As(r.Err, &condition) || condition.End != 6 || condition.Asked != 4 || condition.Slot != 9 {
				t.Errorf("%+v", r.Err)
			}
		})
	})
	t.Run("ours was applied, then a competitor", func(t *testing.T) {
		on(t, func(b *bench) {
			b.others(2)
			s := b.segment(9)
			s.Expect = []metadata.Expect{{Slot: 9, Offset: 4}}
			b.table.fault = plan{"Commit": {{applied: true, then: func(context.Context) { b.others(1) }}}}.decide
			r := <-b.send(s)
			b.check(r, nil)
			if r.Slots[0].Base != 4 {
				t.Errorf("%+v", r)
			}
		})
	})
}

// The table was put back to an earlier moment, of which the writer is not told: it remembers orders that the lane has yet to come to. An attempt that is applied below them, whose answer is lost
// and whose entry has left the head since, is sought from those on, and so not found: that is no proof.
func TestForgottenOrdersProveNothing(t *testing.T) {
	remembered := func(b *bench) {
		h := *b.strong()
		h.Next, h.First, h.Entries = 40, 32, nil
		b.writer.Observe(&h)
	}
	for name, c := range map[string]struct {
		first bool // something is answered before
		then  func(b *bench)
		want  error
		by    lane.Branch
	}{
		"the lane is behind":          {false, func(b *bench) { b.others(6) }, lane.ErrUnknown, lane.Unknown},
		"it was, by an answer before": {true, func(b *bench) { b.others(40) }, nil, lane.FoundInChunk},
		"it was, and a repair has raised the epochs": {false, func(b *bench) {
			b.others(40)
			if _, err := b.table.Table.Fence(context.Background(), b.lane); err != nil {
				t.Error(err)
			}
		}, lane.ErrUnknown, lane.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, func(b *bench) {
				b.others(5)
				remembered(b)
				if c.first {
					b.check(b.commit(1), nil)
				}
				lost := &fault{applied: true, then: func(context.Context) { c.then(b) }}
				b.table.fault = func(op string, n int) *fault {
					if op == "Commit" && (n == 2 || !c.first) {
						return lost
					}
					return nil
				}
				b.check(b.commit(1), c.want)
				b.branch(c.by)
			})
		})
	}
}
