package wire_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/metadata"
)

func state() *metadata.GroupState {
	lane := metadata.NewGroupLane("0123456789ab")
	lane.Slots[0] = metadata.Committed{Offset: metadata.NoOffset, Lease: metadata.Lease{Epoch: 3}}
	lane.Slots[63] = metadata.Committed{Offset: 0, At: time.UnixMilli(7).UTC(), Metadata: "m", Lease: metadata.Lease{Session: "0123456789abcdef", Epoch: 1}}
	return &metadata.GroupState{
		Plan: &metadata.Plan{Generation: 2, Members: []metadata.PlanMember{{Name: "a", Session: "0123456789abcdef"}}, Topics: []metadata.PlanTopic{{ID: "0123456789ab", Known: 1, Owners: []int{0, metadata.NoOwner}}}},
		Members: []metadata.Member{{Name: "a", Session: "0123456789abcdef", Beat: 5, Quiet: time.Second, Timeout: time.Minute, Topics: []string{"t"}, Client: "c"},
			{Name: "b", Session: "vvvvvvvvvvvvvvvv", Timeout: time.Minute, Topics: []string{}, Pattern: "x.*"}},
		Lanes: []*metadata.GroupLane{lane},
	}
}

// What members agree on is the same on the other side.
func TestMembers(t *testing.T) {
	b, err := json.Marshal(wire.StateOf(state(), time.UnixMilli(9)))
	if err != nil {
		t.Fatal(err)
	}
	var w wire.GroupState
	if err := json.Unmarshal(b, &w); err != nil {
		t.Fatal(err)
	}
	if got, err := w.Decode(); err != nil || !reflect.DeepEqual(got, state()) {
		t.Errorf("%s: %+v, %v", b, got, err)
	}
	lease := func(epoch int64, session metadata.SessionID) metadata.Lease {
		return metadata.Lease{Session: session, Epoch: epoch}
	}
	changes := []metadata.LeaseChange{{Slot: 1, To: lease(1, "0123456789abcdef")}, {Slot: 2, From: lease(4, "0123456789abcdef"), To: lease(4, "")}}
	if got, _, err := (&wire.LaneAction{Leases: wire.ChangesOf(changes)}).Decode(); err != nil || !reflect.DeepEqual(got, changes) {
		t.Errorf("%+v, %v", got, err)
	}
	commits := []metadata.OffsetCommit{{Slot: 1, Lease: lease(1, "0123456789abcdef"), First: true, Offset: 9, Metadata: "m"}}
	if _, got, err := (&wire.LaneAction{Offsets: wire.OffsetsOf(commits)}).Decode(); err != nil || !reflect.DeepEqual(got, commits) {
		t.Errorf("%+v, %v", got, err)
	}
	at := time.UnixMilli(5).UTC()
	moves := []metadata.StepOffsets{{Group: "g", Lane: "0123456789ab", At: at, Moves: []metadata.OffsetMove{
		{Slot: 1, Lease: lease(1, "0123456789abcdef"), From: metadata.NoOffset, To: 0}, {Slot: 2, Lease: lease(2, "0123456789abcdef"), From: 0, To: 5, Metadata: "m"}}}}
	sent := wire.MovesOf("token", moves)
	if got, err := sent.Decode("g", at); err != nil || sent.Token != "token" || !reflect.DeepEqual(got, moves) {
		t.Errorf("%+v, %v", got, err)
	}
}

// FuzzGroupState: what can be read of an answer is the same when it is sent on; what cannot says so.
func FuzzGroupState(f *testing.F) {
	b, err := json.Marshal(wire.StateOf(state(), time.UnixMilli(9)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"plan":{"generation":0},"members":[],"lanes":[]}`))
	f.Add([]byte(`{"members":[{"session":"x"}],"lanes":[{"lane":"l","slots":[{"slot":64},{"slot":1,"lease":"0"}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var w wire.GroupState
		if json.Unmarshal(b, &w) != nil {
			return
		}
		s, err := w.Decode()
		if err != nil {
			if !errors.Is(err, metadata.ErrInvalid) && !errors.Is(err, metadata.ErrCorrupt) && !errors.Is(err, metadata.ErrVersion) {
				t.Fatal(err)
			}
			return
		}
		again := wire.StateOf(s, time.UnixMilli(9))
		if got, err := again.Decode(); err != nil || !reflect.DeepEqual(wire.StateOf(got, time.UnixMilli(9)), again) {
			t.Fatalf("%+v, %v", got, err)
		}
	})
}
