package dynamo_test

import (
	"fmt"
	"testing"

	"github.com/varvelog/varve/metadata"
)

// The head of a busy lane with 64 partitions, before any entries, in bytes (a number is its name, a byte for every two digits, and one):
//
//	pk, sk      2 + "L#" and 14 characters of lane id, 2 + "HEAD"      24
//	g, s        1 + 4 each, six digits                                 10
//	ep0…epF     16 × (3 + 1)                                           64
//	k, cv, minv 1 + 2, 2 + 2, 4 + 2                                    13
//	class       5 + "r7d"                                               8
//	floor       5 + 20                                                 25
//	p0…p63      10 × (2 + 6) and 54 × (3 + 6), nine digits            566
//	                                                                  ---
//	                                                                  710
//
// An entry adds 2 × 21 of names, 4 of order, and its packed form: 2 + 1 + slot set + 1, then for each slot 1 count + 3 bytes + time.
//
//	t = 14      46 + 2 + 1 + 2 + 1 + 14 × 4 + 14 × 1                  122
//	t = 64      46 + 2 + 1 + 8 + 1 + 64 × 4 + 43 × 1 + 21 × 2         399
//
// A commit with w entries waiting before it is billed for the item after it, 710 + (w+1) × entry, in whole KB; the trim of 8 for the
// item before it, here with 9. The chunk of 8 is
//
//	pk, sk, c   2 + 16, 2 + 20, 1, and 2 of version and number         43
//	bases       1 + 8 + 64 × 4                                        265
//	maxima      1 + set + 6 + times     t = 14: 1+2+6+14 = 23   t = 64: 1+8+6+85 = 100
//	entries     8 × (20 + length + packed)      8 × (21+76)           8 × (22+353)
//	                                                 = 1107                = 3408
//
// So at a low rate, when a spill finds eight entries, a commit with its share of the spill costs (1+1+6×2 + 2 + 2)/8 = 2.25 units at t = 14,
// and (3×2+2×3+3×4 + 4 + 4)/8 = 4 at t = 64.
const baseSize = 710

func TestWriteUnitsOfACommit(t *testing.T) {
	for _, c := range []struct {
		touched, entry int
		units          [9]float64 // with 0 to 8 entries waiting
		trim, chunk    float64
	}{
		// 832 954 1076 1198 1320 1442 1564 1686 1808
		{14, 122, [9]float64{1, 1, 2, 2, 2, 2, 2, 2, 2}, 2, 2},
		// 1109 1508 1907 2306 2705 3104 3503 3902 4301
		{64, 399, [9]float64{2, 2, 2, 3, 3, 4, 4, 4, 5}, 5, 4},
	} {
		t.Run(fmt.Sprint(c.touched), func(t *testing.T) {
			r := newRig(t)
			lane := r.lane("0123456789av-0")
			r.busy(lane)
			h := r.head(lane)
			for waiting, want := range c.units {
				e := wide(uint64(waiting+1), c.touched)
				packed := len(metadata.EntryAttr(e.ID)) + len(metadata.OrderAttr(e.ID)) + 4 + len(metadata.AppendEntry(nil, &e))
				if packed != c.entry {
					t.Fatalf("an entry adds %d bytes, the arithmetic says %d", packed, c.entry)
				}
				r.next()
				var err error
				h, err = r.table.Commit(r.ctx, commitTo(h, e))
				r.ok(err)
				if got := r.calls[0].WriteUnits; len(r.calls) != 1 || got != want || want != kilobytes(baseSize+(waiting+1)*c.entry) {
					t.Errorf("%d waiting: %v units, want %v", waiting, got, want)
				}
			}
			plan := metadata.PlanSpill(h, metadata.Offsets{})
			r.next()
			r.ok(r.table.PutChunk(r.ctx, plan.Chunks[0]))
			_, err := r.table.Trim(r.ctx, lane, plan.From, plan.To, plan.IDs)
			r.ok(err)
			if got := r.calls[0].WriteUnits; got != c.chunk {
				t.Errorf("the chunk cost %v, want %v", got, c.chunk)
			}
			if got := r.calls[1].WriteUnits; got != c.trim {
				t.Errorf("the trim cost %v, want %v", got, c.trim)
			}
		})
	}
}

func kilobytes(size int) float64 { return float64((size + 1023) / 1024) }

// wide is an entry of a flush that touched the first slots: 100 records of 340 bytes in each, their times 3 ms apart.
func wide(number uint64, touched int) metadata.Entry {
	var slots []metadata.Slot
	for s := range touched {
		slots = append(slots, metadata.Slot(s))
	}
	e := entry(number, 100, slots...)
	for i := range e.Slots {
		e.Slots[i].MaxTime = e.ID.Time().UnixMilli() - int64(i*3)
	}
	return e
}

// busy makes the lane's head look as it does after 123,456 commits.
func (r *rig) busy(lane metadata.LaneID) {
	r.Helper()
	it := r.item(metadata.HeadKey(lane))
	it["g"], it["s"] = num(123_456), num(123_456)
	it["floor"] = str(entry(0, 1, 0).ID.String())
	for s := range metadata.SlotsPerLane {
		it[metadata.EndAttr(metadata.Slot(s))] = num(123_456_789)
	}
	r.put(it)
}

// A producer that repeats its requests adds, in bytes, 2 + 13 for the name, 3 for the list, and for each of its numbers one and what a number of two digits a byte has:
// a sequence of four, 4, and five orders of six digits, 5 × 5. That is 47; wn and wfloor, 4 and 17, come once. Until its sixth request it is less.
//
// So one is hardly ever seen in the price of a commit, and 16 are 773 bytes, three quarters of a unit with each commit and each trim, whoever commits.
const (
	producerSize = 47
	onceSize     = 2 + 2 + 6 + 11
)

func TestWriteUnitsWithProducers(t *testing.T) {
	for _, c := range []struct {
		producers, touched, entry int
		units                     [9]float64 // with 0 to 8 entries waiting
	}{
		// 900 1022 1144 1266 1388 1510 1632 1754 1876; without producers 1 1 2 2 2 2 2 2 2
		{1, 14, 122, [9]float64{1, 1, 2, 2, 2, 2, 2, 2, 2}},
		// 1605 1727 1849 1971 2093 2215 2337 2459 2581
		{16, 14, 122, [9]float64{2, 2, 2, 2, 3, 3, 3, 3, 3}},
		// 1177 1576 1975 2374 2773 3172 3571 3970 4369; without 2 2 2 3 3 4 4 4 5
		{1, 64, 399, [9]float64{2, 2, 2, 3, 3, 4, 4, 4, 5}},
		// 1882 2281 2680 3079 3478 3877 4276 4675 5074
		{16, 64, 399, [9]float64{2, 3, 3, 4, 4, 4, 5, 5, 5}},
	} {
		t.Run(fmt.Sprint(c.producers, " ", c.touched), func(t *testing.T) {
			r := newRig(t)
			lane := r.lane("0123456789av-0")
			r.busy(lane)
			it := r.item(metadata.HeadKey(lane))
			id := func(n int) metadata.ProducerID { return metadata.NewProducerID(born, uint64(n)) }
			for n := range c.producers {
				it[metadata.ProducerAttr(id(n))] = list(num(1234), num(123_450), num(123_451), num(123_452), num(123_453), num(123_449))
			}
			it["wn"], it["wfloor"] = num(int64(c.producers)), num(int64(id(0)-1))
			r.put(it)
			h := r.head(lane)
			for waiting, want := range c.units {
				commit := commitTo(h, wide(uint64(waiting+1), c.touched))
				for n := range c.producers {
					commit.Producers = append(commit.Producers, metadata.ProducerStep{ID: id(n), Sequence: int64(1235 + waiting)})
				}
				r.next()
				var err error
				h, err = r.table.Commit(r.ctx, commit)
				r.ok(err)
				size := baseSize + onceSize + c.producers*producerSize + (waiting+1)*c.entry
				if got := r.calls[0].WriteUnits; len(r.calls) != 1 || got != want || want != kilobytes(size) {
					t.Errorf("%d waiting: %v units, want %v, for %d bytes", waiting, got, want, size)
				}
			}
		})
	}
}
