package sdk_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/varvelog/varve/sdk"
)

// OnAssigned may say where partitions start, from the application's own store: ahead of what is committed, behind it, below the log start; what is committed
// afterwards never goes back.
func TestOnAssignedSaysWhereToStart(t *testing.T) {
	for _, c := range []struct{ committed, given, logStart, first int64 }{{3, 7, 0, 7}, {5, 2, 0, 2}, {5, 1, 4, 4}} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.create("t", 2, 64)
			b.fill("t", 2, 10)
			_, err := b.log.Admin().DeleteRecords(b.ctx, "t", 0, c.logStart)
			check(t, err)
			m := b.joins(sdk.ManualCommit())
			b.takes(m)
			check(t, m.CommitOffsets(b.ctx, map[sdk.TopicPartition]sdk.CommitOffset{tp("t", 0): {Offset: c.committed}, tp("t", 1): {Offset: 6}}))
			check(t, m.Close(b.ctx))
			m = b.joins(sdk.ManualCommit(), sdk.OnAssigned(func(_ context.Context, all []sdk.TopicPartition) map[sdk.TopicPartition]int64 {
				if !slices.Equal(all, []sdk.TopicPartition{tp("t", 0), tp("t", 1)}) {
					t.Errorf("assigned %v", all)
				}
				return map[sdk.TopicPartition]int64{tp("t", 0): c.given}
			}))
			first := map[int]int64{}
			for range 5 {
				fetches, err := m.Poll(b.ctx)
				check(t, err)
				for _, f := range fetches {
					if _, known := first[f.Partition]; !known {
						first[f.Partition] = f.Records[0].Offset
					}
				}
			}
			if first[0] != c.first || first[1] != 6 {
				t.Errorf("committed %d, given %d: begins at %d, and the other partition at %d, want %d and 6", c.committed, c.given, first[0], first[1], c.first)
			}
			if p := b.describe("g", sdk.Earliest).Partitions[0]; p.Committed != c.committed {
				t.Errorf("committed %d, before anything was", p.Committed)
			}
			check(t, m.Commit(b.ctx))
			if p := b.describe("g", sdk.Earliest).Partitions[0]; p.Committed != 10 {
				t.Errorf("committed %d", p.Committed)
			}
			check(t, m.Close(b.ctx))
		})
	}
}
