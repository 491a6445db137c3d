// Package metatest is the suite that an adapter of metadata.Table must pass: conditions that hold and fail, images
// that come back, races of several callers, and how many requests each call makes. What only one kind of table can
// show (units as billed, faults of the network, malformed items) its own package tests.
package metatest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// New makes an empty table that nobody else uses and that tells onCall of each request. It registers its own cleaning up.
type New func(t *testing.T, onCall func(metadata.Call)) metadata.Table

// Run runs the suite, each test on a table of its own.
func Run(t *testing.T, open New) {
	chance := env.System().Uint64()
	for i, c := range []struct {
		name string
		test func(*fixture)
	}{
		{"Identity", testIdentity},
		{"ServiceTime", testServiceTime},
		{"EnsureTableAgain", testEnsureTableAgain},
		{"CreateTopic", testCreateTopic},
		{"CreateTopicRefuses", testCreateTopicRefuses},
		{"CreateTopicRace", testCreateTopicRace},
		{"MaxLanes", testMaxLanes},
		{"Topics", testTopics},
		{"ReplaceTopic", testReplaceTopic},
		{"GrowthRace", testGrowthRace},
		{"Keyed", testKeyed},
		{"SetHeadConfig", testSetHeadConfig},
		{"SetStateConfig", testSetStateConfig},
		{"SetStored", testSetStored},
		{"DeleteTopic", testDeleteTopic},
		{"DeleteLaneRest", testDeleteLaneRest},
		{"Commit", testCommit},
		{"CommitSeveral", testCommitSeveral},
		{"CommitWidest", testCommitWidest},
		{"CommitRefusals", testCommitRefusals},
		{"CommitPadding", testCommitPadding},
		{"CommitRace", testCommitRace},
		{"Cap", testCap},
		{"Once", testOnce},
		{"Producers", testProducers},
		{"ProducerUnderConditions", testProducerUnderConditions},
		{"ProducersCrowded", testProducersCrowded},
		{"ProducersRace", testProducersRace},
		{"Expect", testExpect},
		{"Token", testToken},
		{"TokenRace", testTokenRace},
		{"RaiseEpoch", testRaiseEpoch},
		{"Chunk", testChunk},
		{"Chunks", testChunks},
		{"Trim", testTrim},
		{"TrimRace", testTrimRace},
		{"SetStart", testSetStart},
		{"SetOldest", testSetOldest},
		{"Eras", testEras},
		{"Fence", testFence},
		{"SetCuts", testSetCuts},
		{"Jump", testJump},
		{"AmendTopic", testAmendTopic},
		{"CommitAll", testCommitAll},
		{"CommitAllRefuses", testCommitAllRefuses},
		{"CommitAllRace", testCommitAllRace},
		{"Groups", testGroups},
		{"Members", testMembers},
		{"Join", testJoin},
		{"JoinRace", testJoinRace},
		{"Watched", testWatched},
		{"Plan", testPlan},
		{"PlanRace", testPlanRace},
		{"Leases", testLeases},
		{"LeaseRace", testLeaseRace},
		{"CommitOffsets", testCommitOffsets},
		{"CommitOffsetsWidest", testCommitOffsetsWidest},
		{"ResetOffsets", testResetOffsets},
		{"CommitStep", testCommitStep},
		{"CommitStepRefuses", testCommitStepRefuses},
		{"GroupState", testGroupState},
		{"DeleteGroup", testDeleteGroup},
		{"ForgetOffsets", testForgetOffsets},
		{"Publish", testPublish},
		{"SetCleaned", testSetCleaned},
		{"PublishRefuses", testPublishRefuses},
		{"PublishRace", testPublishRace},
		{"PublishWidest", testPublishWidest},
		{"Rows", testRows},
		{"Floors", testFloors},
		{"WorkList", testWorkList},
		{"DeleteChunks", testDeleteChunks},
		{"Small", testSmall},
		{"InvalidSendsNothing", testInvalidSendsNothing},
		{"CancelledSendsNothing", testCancelledSendsNothing},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fixture{T: t, ctx: t.Context(), salt: chance + uint64(i)}
			f.table = open(t, f.called)
			c.test(f)
		})
	}
}

// fixture is one test's table and what happened on it.
type fixture struct {
	*testing.T
	ctx   context.Context
	table metadata.Table
	salt  uint64 // no two tests have the same ids and tokens, since a server remembers the tokens of all its tables for ten minutes

	mu    sync.Mutex
	calls []metadata.Call
	ids   uint64
}

func (f *fixture) called(c metadata.Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, c)
}

// costs fails unless do makes exactly n requests, all of the named operation.
func (f *fixture) costs(n int, op string, do func()) {
	f.Helper()
	f.mu.Lock()
	f.calls = nil
	f.mu.Unlock()
	do()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.calls) != n {
		f.Errorf("%s made %d requests, want %d: %+v", op, len(f.calls), n, f.calls)
	}
	for _, c := range f.calls {
		if c.Op != op {
			f.Errorf("a request was reported as %s, want %s", c.Op, op)
		}
	}
}

func (f *fixture) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// is fails unless err is the condition, and a *metadata.Error that names the call.
func (f *fixture) is(err, condition error) {
	f.Helper()
	var e *metadata.Error
	if !errors.Is(err, condition) || !errors.As(err, &e) || e.Op == "" {
		f.Fatalf("got %v, want a *metadata.Error with %q", err, condition)
	}
}

// refused fails unless err is a refusal with an image, which it returns.
func (f *fixture) refused(err error) *metadata.Head {
	f.Helper()
	var r *metadata.RefusedError
	if !errors.As(err, &r) || r.Head == nil {
		f.Fatalf("got %v, want a refusal with the image", err)
	}
	return r.Head
}

// birth is the time in the first id of a test.
var birth = time.UnixMilli(1_790_000_000_000).UTC()

// id is a new segment id, above all before it.
func (f *fixture) id() segment.ID { return f.idIn(segment.InBucket) }

func (f *fixture) idIn(place segment.Place) segment.ID {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ids++
	return segment.NewID(birth.Add(time.Duration(f.ids)*time.Millisecond), 7, place, f.salt<<16+f.ids, segment.ID{})
}

// token is the test's own request token of that name.
func (f *fixture) token(name string) string { return fmt.Sprintf("%016x %s", f.salt, name) }

// entry is a new entry with n records in each of the slots.
func (f *fixture) entry(n int32, slots ...metadata.Slot) metadata.Entry {
	e := metadata.Entry{ID: f.id(), Start: 64}
	for _, s := range slots {
		e.Slots = append(e.Slots, metadata.SlotEntry{Slot: s, Count: n, Bytes: 100 * n, MaxTime: e.ID.Time().UnixMilli() - int64(s)})
	}
	return e
}

// topic is a row that is not in the table: partitions of it, width of them in a lane.
func (f *fixture) topic(name string, partitions, width int) *metadata.Topic {
	id := f.id().String()
	t := &metadata.Topic{Name: name, ID: segment.TopicID(id[len(id)-12:]), Version: 1, Partitions: partitions, LaneWidth: width, Partitioner: "murmur2",
		History: []metadata.Growth{{Version: 1, Partitions: partitions}}, Config: metadata.DefaultTopicConfig(), Classes: []segment.Class{7}, Stored: []segment.Class{7}}
	f.widen(t)
	return t
}

// widen gives the topic the lanes that its partitions need.
func (f *fixture) widen(t *metadata.Topic) {
	for len(t.Lanes)*t.LaneWidth < t.Partitions {
		t.Lanes = append(t.Lanes, metadata.LaneID(fmt.Sprintf("%s-%d", t.ID, len(t.Lanes))))
	}
}

// lanes creates a topic of n lanes.
func (f *fixture) lanes(n int) []metadata.LaneID {
	f.Helper()
	t := f.topic("lanes", n*metadata.SlotsPerLane, metadata.SlotsPerLane)
	f.ok(f.table.CreateTopic(f.ctx, t, segment.ID{}))
	return t.Lanes
}

func (f *fixture) lane() metadata.LaneID { f.Helper(); return f.lanes(1)[0] }

// topicLane is the lane of another topic of that name.
func (f *fixture) topicLane(name string) metadata.LaneID {
	f.Helper()
	t := f.topic(name, 1, metadata.SlotsPerLane)
	f.ok(f.table.CreateTopic(f.ctx, t, segment.ID{}))
	return t.Lanes[0]
}

func (f *fixture) head(lane metadata.LaneID) *metadata.Head {
	f.Helper()
	h, err := f.table.Head(f.ctx, lane, metadata.Strong)
	f.ok(err)
	return h
}

// commitTo is a commit that the lane as it is in the image takes.
func commitTo(h *metadata.Head, writer int, entries ...metadata.Entry) metadata.Commit {
	return metadata.Commit{Lane: h.Lane, Entries: entries, Writer: writer, Epoch: h.Epochs[writer], Cap: metadata.CapFor(h.First, len(entries))}
}

// commit appends entries to the lane.
func (f *fixture) commit(lane metadata.LaneID, entries ...metadata.Entry) *metadata.Head {
	f.Helper()
	h, err := f.table.Commit(f.ctx, commitTo(f.head(lane), 3, entries...))
	f.ok(err)
	return h
}

// spill moves all whole chunks out of the head.
func (f *fixture) spill(h *metadata.Head) error {
	var before metadata.Offsets
	if h.First > 0 {
		c, err := f.table.Chunk(f.ctx, h.Lane, h.First-h.K, metadata.Strong)
		if err != nil {
			return err
		}
		before = c.MaxTimes
	}
	plan := metadata.PlanSpill(h, before)
	for _, c := range plan.Chunks {
		if err := f.table.PutChunk(f.ctx, c); err != nil {
			return err
		}
	}
	if len(plan.Chunks) == 0 {
		return nil
	}
	_, err := f.table.Trim(f.ctx, h.Lane, plan.From, plan.To, plan.IDs)
	if errors.Is(err, metadata.ErrChanged) {
		return nil
	}
	return err
}

// together runs n callers at once and returns their errors.
func together(n int, do func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = do(i)
		})
	}
	close(start)
	wg.Wait()
	return errs
}

// oneWins fails unless exactly one error is nil and all others are the condition.
func (f *fixture) oneWins(errs []error, lost error) (winner int) {
	f.Helper()
	winner = -1
	for i, err := range errs {
		switch {
		case err != nil:
			f.is(err, lost)
		case winner >= 0:
			f.Fatalf("both %d and %d have won", winner, i)
		default:
			winner = i
		}
	}
	if winner < 0 {
		f.Fatal("nobody has won")
	}
	return winner
}
