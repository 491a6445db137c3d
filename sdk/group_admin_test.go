package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

func tp(topic string, partition int) sdk.TopicPartition {
	return sdk.TopicPartition{Topic: topic, Partition: partition}
}

// once is one life of a member that reads for a while and commits all it got.
func once(t *testing.T, log *sdk.Log, group string, topics []string, opts ...sdk.ConsumerOption) {
	t.Helper()
	e := eat(t, log, group, topics, opts...)
	time.Sleep(20 * time.Second)
	e.close(t)
}

func (b *bench) describe(group string, start sdk.Position) *sdk.GroupDescription {
	b.t.Helper()
	d, err := b.log.Admin().DescribeGroup(b.ctx, group, start)
	check(b.t, err)
	return d
}

// 4 partitions, 10 members: 4 are busy, 6 are named as idle, with the reason.
func TestDescribeGroupNamesTheIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 4, 64)
		b.fill("t", 4, 10)
		var members []*eater
		for i := range 10 {
			members = append(members, eat(t, b.log, "g", []string{"t"}, sdk.WithClientName(fmt.Sprint("host ", i))))
		}
		time.Sleep(time.Minute)
		d := b.describe("g", sdk.Earliest)
		busy, idle := 0, 0
		for _, m := range d.Members {
			if len(m.Partitions) == 1 && m.Idle == "" {
				busy++
			}
			if len(m.Partitions) == 0 && m.Idle != "" {
				idle++
			}
			if m.Partitions == nil { // which JSON has another word for
				t.Errorf("%s has no list of partitions", m.Name)
			}
		}
		if busy != 4 || idle != 6 || len(d.Members) != 10 {
			t.Errorf("%d busy, %d idle: %+v", busy, idle, d.Members)
		}
		owners := map[string]bool{}
		for _, p := range d.Partitions {
			owners[p.Owner] = true
			if p.Lag != 0 || p.Committed != 10 || p.End != 10 {
				t.Errorf("%+v", p)
			}
		}
		if len(owners) != 4 || owners[""] {
			t.Errorf("owners %v", owners)
		}
		groups, err := b.log.Admin().ListGroups(b.ctx)
		check(t, err)
		if !slices.Equal(groups, []string{"g"}) {
			t.Errorf("groups %v", groups)
		}
		for _, m := range members {
			m.close(t)
		}
	})
}

// BR-29: lag is never negative, and "no commit" is not zero.
func TestBR29_Lag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 2, 64)
		if _, err := b.log.Admin().DescribeGroup(b.ctx, "g", sdk.Earliest); !errors.Is(err, sdk.ErrUnknownGroup) {
			t.Errorf("a group that is not there: %v", err)
		}
		b.fill("t", 2, 40)
		once(t, b.log, "g", []string{"t"})
		b.fill("t", 1, 60) // partition 0 only
		_, err := b.log.Admin().DeleteRecords(b.ctx, "t", 0, 90)
		check(t, err)
		time.Sleep(time.Hour)
		d := b.describe("g", sdk.Earliest)
		if p := d.Partitions[0]; p.Committed != 40 || p.Start != 90 || p.End != 100 || p.Lag != 10 || p.Lost != 50 ||
			p.AgeMs < time.Hour.Milliseconds()-2000 || p.AgeMs > time.Hour.Milliseconds()+60_000 || p.Used < 0.99/24/7 || p.Used > 1.1/24/7 {
			t.Errorf("overtaken by retention: %v committed %d, %d to %d, lag %d, lost %d, age %d, used %v", p, p.Committed, p.Start, p.End, p.Lag, p.Lost, p.AgeMs, p.Used)
		}
		if p := d.Partitions[1]; p.Lag != 0 || p.Used != 0 || !p.Oldest.IsZero() {
			t.Errorf("all read: %+v", p)
		}
		// Nothing committed: as many as where it would start leaves.
		_, err = b.log.Admin().ResetGroup(b.ctx, sdk.GroupReset{Group: "g", To: sdk.ResetTo{Position: sdk.Earliest}})
		check(t, err)
		two := eat(t, b.log, "g2", []string{"t"}, sdk.StartAt(sdk.StartFail))
		time.Sleep(10 * time.Second)
		for start, lag := range map[sdk.Position]int64{sdk.Earliest: 10, sdk.Latest: 0} {
			if p := b.describe("g2", start).Partitions[0]; p.Committed != -1 || p.Lag != lag {
				t.Errorf("nothing committed, start %v: %+v, want lag %d", start, p, lag)
			}
		}
		if len(two.errs) == 0 || !errors.Is(two.errs[0], sdk.ErrNoCommit) {
			t.Errorf("a start where nothing is committed: %v", two.errs)
		}
		two.errs = nil
		two.close(t)
	})
}

// BR-45: a reset checks everything first, a dry run is exactly the run, and times outside the log are its ends.
func TestBR45_Reset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for _, topic := range []string{"a", "b"} {
			b.create(topic, 2, 64)
			b.fill(topic, 2, 10)
		}
		once(t, b.log, "g", []string{"a", "b"})
		admin := b.log.Admin()
		reset := func(to sdk.ResetTo, topics ...string) []sdk.OffsetChange {
			t.Helper()
			r := sdk.GroupReset{Group: "g", Topics: topics, To: to, DryRun: true}
			dry, err := admin.ResetGroup(b.ctx, r)
			check(t, err)
			if again, err := admin.ResetGroup(b.ctx, r); err != nil || !reflect.DeepEqual(again, dry) {
				t.Fatalf("a dry run changed something: %v, then %v (%v)", dry, again, err)
			}
			r.DryRun = false
			run, err := admin.ResetGroup(b.ctx, r)
			check(t, err)
			if !reflect.DeepEqual(dry, run) {
				t.Errorf("dry run %v, run %v", dry, run)
			}
			for _, c := range run {
				for _, p := range b.describe("g", sdk.Earliest).Partitions {
					if p.TopicPartition == c.TopicPartition && p.Committed != c.To {
						t.Errorf("%v was to go to %d, is at %d", c.TopicPartition, c.To, p.Committed)
					}
				}
			}
			return run
		}
		is := func(what string, got []sdk.OffsetChange, n int, to int64) {
			t.Helper()
			for _, c := range got {
				if c.To != to {
					t.Errorf("%s: %+v, want %d", what, c, to)
				}
			}
			if len(got) != n {
				t.Errorf("%s: %d changes, want %d", what, len(got), n)
			}
		}
		is("earliest", reset(sdk.ResetTo{Position: sdk.Earliest}), 4, 0)
		is("latest", reset(sdk.ResetTo{Position: sdk.Latest}, "a"), 2, 10)
		is("a future time", reset(sdk.ResetTo{Position: sdk.AtTime(time.Now().Add(time.Hour))}, "b"), 2, 10)
		is("before the start", reset(sdk.ResetTo{Position: sdk.AtTime(time.UnixMilli(0))}, "b"), 2, 0)
		is("shift", reset(sdk.ResetTo{Shift: -3}, "a"), 2, 7)
		is("shift past the end", reset(sdk.ResetTo{Shift: 100}, "a"), 2, 10)
		is("offset", reset(sdk.ResetTo{Position: sdk.AtOffset(4)}, "a", "a"), 2, 4)

		before := b.describe("g", sdk.Earliest)
		for what, r := range map[string]sdk.GroupReset{
			"past the end":    {Topics: []string{"a"}, To: sdk.ResetTo{Position: sdk.AtOffset(11)}},
			"unknown topic":   {Topics: []string{"a", "nowhere", "b"}, To: sdk.ResetTo{Position: sdk.Earliest}},
			"no partition":    {Topics: []string{"a"}, Partitions: []int{7}, To: sdk.ResetTo{Position: sdk.Earliest}},
			"no target":       {Topics: []string{"a"}},
			"unknown group":   {Group: "nobody", To: sdk.ResetTo{Position: sdk.Earliest}},
			"malformed group": {Group: "a/b", To: sdk.ResetTo{Position: sdk.Earliest}},
		} {
			if r.Group == "" {
				r.Group = "g"
			}
			if changes, err := admin.ResetGroup(b.ctx, r); err == nil {
				t.Errorf("%s: %v", what, changes)
			}
		}
		if after := b.describe("g", sdk.Earliest); !reflect.DeepEqual(after, before) {
			t.Errorf("refused resets changed %+v to %+v", before, after)
		}

		// A member that lives is in the way, unless it is forced; then what it commits late is refused, and it goes on from the reset.
		e := eat(t, b.log, "g", []string{"a"})
		time.Sleep(10 * time.Second)
		var active *sdk.GroupActiveError
		r := sdk.GroupReset{Group: "g", Topics: []string{"a"}, To: sdk.ResetTo{Position: sdk.Earliest}}
		if _, err := admin.ResetGroup(b.ctx, r); !errors.As(err, &active) || len(active.Members) != 1 {
			t.Errorf("with a live member: %v", err)
		}
		if err := admin.DeleteGroup(b.ctx, "g", false); !errors.As(err, &active) {
			t.Errorf("deleted under a live member: %v", err)
		}
		r.Force = true
		_, err := admin.ResetGroup(b.ctx, r)
		check(t, err)
		if err := e.CommitOffsets(b.ctx, map[sdk.TopicPartition]sdk.CommitOffset{tp("a", 0): {Offset: 10}}); !errors.Is(err, sdk.ErrNotHeld) {
			t.Errorf("a commit from before the reset: %v", err)
		}
		time.Sleep(20 * time.Second)
		if got := e.offsets()[tp("a", 1)]; !slices.Equal(got, append([]int64{4, 5, 6, 7, 8, 9}, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)) {
			t.Errorf("read %v", got)
		}
		e.close(t)
		check(t, admin.DeleteGroup(b.ctx, "g", false))
		if groups, err := admin.ListGroups(b.ctx); err != nil || len(groups) != 0 {
			t.Errorf("groups after the deletion: %v, %v", groups, err)
		}
	})
}

// An offset past the end that somebody has committed does not make the end look another one, or who looks for why nothing is read would see a group that has read all.
func TestDescribeShowsACommitPastTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.fill("t", 1, 10)
		c := b.joins(sdk.ManualCommit())
		b.takes(c)
		check(t, c.CommitOffsets(b.ctx, upTo(0, 1000)))
		check(t, c.Close(b.ctx))
		if p := b.describe("g", sdk.Earliest).Partitions[0]; p.Committed != 1000 || p.End != 10 || p.Lag != 0 {
			t.Errorf("%+v", p)
		}
	})
}

// What cannot be read of a group, and what there is of one that has no row, can be deleted all the same, by force.
func TestDeleteGroupByForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		admin, table := b.log.Admin(), b.log.Backend().Table
		m := &metadata.Member{Name: "m", Session: "0123456789abcdef", Timeout: time.Minute, Topics: []string{"t"}, Beat: math.MaxInt64}
		check(t, table.PutGroup(b.ctx, &metadata.Group{Name: "damaged", Created: time.Now()}))
		check(t, table.Join(b.ctx, "damaged", m, ""))
		check(t, table.Beat(b.ctx, "damaged", "m", m.Session)) // one more than there are numbers
		check(t, table.PutPlan(b.ctx, "left", &metadata.Plan{Generation: 1}))
		check(t, table.Join(b.ctx, "both", m, ""))
		check(t, table.Beat(b.ctx, "both", "m", m.Session))
		for group, want := range map[string]error{"damaged": sdk.ErrCorrupt, "left": sdk.ErrUnknownGroup, "both": sdk.ErrUnknownGroup} {
			if err := admin.DeleteGroup(b.ctx, group, false); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", group, err, want)
			}
			check(t, admin.DeleteGroup(b.ctx, group, true))
			if s, err := table.GroupState(b.ctx, group); err != nil || s.Plan != nil || len(s.Members) > 0 {
				t.Errorf("%s: left is %+v, %v", group, s, err)
			}
			if err := admin.DeleteGroup(b.ctx, group, true); !errors.Is(err, sdk.ErrUnknownGroup) {
				t.Errorf("%s, of which nothing is left: %v", group, err)
			}
		}
	})
}

// BR-17: a group that retention has overtaken goes on at the log start, also under Latest; what it missed is told once.
func TestBR17_AGroupGoesOnAtTheLogStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.fill("t", 1, 10)
		once(t, b.log, "g", []string{"t"}, sdk.StartAt(sdk.Latest))
		b.fill("t", 1, 21)
		_, err := b.log.Admin().DeleteRecords(b.ctx, "t", 0, 15)
		check(t, err)
		e := eat(t, b.log, "g", []string{"t"}, sdk.StartAt(sdk.Latest))
		time.Sleep(20 * time.Second)
		if got := e.offsets()[tp("t", 0)]; len(got) != 16 || got[0] != 15 {
			t.Errorf("read %v", got)
		}
		if got := b.counts.resets; len(got) != 1 || got[0].From != 10 || got[0].To != 15 {
			t.Errorf("told %+v", got)
		}
		e.close(t)
		first := eat(t, b.log, "new", []string{"t"}, sdk.StartAt(sdk.Latest))
		time.Sleep(10 * time.Second)
		b.fill("t", 1, 1)
		time.Sleep(10 * time.Second)
		if got := first.offsets()[tp("t", 0)]; !slices.Equal(got, []int64{31}) {
			t.Errorf("a new group under latest has read %v", got)
		}
		first.close(t)
	})
}

// BR-53: what could not be looked up is not taken for "nothing there".
func TestBR53_CommitsThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.fill("t", 1, 40)
		once(t, b.log, "g", []string{"t"})
		b.fill("t", 1, 60)
		b.faults(nil, func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
			if c.Op == "Query" || c.Op == "GetItem" {
				return dynamodb.Throttle()
			}
			return dynamodb.Fault{}
		})
		e := eat(t, b.log, "g", []string{"t"}, sdk.StartAt(sdk.Latest))
		time.Sleep(time.Minute)
		if got := e.offsets(); len(got) != 0 {
			t.Errorf("read %v while nothing could be looked up", got)
		}
		b.faults(nil, nil)
		time.Sleep(time.Minute)
		if got := e.offsets()[tp("t", 0)]; len(got) != 60 || got[0] != 40 {
			t.Errorf("read %v, want 40 to 99", got)
		}
		e.errs = nil
		e.close(t)
	})
}

// BR-29: a commit that is newer than the end that eventual reads show is lag 0, not -5.
func TestBR29_ACommitPastAStaleEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.fill("t", 1, 95)
		once(t, b.log, "g", []string{"t"})
		admin := b.open().Admin() // has seen the end at 95
		_, err := admin.DescribeGroup(b.ctx, "g", sdk.Earliest)
		check(t, err)
		b.fill("t", 1, 5)
		once(t, b.log, "g", []string{"t"})
		b.faults(nil, func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
			if c.Consistent {
				return dynamodb.Fault{}
			}
			return dynamodb.StaleBy(30 * time.Second)
		})
		d, err := admin.DescribeGroup(b.ctx, "g", sdk.Earliest)
		check(t, err)
		if p := d.Partitions[0]; p.Committed != 100 || p.End != 100 || p.Lag != 0 {
			t.Errorf("%+v", p)
		}
	})
}
