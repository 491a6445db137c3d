package dynamo_test

import (
	"fmt"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// Items that another sends do what CommitStep does, and leave it an action.
func TestItems(t *testing.T) {
	r := newRig(t)
	lane := r.lane("a")
	head := r.head(lane)
	entry := func(n int) metadata.Entry {
		return metadata.Entry{ID: segment.NewID(time.Now(), 7, segment.InBucket, uint64(n), segment.ID{}), Slots: []metadata.SlotEntry{{Slot: 3, Count: 2, Bytes: 9}}}
	}
	commit := metadata.Commit{Lane: lane, Cap: metadata.CapFor(head.First, 1), Entries: []metadata.Entry{entry(1)}, Once: true}
	lease := metadata.Lease{Session: "0123456789abcdef", Epoch: 1}
	_, err := r.table.SetLeases(r.ctx, "g", "in", []metadata.LeaseChange{{Slot: 5, To: lease}})
	r.ok(err)
	moves := []metadata.StepOffsets{{Group: "g", Lane: "in", At: time.Now(), Moves: []metadata.OffsetMove{{Slot: 5, Lease: lease, From: metadata.NoOffset, To: 4}}}}
	items, err := r.table.Items([]metadata.Commit{commit}, moves)
	r.ok(err)
	if _, err := r.raw.TransactWriteItems(r.ctx, &sdk.TransactWriteItemsInput{TransactItems: items}); err != nil {
		t.Fatal(err)
	}
	if head = r.head(lane); head.Next != 1 || head.Ends[3] != 2 || head.Find(commit.Entries[0].ID) != 0 {
		t.Errorf("%+v", head)
	}
	l, err := r.table.GroupLane(r.ctx, "g", "in")
	r.ok(err)
	if l.Slots[5].Offset != 4 {
		t.Errorf("%+v", l.Slots[5])
	}
	var many []metadata.Commit
	for i := range 100 {
		c := commit
		c.Lane = metadata.LaneID(fmt.Sprint("lane", i))
		many = append(many, c)
	}
	_, err = r.table.Items(many, nil)
	r.is(err, metadata.ErrInvalid)
	_, err = r.table.Items(many[:99], moves)
	r.is(err, metadata.ErrInvalid)
	_, err = r.table.Items(nil, nil)
	r.is(err, metadata.ErrInvalid)
	if items, err = r.table.Items(many[:98], moves); err != nil || len(items) != 99 {
		t.Errorf("%d items, %v", len(items), err)
	}
}
