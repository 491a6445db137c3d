package metatest

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

func session(n int) metadata.SessionID { return metadata.SessionID(fmt.Sprintf("%016d", n)) }

func member(name string, n int) *metadata.Member {
	return &metadata.Member{Name: name, Session: session(n), Timeout: 30 * time.Second, Topics: []string{"a", "b"}, Client: "host 1"}
}

// read returns the member's row, nil when there is none.
func (f *fixture) read(group, name string) *metadata.Member {
	f.Helper()
	s, err := f.table.GroupState(f.ctx, group)
	f.ok(err)
	for i := range s.Members {
		if s.Members[i].Name == name {
			return &s.Members[i]
		}
	}
	return nil
}

func testGroups(f *fixture) {
	_, err := f.table.Group(f.ctx, "g1")
	f.is(err, metadata.ErrUnknownGroup)
	created := time.UnixMilli(1_700_000_000_123).UTC()
	for _, name := range []string{"g2", "g1", "g3"} {
		f.costs(1, "PutGroup", func() { f.ok(f.table.PutGroup(f.ctx, &metadata.Group{Name: name, Created: created})) })
	}
	f.ok(f.table.PutGroup(f.ctx, &metadata.Group{Name: "g1", Created: created.Add(time.Hour)}))
	g, err := f.table.Group(f.ctx, "g1")
	f.ok(err)
	if g.Name != "g1" || !g.Created.Equal(created) {
		f.Errorf("group %+v, created %v", g, created)
	}
	first, more, err := f.table.Groups(f.ctx, "", 2)
	f.ok(err)
	rest, end, err := f.table.Groups(f.ctx, first[len(first)-1].Name, 2)
	f.ok(err)
	if len(first) != 2 || !more || first[0].Name != "g1" || len(rest) != 1 || end || rest[0].Name != "g3" {
		f.Errorf("pages %v %v, %v %v", first, more, rest, end)
	}
	f.is(f.table.PutGroup(f.ctx, &metadata.Group{Name: "a/b", Created: created}), metadata.ErrInvalid)
	f.is(f.table.PutGroup(f.ctx, &metadata.Group{Name: "g"}), metadata.ErrInvalid)
}

func testMembers(f *fixture) {
	m := member("m", 1)
	f.costs(1, "Join", func() { f.ok(f.table.Join(f.ctx, "g", m, "")) })
	if got := f.read("g", "m"); !reflect.DeepEqual(got, m) {
		f.Errorf("joined as %+v, read %+v", m, got)
	}
	f.costs(1, "Beat", func() { f.ok(f.table.Beat(f.ctx, "g", "m", session(1))) })
	if got := f.read("g", "m"); got.Beat != 1 {
		f.Errorf("beat %d after one", got.Beat)
	}
	// A second start under the same name takes over; the first is told, and can no longer leave for it.
	f.ok(f.table.Join(f.ctx, "g", member("m", 2), session(1)))
	f.is(f.table.Beat(f.ctx, "g", "m", session(1)), metadata.ErrFenced)
	f.ok(f.table.Leave(f.ctx, "g", "m", session(1)))
	if got := f.read("g", "m"); got == nil || got.Session != session(2) || got.Beat != 0 {
		f.Errorf("after the fenced session left: %+v", got)
	}
	f.ok(f.table.Leave(f.ctx, "g", "m", session(2)))
	if got := f.read("g", "m"); got != nil {
		f.Errorf("after it left: %+v", got)
	}
	f.is(f.table.Beat(f.ctx, "g", "m", session(2)), metadata.ErrUnknownMember)
	if got := f.read("g", "m"); got != nil {
		f.Errorf("a heartbeat brought back %+v", got)
	}
	bad := member("m", 3)
	bad.Timeout = 0
	f.is(f.table.Join(f.ctx, "g", bad, ""), metadata.ErrInvalid)
}

// Join puts a row only in place of the one that was read.
func testJoin(f *fixture) {
	_, err := f.table.Member(f.ctx, "g", "m")
	f.is(err, metadata.ErrUnknownMember)
	f.is(f.table.Join(f.ctx, "g", member("m", 2), session(1)), metadata.ErrChanged) // the one that was read is gone
	f.ok(f.table.Join(f.ctx, "g", member("m", 1), ""))
	f.is(f.table.Join(f.ctx, "g", member("m", 2), ""), metadata.ErrChanged)
	f.is(f.table.Join(f.ctx, "g", member("m", 2), session(3)), metadata.ErrChanged)
	f.ok(f.table.Beat(f.ctx, "g", "m", session(1)))
	f.costs(1, "Member", func() {
		got, err := f.table.Member(f.ctx, "g", "m")
		f.ok(err)
		if got.Session != session(1) || got.Beat != 1 || got.Name != "m" {
			f.Errorf("read %+v", got)
		}
	})
	f.ok(f.table.Join(f.ctx, "g", member("m", 2), session(1)))
	f.is(f.table.Join(f.ctx, "g", member("m", 4), session(1)), metadata.ErrChanged)
	if got := f.read("g", "m"); got == nil || got.Session != session(2) || got.Beat != 0 {
		f.Errorf("in the end %+v", got)
	}
}

// Of several that start under one name and have read the same, one wins.
func testJoinRace(f *fixture) {
	f.ok(f.table.Join(f.ctx, "g", member("m", 100), ""))
	won := f.race(8, func(i int) error { return f.table.Join(f.ctx, "g", member("m", i), session(100)) })
	if got := f.read("g", "m"); len(won) != 1 || got == nil || got.Session != session(won[0]) {
		f.Errorf("%v won, the row is %+v", won, got)
	}
}

// What observers report adds up without overlap: each has to have seen what stands.
func testWatched(f *fixture) {
	f.ok(f.table.Join(f.ctx, "g", member("m", 1), ""))
	seen := f.read("g", "m")
	f.costs(1, "Watched", func() { f.ok(f.table.Watched(f.ctx, "g", seen, 7*time.Second)) })
	f.is(f.table.Watched(f.ctx, "g", seen, 7*time.Second), metadata.ErrChanged) // another observer, of the same time
	now := f.read("g", "m")
	if now.Quiet != 7*time.Second {
		f.Errorf("quiet for %v", now.Quiet)
	}
	f.is(f.table.Bury(f.ctx, "g", seen), metadata.ErrChanged)
	f.ok(f.table.Watched(f.ctx, "g", now, 30*time.Second))
	silent := f.read("g", "m")
	if silent.Quiet != 37*time.Second {
		f.Errorf("quiet for %v", silent.Quiet)
	}
	f.ok(f.table.Beat(f.ctx, "g", "m", session(1)))
	if got := f.read("g", "m"); got.Quiet != 0 {
		f.Errorf("quiet for %v after a heartbeat", got.Quiet)
	}
	f.is(f.table.Bury(f.ctx, "g", silent), metadata.ErrChanged)
	f.is(f.table.Watched(f.ctx, "g", silent, time.Second), metadata.ErrChanged)
	for _, more := range []time.Duration{23 * time.Hour, 23 * time.Hour, 1<<63 - 1} { // no sum of them is one that cannot be read
		f.ok(f.table.Watched(f.ctx, "g", f.read("g", "m"), more))
	}
	if got := f.read("g", "m"); got.Quiet != metadata.MaxSessionTimeout {
		f.Errorf("quiet for %v", got.Quiet)
	}
	f.ok(f.table.Beat(f.ctx, "g", "m", session(1)))
	f.costs(1, "Bury", func() { f.ok(f.table.Bury(f.ctx, "g", &metadata.Member{Name: "m", Session: session(1), Beat: 2})) })
	if got := f.read("g", "m"); got != nil {
		f.Errorf("buried, and yet %+v", got)
	}
	f.is(f.table.Watched(f.ctx, "g", silent, time.Second), metadata.ErrChanged)
}

func plan(generation int64, names ...string) *metadata.Plan {
	topic := segment.TopicID("00000000000a")
	var members []metadata.Subscriber
	for i, n := range names {
		members = append(members, metadata.Subscriber{PlanMember: metadata.PlanMember{Name: n, Session: session(i)}, Topics: []segment.TopicID{topic}, Seen: true})
	}
	p := metadata.Assign(nil, members, []metadata.Readable{{ID: topic, Partitions: 9}})
	p.Generation = generation
	return p
}

func testPlan(f *fixture) {
	f.is(f.table.PutPlan(f.ctx, "g", plan(2, "a")), metadata.ErrChanged)
	f.costs(1, "PutPlan", func() { f.ok(f.table.PutPlan(f.ctx, "g", plan(1, "a", "b"))) })
	f.is(f.table.PutPlan(f.ctx, "g", plan(1, "a", "b")), metadata.ErrChanged)
	f.is(f.table.PutPlan(f.ctx, "g", plan(3, "a")), metadata.ErrChanged)
	f.ok(f.table.PutPlan(f.ctx, "g", plan(2, "a", "b", "c")))
	s, err := f.table.GroupState(f.ctx, "g")
	f.ok(err)
	if !reflect.DeepEqual(s.Plan, plan(2, "a", "b", "c")) {
		f.Errorf("plan %+v", s.Plan)
	}
	var long []string
	for i := range metadata.MaxMembers {
		long = append(long, fmt.Sprintf("%0249d", i))
	}
	largest := plan(3, long...)
	f.ok(f.table.PutPlan(f.ctx, "g", largest))
	largest.Generation++
	largest.Topics[0].Owners = make([]int, metadata.MaxPlanPartitions)
	largest.Topics[0].Known = len(largest.Topics[0].Owners)
	for i := range largest.Topics[0].Owners {
		largest.Topics[0].Owners[i] = metadata.MaxMembers - 1
	}
	if err := f.table.PutPlan(f.ctx, "g", largest); !errors.Is(err, metadata.ErrInvalid) {
		f.Errorf("a plan that no item holds: %v", err)
	}
}

func testPlanRace(f *fixture) {
	f.ok(f.table.PutPlan(f.ctx, "g", plan(1, "m")))
	won := f.race(8, func(i int) error { return f.table.PutPlan(f.ctx, "g", plan(2, fmt.Sprint("m", i))) })
	s, err := f.table.GroupState(f.ctx, "g")
	f.ok(err)
	if len(won) != 1 || s.Plan.Members[0].Name != fmt.Sprint("m", won[0]) {
		f.Errorf("%v won, the plan is %s's", won, s.Plan.Members[0].Name)
	}
}

// race runs n at once and returns those that succeeded; the others must have met ErrChanged.
func (f *fixture) race(n int, do func(i int) error) (won []int) {
	f.Helper()
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	for i, err := range errs {
		if err == nil {
			won = append(won, i)
		} else {
			f.is(err, metadata.ErrChanged)
		}
	}
	return won
}

func acquire(slot metadata.Slot, from metadata.Lease, n int) metadata.LeaseChange {
	return metadata.LeaseChange{Slot: slot, From: from, To: metadata.Lease{Session: session(n), Epoch: from.Epoch + 1}}
}

func testLeases(f *fixture) {
	empty, err := f.table.GroupLane(f.ctx, "g", "lane")
	f.ok(err)
	if !reflect.DeepEqual(empty, metadata.NewGroupLane("lane")) {
		f.Errorf("a lane that was never read: %+v", empty)
	}
	mine := acquire(3, metadata.Lease{}, 1)
	f.costs(1, "SetLeases", func() {
		l, err := f.table.SetLeases(f.ctx, "g", "lane", []metadata.LeaseChange{mine, acquire(63, metadata.Lease{}, 1)})
		f.ok(err)
		if l.Slots[3].Lease != mine.To || l.Slots[63].Lease != mine.To || l.Slots[4].Lease.Held() || l.Slots[3].Offset != metadata.NoOffset {
			f.Errorf("after two acquisitions: %+v", l.Slots)
		}
	})
	// All or none: slot 4 is free, slot 3 is not.
	l, err := f.table.SetLeases(f.ctx, "g", "lane", []metadata.LeaseChange{acquire(4, metadata.Lease{}, 2), acquire(3, metadata.Lease{}, 2)})
	f.is(err, metadata.ErrChanged)
	if l == nil || l.Slots[3].Lease != mine.To || l.Slots[4].Lease.Held() {
		f.Errorf("the image that refused: %+v", l)
	}
	free := metadata.Lease{Epoch: 1}
	_, err = f.table.SetLeases(f.ctx, "g", "lane", []metadata.LeaseChange{{Slot: 3, From: mine.To, To: free}})
	f.ok(err)
	l, err = f.table.SetLeases(f.ctx, "g", "lane", []metadata.LeaseChange{acquire(3, free, 2)})
	f.ok(err)
	if l.Slots[3].Lease != (metadata.Lease{Session: session(2), Epoch: 2}) {
		f.Errorf("lease after release and acquisition: %v", l.Slots[3].Lease)
	}
	for _, bad := range [][]metadata.LeaseChange{
		nil,
		{mine, mine},
		{acquire(64, metadata.Lease{}, 1)},
		{{Slot: 1, To: metadata.Lease{Session: session(1)}}},
		{{Slot: 1, To: metadata.Lease{Session: "short", Epoch: 1}}},
		{{Slot: 1, From: metadata.Lease{Session: session(1), Epoch: 5}, To: metadata.Lease{Epoch: 6}}},
		{{Slot: 1, From: free, To: free}},
	} {
		_, err := f.table.SetLeases(f.ctx, "g", "lane", bad)
		f.is(err, metadata.ErrInvalid)
	}
}

func testLeaseRace(f *fixture) {
	won := f.race(8, func(i int) error {
		_, err := f.table.SetLeases(f.ctx, "g", "lane", []metadata.LeaseChange{acquire(0, metadata.Lease{}, i)})
		return err
	})
	l, err := f.table.GroupLane(f.ctx, "g", "lane")
	f.ok(err)
	if len(won) != 1 || l.Slots[0].Lease.Session != session(won[0]) {
		f.Errorf("%v won, the lease is %v", won, l.Slots[0].Lease)
	}
}

func testCommitOffsets(f *fixture) {
	at := time.UnixMilli(1_700_000_000_456).UTC()
	mine := acquire(3, metadata.Lease{}, 1)
	commit := func(c metadata.OffsetCommit) (*metadata.GroupLane, error) {
		return f.table.CommitOffsets(f.ctx, "g", "lane", at, []metadata.OffsetCommit{c})
	}
	_, err := commit(metadata.OffsetCommit{Slot: 3, Lease: mine.To, First: true, Offset: 5})
	f.is(err, metadata.ErrChanged) // no lease yet
	_, err = f.table.SetLeases(f.ctx, "g", "lane", []metadata.LeaseChange{mine})
	f.ok(err)
	_, err = commit(metadata.OffsetCommit{Slot: 3, Lease: mine.To, Offset: 5})
	f.is(err, metadata.ErrChanged) // nothing was committed yet, which First says
	f.costs(1, "CommitOffsets", func() {
		l, err := commit(metadata.OffsetCommit{Slot: 3, Lease: mine.To, First: true, Offset: 5, Metadata: "half way"})
		f.ok(err)
		if want := (metadata.Committed{Offset: 5, At: at, Metadata: "half way", Lease: mine.To}); l.Slots[3] != want {
			f.Errorf("committed %+v, want %+v", l.Slots[3], want)
		}
	})
	for _, refused := range []metadata.OffsetCommit{
		{Slot: 3, Lease: mine.To, First: true, Offset: 6},
		{Slot: 3, Lease: mine.To, Offset: 4}, // back
		{Slot: 3, Lease: metadata.Lease{Session: session(1), Epoch: 2}, Offset: 6},
		{Slot: 3, Lease: metadata.Lease{Session: session(2), Epoch: 1}, Offset: 6},
		{Slot: 4, Lease: mine.To, First: true, Offset: 6},
	} {
		l, err := commit(refused)
		f.is(err, metadata.ErrChanged)
		if l == nil || l.Slots[3].Offset != 5 || l.Slots[4].Offset != metadata.NoOffset {
			f.Errorf("the image that refused %+v: %+v", refused, l)
		}
	}
	for _, offset := range []int64{5, 9} {
		l, err := commit(metadata.OffsetCommit{Slot: 3, Lease: mine.To, Offset: offset})
		f.ok(err)
		if l.Slots[3].Offset != offset || l.Slots[3].Metadata != "" {
			f.Errorf("committed %+v, want %d without metadata", l.Slots[3], offset)
		}
	}
	for _, bad := range []metadata.OffsetCommit{{Slot: 3, Offset: 9}, {Slot: 64, Lease: mine.To}, {Slot: 3, Lease: mine.To, Offset: -1},
		{Slot: 3, Lease: mine.To, Metadata: strings.Repeat("x", metadata.MaxCommitMetadata+1)}, {Slot: 3, Lease: mine.To, Offset: 9, Metadata: "\xff"}} {
		_, err := commit(bad)
		f.is(err, metadata.ErrInvalid)
	}
}

// 64 slots with metadata are one update, also for a service that counts operators.
func testCommitOffsetsWidest(f *fixture) {
	var leases []metadata.LeaseChange
	var commits []metadata.OffsetCommit
	var resets []metadata.OffsetReset
	for s := range metadata.Slot(metadata.SlotsPerLane) {
		leases = append(leases, acquire(s, metadata.Lease{}, 1))
		commits = append(commits, metadata.OffsetCommit{Slot: s, Lease: leases[s].To, First: true, Offset: 1 << 60, Metadata: strings.Repeat("m", metadata.MaxCommitMetadata)})
		resets = append(resets, metadata.OffsetReset{Slot: s, From: metadata.Committed{Offset: 1<<60 + int64(s), Lease: leases[s].To}, Offset: int64(s)})
	}
	_, err := f.table.SetLeases(f.ctx, "g", "lane", leases)
	f.ok(err)
	at := time.UnixMilli(1)
	_, err = f.table.CommitOffsets(f.ctx, "g", "lane", at, commits)
	f.ok(err)
	for s := range commits {
		commits[s].First = false
		commits[s].Offset += int64(s)
	}
	f.costs(1, "CommitOffsets", func() {
		l, err := f.table.CommitOffsets(f.ctx, "g", "lane", at, commits)
		f.ok(err)
		for s, got := range l.Slots {
			if got.Offset != 1<<60+int64(s) || got.Metadata != commits[s].Metadata {
				f.Fatalf("slot %d: %+v", s, got)
			}
		}
	})
	f.costs(1, "ResetOffsets", func() {
		_, err := f.table.ResetOffsets(f.ctx, "g", "lane", at, resets)
		f.ok(err)
	})
}

func testResetOffsets(f *fixture) {
	at := time.UnixMilli(1_700_000_000_456).UTC()
	reset := func(from metadata.Committed, to int64) (*metadata.GroupLane, error) {
		return f.table.ResetOffsets(f.ctx, "g", "lane", at, []metadata.OffsetReset{{Slot: 3, From: from, Offset: to}})
	}
	l, err := reset(metadata.Committed{Offset: metadata.NoOffset}, 7)
	f.ok(err)
	if want := (metadata.Committed{Offset: 7, At: at, Lease: metadata.Lease{Epoch: 1}}); l.Slots[3] != want {
		f.Errorf("after a reset of nothing: %+v, want %+v", l.Slots[3], want)
	}
	mine := acquire(3, l.Slots[3].Lease, 1)
	_, err = f.table.SetLeases(f.ctx, "g", "lane", []metadata.LeaseChange{mine})
	f.ok(err)
	_, err = reset(l.Slots[3], 0)
	f.is(err, metadata.ErrChanged) // as it was before somebody acquired it
	l, err = reset(metadata.Committed{Offset: 7, Lease: mine.To}, 2)
	f.ok(err)
	if l.Slots[3].Offset != 2 || l.Slots[3].Lease != (metadata.Lease{Epoch: 3}) {
		f.Errorf("after a reset under a holder: %+v", l.Slots[3])
	}
	_, err = f.table.CommitOffsets(f.ctx, "g", "lane", at, []metadata.OffsetCommit{{Slot: 3, Lease: mine.To, Offset: 9}})
	f.is(err, metadata.ErrChanged) // the holder has lost it
	_, err = reset(metadata.Committed{Offset: 3, Lease: metadata.Lease{Epoch: 3}}, 5)
	f.is(err, metadata.ErrChanged) // another offset than was read
	l, err = reset(l.Slots[3], metadata.NoOffset)
	f.ok(err)
	if want := (metadata.Committed{Offset: metadata.NoOffset, Lease: metadata.Lease{Epoch: 4}}); l.Slots[3] != want {
		f.Errorf("after the offset was removed: %+v, want %+v", l.Slots[3], want)
	}
	_, err = reset(l.Slots[3], -2)
	f.is(err, metadata.ErrInvalid)
}

// step is a lane of a topic to append to, and the moves of two slots of a group's lane, of which one has no offset yet.
func (f *fixture) step() (commits []metadata.Commit, offsets []metadata.StepOffsets) {
	f.Helper()
	mine := []metadata.LeaseChange{acquire(0, metadata.Lease{}, 1), acquire(1, metadata.Lease{}, 1)}
	_, err := f.table.SetLeases(f.ctx, "g", "in", mine)
	f.ok(err)
	at := time.UnixMilli(1_700_000_000_456).UTC()
	_, err = f.table.CommitOffsets(f.ctx, "g", "in", at, []metadata.OffsetCommit{{Slot: 0, Lease: mine[0].To, First: true, Offset: 5}})
	f.ok(err)
	return []metadata.Commit{commitTo(f.head(f.lane()), 0, f.entry(1, 0))}, []metadata.StepOffsets{{Group: "g", Lane: "in", At: at, Moves: []metadata.OffsetMove{
		{Slot: 0, Lease: mine[0].To, From: 5, To: 8}, {Slot: 1, Lease: mine[1].To, From: metadata.NoOffset, To: 3, Metadata: "m"}}}}
}

// moved is the offsets of the group's lane, and how much was appended.
func (f *fixture) moved(commits []metadata.Commit) [3]int64 {
	f.Helper()
	l, err := f.table.GroupLane(f.ctx, "g", "in")
	f.ok(err)
	head, err := f.table.Head(f.ctx, commits[0].Lane, metadata.Strong)
	f.ok(err)
	return [3]int64{l.Slots[0].Offset, l.Slots[1].Offset, head.Next}
}

func testCommitStep(f *fixture) {
	commits, offsets := f.step()
	f.costs(1, "CommitStep", func() { f.ok(f.table.CommitStep(f.ctx, f.token("1"), commits, offsets)) })
	f.ok(f.table.CommitStep(f.ctx, f.token("1"), commits, offsets)) // the same again is the same
	if got := f.moved(commits); got != [3]int64{8, 3, 1} {
		f.Errorf("offsets and order %v", got)
	}
	more := []metadata.StepOffsets{offsets[0]}
	more[0].Moves = []metadata.OffsetMove{{Slot: 1, Lease: offsets[0].Moves[1].Lease, From: 3, To: 4}}
	f.ok(f.table.CommitStep(f.ctx, f.token("2"), nil, more)) // offsets alone
	if got := f.moved(commits); got != [3]int64{8, 4, 1} {
		f.Errorf("offsets and order %v", got)
	}
}

func testCommitStepRefuses(f *fixture) {
	commits, offsets := f.step()
	good := offsets[0].Moves
	for what, move := range map[string]metadata.OffsetMove{
		"another offset": {Slot: 0, Lease: good[0].Lease, From: 4, To: 8},
		"an offset":      {Slot: 0, Lease: good[0].Lease, From: metadata.NoOffset, To: 8},
		"no offset":      {Slot: 1, Lease: good[1].Lease, From: 0, To: 8},
		"another lease":  {Slot: 0, Lease: metadata.Lease{Session: session(2), Epoch: 1}, From: 5, To: 8},
	} {
		offsets[0].Moves = []metadata.OffsetMove{move}
		err := f.table.CommitStep(f.ctx, f.token(what), commits, offsets)
		var refused *metadata.OffsetsRefusedError
		if !errors.As(err, &refused) || !errors.Is(err, metadata.ErrChanged) || refused.Group != "g" || refused.Image.Slots[0].Offset != 5 {
			f.Errorf("%s: %v", what, err)
		}
		if got := f.moved(commits); got != [3]int64{5, metadata.NoOffset, 0} {
			f.Errorf("%s: offsets and order %v", what, got)
		}
	}
	// A commit that is refused is named, although the offsets are refused too.
	commits[0].Epoch++
	var refused *metadata.RefusedError
	if err := f.table.CommitStep(f.ctx, f.token("token"), commits, offsets); !errors.As(err, &refused) || refused.Lane != commits[0].Lane {
		f.Errorf("both refuse: %v", err)
	}
	commits[0].Epoch--
	for _, bad := range [][]metadata.OffsetMove{nil, {good[0], good[0]}, {{Slot: 0, From: 5, To: 8}}, {{Slot: 0, Lease: good[0].Lease, From: 5, To: 4}}, {{Slot: 64, Lease: good[0].Lease}}} {
		offsets[0].Moves = bad
		f.is(f.table.CommitStep(f.ctx, f.token("token"), commits, offsets), metadata.ErrInvalid)
	}
	offsets[0].Moves = good
	f.is(f.table.CommitStep(f.ctx, f.token("token"), commits, append(offsets, offsets[0])), metadata.ErrInvalid)
	f.is(f.table.CommitStep(f.ctx, f.token("token"), nil, nil), metadata.ErrInvalid)
}

func testGroupState(f *fixture) {
	s, err := f.table.GroupState(f.ctx, "g")
	f.ok(err)
	if s.Plan != nil || len(s.Members) != 0 || len(s.Lanes) != 0 {
		f.Errorf("state of a group that nobody has joined: %+v", s)
	}
	f.ok(f.table.Join(f.ctx, "g", member("b", 2), ""))
	f.ok(f.table.Join(f.ctx, "g", member("a", 1), ""))
	f.ok(f.table.Join(f.ctx, "g2", member("other", 1), ""))
	f.ok(f.table.PutPlan(f.ctx, "g", plan(1, "a", "b")))
	for _, lane := range []metadata.LaneID{"lane-1", "lane-0"} {
		_, err := f.table.SetLeases(f.ctx, "g", lane, []metadata.LeaseChange{acquire(0, metadata.Lease{}, 1)})
		f.ok(err)
	}
	f.costs(1, "GroupState", func() {
		s, err := f.table.GroupState(f.ctx, "g")
		f.ok(err)
		if len(s.Members) != 2 || s.Members[0].Name != "a" || s.Plan == nil || s.Plan.Generation != 1 ||
			len(s.Lanes) != 2 || s.Lanes[0].Lane != "lane-0" || !s.Lanes[1].Slots[0].Lease.Held() {
			f.Errorf("state %+v", s)
		}
	})
}

func testDeleteGroup(f *fixture) {
	f.ok(f.table.PutGroup(f.ctx, &metadata.Group{Name: "g", Created: time.UnixMilli(1)}))
	f.ok(f.table.PutGroup(f.ctx, &metadata.Group{Name: "g2", Created: time.UnixMilli(1)}))
	f.ok(f.table.PutPlan(f.ctx, "g", plan(1, "a")))
	f.ok(f.table.Join(f.ctx, "g2", member("m", 1), ""))
	for i := range 150 {
		f.ok(f.table.Join(f.ctx, "g", member(fmt.Sprint("m", i), i), ""))
	}
	done, err := f.table.DeleteGroup(f.ctx, "g")
	f.ok(err)
	if _, err := f.table.Group(f.ctx, "g"); done || err != nil {
		f.Errorf("after one piece of two: done %v, row: %v", done, err)
	}
	done, err = f.table.DeleteGroup(f.ctx, "g")
	f.ok(err)
	s, err := f.table.GroupState(f.ctx, "g")
	f.ok(err)
	if _, err := f.table.Group(f.ctx, "g"); !done || !errors.Is(err, metadata.ErrUnknownGroup) || s.Plan != nil || len(s.Members) != 0 {
		f.Errorf("after both: done %v, row: %v, state %+v", done, err, s)
	}
	if f.read("g2", "m") == nil {
		f.Error("the neighbour's member is gone")
	}
	done, err = f.table.DeleteGroup(f.ctx, "g")
	f.ok(err)
	if !done {
		f.Error("a group that is not there is not done")
	}
}

// What is committed for the lanes goes, and nothing else of the group, nor of another.
func testForgetOffsets(f *fixture) {
	var lanes []metadata.LaneID
	for i := range 30 {
		lanes = append(lanes, metadata.LaneID(fmt.Sprint("lane-", i)))
	}
	f.ok(f.table.Join(f.ctx, "g", member("m", 1), ""))
	f.ok(f.table.PutPlan(f.ctx, "g", plan(1, "m")))
	for _, group := range []string{"g", "g2"} {
		for _, lane := range append(lanes[:28:28], "stays") {
			_, err := f.table.SetLeases(f.ctx, group, lane, []metadata.LeaseChange{acquire(0, metadata.Lease{}, 1)})
			f.ok(err)
		}
	}
	f.costs(2, "ForgetOffsets", func() { f.ok(f.table.ForgetOffsets(f.ctx, "g", lanes)) }) // 25 a request
	f.ok(f.table.ForgetOffsets(f.ctx, "g", lanes))
	f.costs(0, "ForgetOffsets", func() { f.ok(f.table.ForgetOffsets(f.ctx, "g", nil)) })
	s, err := f.table.GroupState(f.ctx, "g")
	f.ok(err)
	if len(s.Lanes) != 1 || s.Lanes[0].Lane != "stays" || len(s.Members) != 1 || s.Plan == nil {
		f.Errorf("left: %+v", s)
	}
	if s, err = f.table.GroupState(f.ctx, "g2"); err != nil || len(s.Lanes) != 29 {
		f.Errorf("of the neighbour's lanes %d are left, %v", len(s.Lanes), err)
	}
}
