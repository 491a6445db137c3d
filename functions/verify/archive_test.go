package verify_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/erase"
	"github.com/varvelog/varve/functions/internal/archivetest"
	"github.com/varvelog/varve/functions/verify"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// archived is the log of sound, of which each of the two chunks of t is in an archive segment.
func archived(t testing.TB) (w *world, lane metadata.LaneID) {
	w, lane = sound(t)
	w.compact(1)
	if s := w.state(lane); s.Archived != 16 || s.Ends[0] != 16 || s.Ends[2] != 0 {
		t.Fatalf("%+v", s)
	}
	return w, lane
}

// compact archives the chunks of t, those that together reach the target in one segment.
func (w *world) compact(target int64) {
	w.t.Helper()
	_, err := compact.Run(w.t.Context(), w.plain(), w.store.Store, compact.Options{Topics: []string{"t"}, Target: target, Env: w.env})
	check(w.t, err)
}

// erase erases what match says of what is archived of t.
func (w *world) erase(match func(*segment.Record) bool) *erase.Report {
	w.t.Helper()
	r, err := erase.Run(w.t.Context(), w.plain(), w.store.Store, erase.Options{Topic: "t", Match: match, Archive: func(context.Context, string) error {
		w.everythingArchived()
		return nil
	}, Env: w.env})
	check(w.t, err)
	return r
}

func (w *world) state(lane metadata.LaneID) *metadata.State {
	w.t.Helper()
	s, err := w.table.Table.State(w.t.Context(), lane, metadata.Strong)
	check(w.t, err)
	return s
}

func (w *world) rowAt(partition int, offset int64) *metadata.Row {
	w.t.Helper()
	r, err := w.table.Table.Row(w.t.Context(), w.row("t").ID, partition, offset, metadata.Strong)
	check(w.t, err)
	return r
}

func TestSoundArchive(t *testing.T) {
	w, _ := archived(t)
	for _, indexOnly := range []bool{false, true} {
		o := w.options()
		o.IndexOnly = indexOnly
		r := w.verify(o)
		want := verify.Totals{Topics: 2, Partitions: 6, Commits: 24, Rows: 6, Records: 18*3 + 3*5, Objects: 2 + 5 + 3, Bytes: r.Totals.Bytes, Listed: 24, Superseded: verify.Heap{Objects: 16, Bytes: r.Totals.Superseded.Bytes}}
		if !r.OK() || len(r.Findings) != 0 || r.Totals != want || r.Totals.Bytes == 0 || r.Totals.Superseded.Bytes == 0 {
			t.Errorf("%s\n%+v", describe(r), r.Totals)
		}
	}
}

// rowBent bends what is read of the row of t's partition 1 at a base.
func rowBent(base int64, bend func(*metadata.Row)) func(*world, metadata.LaneID) {
	return func(w *world, _ metadata.LaneID) {
		topic := w.row("t").ID
		w.table.row = func(r *metadata.Row) {
			if r.Topic == topic && r.Partition == 1 && r.Base == base {
				bend(r)
			}
		}
	}
}

// rowMore adds a row like that of t's partition 1 at offset 0.
func rowMore(bend func(*metadata.Row)) func(*world, metadata.LaneID) {
	return func(w *world, _ metadata.LaneID) {
		r := w.rowAt(1, 0)
		bend(r)
		w.table.moreRows = []*metadata.Row{r}
	}
}

// nothing is what a row without records says.
func nothing(r *metadata.Row) {
	r.Count, r.Segment, r.Start, r.Bytes, r.MaxTime = 0, segment.ID{}, 0, 0, 0
}

func stateBent(bend func(*metadata.State)) func(*world, metadata.LaneID) {
	return func(w *world, lane metadata.LaneID) {
		w.table.state = func(s *metadata.State) {
			if s.Lane == lane {
				bend(s)
			}
		}
	}
}

func (w *world) archiveName(partition int, offset int64) string {
	r := w.rowAt(partition, offset)
	return segment.ArchiveName(r.Topic, r.Segment)
}

// archiveBent puts what bend makes of it in place of the archive segment of the first chunk.
func archiveBent(bend func(w *world, body []byte) []byte) func(*world, metadata.LaneID) {
	return func(w *world, _ metadata.LaneID) {
		name := w.archiveName(1, 0)
		w.store.show(name, bend(w, w.body(name)))
	}
}

// archiveRebuilt is an archive segment whose runs are of something else.
func archiveRebuilt(edit func(i int, m *segment.ExtentMeta)) func(*world, metadata.LaneID) {
	return archiveBent(func(w *world, body []byte) []byte {
		f, err := segment.ParseSegment(body)
		check(w.t, err)
		b := segment.NewBuilder(segment.Archive, f.Log)
		for i, e := range f.Extents {
			meta := e.ExtentMeta
			edit(i, &meta)
			for _, batch := range batches(w.t, body[e.Offset:e.Offset+e.Length]) {
				check(w.t, b.Add(meta, e.MinTime, batch))
			}
		}
		out, _, err := b.Finish()
		check(w.t, err)
		return out
	})
}

// batches are the batches of a run.
func batches(t testing.TB, run []byte) (all [][]byte) {
	for len(run) > 0 {
		batch, rest, err := segment.SplitBatch(run)
		check(t, err)
		all, run = append(all, batch), rest
	}
	return all
}

// runBent changes the second run, partition 1's, of eight batches.
func runBent(bend func(batches [][]byte)) func(*world, metadata.LaneID) {
	return archiveBent(func(w *world, body []byte) []byte {
		f, err := segment.ParseSegment(body)
		check(w.t, err)
		bend(batches(w.t, body[f.Extents[1].Offset:][:f.Extents[1].Length]))
		return body
	})
}

// exchange exchanges two batches of the same size, but for their base offsets, which no checksum covers.
func exchange(a, b []byte) {
	was := slices.Clone(a)
	copy(a[8:], b[8:])
	copy(b[8:], was[8:])
}

func threeOf(k verify.Kind) []verify.Kind { return slices.Repeat([]verify.Kind{k}, 3) }

// archiveFaults are faults of the log of archived.
var archiveFaults = []bent{
	{"first row missing", func(w *world, _ metadata.LaneID) {
		w.table.lostRows = map[metadata.Key]bool{metadata.RowKey(w.row("t").ID, 1, 0): true}
	}, []verify.Kind{verify.RowMissing, verify.OrphansUnknown}},
	{"last row missing", func(w *world, _ metadata.LaneID) {
		w.table.lostRows = map[metadata.Key]bool{metadata.RowKey(w.row("t").ID, 1, 8): true}
	}, []verify.Kind{verify.RowMissing, verify.OrphansUnknown}},
	{"all rows missing", func(w *world, _ metadata.LaneID) {
		w.table.lostRows = map[metadata.Key]bool{metadata.RowKey(w.row("t").ID, 1, 0): true, metadata.RowKey(w.row("t").ID, 1, 8): true}
	}, []verify.Kind{verify.RowMissing, verify.OrphansUnknown}},
	{"row ends before the next", rowBent(0, func(r *metadata.Row) { r.End-- }),
		[]verify.Kind{verify.RowMissing, verify.OffsetsDiffer, verify.OrphansUnknown}},
	{"row begins before the last ends", rowMore(func(r *metadata.Row) { r.Base, r.Count = 3, 5 }),
		[]verify.Kind{verify.RowOverlaps, verify.OffsetsDiffer}},
	{"row without records within another", rowMore(func(r *metadata.Row) { r.Base, r.End = 3, 5; nothing(r) }), []verify.Kind{verify.RowOverlaps}},
	{"row across two others", rowMore(func(r *metadata.Row) { r.Base, r.End = 3, 11; nothing(r) }), []verify.Kind{verify.RowOverlaps}},
	{"row ends behind the next one's base", rowBent(0, func(r *metadata.Row) { r.End = 11 }),
		[]verify.Kind{verify.RowOverlaps, verify.OffsetsDiffer}},
	{"row above the archived offset", rowMore(func(r *metadata.Row) { r.Base, r.End = 16, 20; nothing(r) }), []verify.Kind{verify.RowAhead}},
	{"row far above the archived offset", rowMore(func(r *metadata.Row) { r.Base, r.End = 1000, 1020; nothing(r) }), []verify.Kind{verify.RowAhead}},
	{"row of a partition that has nothing in the archive", rowMore(func(r *metadata.Row) { r.Partition = 2; nothing(r) }), []verify.Kind{verify.RowAhead}},
	{"row ends above the archived offset", rowBent(8, func(r *metadata.Row) { r.End = 18 }), []verify.Kind{verify.RowAhead, verify.OffsetsDiffer}},
	{"rows of a partition that no topic has", func(w *world, _ metadata.LaneID) {
		id := w.topic("odd", 5, 2).ID
		rowMore(func(r *metadata.Row) { r.Topic, r.Partition = id, 5; nothing(r) })(w, "")
	}, []verify.Kind{verify.SlotUnknown}},
	{"running maximum below the one before", rowBent(8, func(r *metadata.Row) { r.RunMax = 5 }), []verify.Kind{verify.MaximaBroken}},
	{"running maximum above those behind it", rowBent(0, func(r *metadata.Row) { r.RunMax += 3_600_000 }), []verify.Kind{verify.MaximaBroken}},
	{"append time before those of the row before", rowBent(8, func(r *metadata.Row) { r.First = r.First.Add(-time.Hour) }), []verify.Kind{verify.RowTimes}},
	{"append time after the segment was made", rowBent(8, func(r *metadata.Row) { r.Last = r.Last.Add(time.Hour) }), []verify.Kind{verify.RowTimes}},
	{"row not readable", func(w *world, _ metadata.LaneID) {
		w.spoil(metadata.RowKey(w.row("t").ID, 1, 0), "end", &types.AttributeValueMemberS{Value: "8"})
	}, []verify.Kind{verify.RowUnreadable, verify.OrphansUnknown}},
	{"last row not readable", func(w *world, _ metadata.LaneID) {
		w.spoil(metadata.RowKey(w.row("t").ID, 1, 8), "end", &types.AttributeValueMemberS{Value: "8"})
	}, []verify.Kind{verify.RowUnreadable, verify.OrphansUnknown}},
	{"two rows not readable", func(w *world, _ metadata.LaneID) {
		for _, base := range []int64{0, 8} {
			w.spoil(metadata.RowKey(w.row("t").ID, 1, base), "t0", &types.AttributeValueMemberS{Value: "8"})
		}
	}, []verify.Kind{verify.RowUnreadable, verify.RowUnreadable, verify.OrphansUnknown}},
	{"more records than offsets", func(w *world, _ metadata.LaneID) {
		w.spoil(metadata.RowKey(w.row("t").ID, 1, 0), "n", &types.AttributeValueMemberN{Value: "9"})
	}, []verify.Kind{verify.RowUnreadable, verify.OrphansUnknown}},
	{"entry of the work list not readable", func(w *world, _ metadata.LaneID) {
		w.spoil(metadata.ReplacedKey(w.rowAt(1, 0).Segment), "from", &types.AttributeValueMemberN{Value: "-1"})
	}, []verify.Kind{verify.ReplacedUnreadable, verify.OrphansUnknown}},

	{"archived offset above the rows", stateBent(func(s *metadata.State) { s.Ends[1] = 18 }),
		[]verify.Kind{verify.RowMissing, verify.ArchiveShifted, verify.OrphansUnknown}},
	{"archived offset below the rows", stateBent(func(s *metadata.State) { s.Ends[1] = 12 }), []verify.Kind{verify.RowAhead, verify.ArchiveShifted}},
	{"archived offset at a row's base", stateBent(func(s *metadata.State) { s.Ends[1] = 8 }), []verify.Kind{verify.RowAhead, verify.ArchiveShifted}},
	{"archived offset of a slot that has nothing", stateBent(func(s *metadata.State) { s.Ends[2] = 4 }),
		[]verify.Kind{verify.RowMissing, verify.ArchiveShifted, verify.OrphansUnknown}},
	{"archived order below the archived offsets", stateBent(func(s *metadata.State) { s.Archived = 12 }), append(threeOf(verify.ArchiveShifted), verify.PlaceDiffers)},
	{"archived order above the archived offsets", stateBent(func(s *metadata.State) { s.Archived = 21 }), threeOf(verify.ArchiveShifted)},
	{"key-compacted further than archived", stateBent(func(s *metadata.State) { s.Cleaned[1].To = 17 }), []verify.Kind{verify.StateWrong}},

	{"row names a segment that is not there", rowBent(0, func(r *metadata.Row) {
		r.Segment = segment.NewID(r.Segment.Time(), r.Segment.Class(), segment.Archived, 5, segment.ID{})
	}), []verify.Kind{verify.ObjectMissing}},
	{"archive segment missing", func(w *world, _ metadata.LaneID) { w.store.show(w.archiveName(1, 8), nil) }, []verify.Kind{verify.ObjectMissing}},
	{"row names other bytes", rowBent(0, func(r *metadata.Row) { r.Start += 7 }), []verify.Kind{verify.LengthDiffers}},
	{"row names fewer bytes", rowBent(0, func(r *metadata.Row) { r.Bytes-- }), []verify.Kind{verify.LengthDiffers}},
	{"row names more bytes than there are", rowBent(0, func(r *metadata.Row) { r.Bytes = 1 << 30 }), []verify.Kind{verify.ExtentOutside, verify.LengthDiffers}},
	{"row has fewer records", rowBent(0, func(r *metadata.Row) { r.Count-- }), []verify.Kind{verify.CountDiffers}},
	{"row's latest time below a record's", rowBent(0, func(r *metadata.Row) { r.MaxTime-- }), []verify.Kind{verify.TimeDiffers}},
	{"rows of two partitions exchanged", func(w *world, _ metadata.LaneID) {
		topic, other := w.row("t").ID, w.rowAt(3, 0)
		w.table.row = func(r *metadata.Row) {
			if r.Topic == topic && r.Partition == 1 && r.Base == 0 {
				r.Start = other.Start
			}
		}
	}, []verify.Kind{verify.PlaceDiffers}},
	{"archive segment of another log", archiveBent(func(w *world, _ []byte) []byte {
		other, _ := archived(w.t)
		return other.body(other.archiveName(1, 0))
	}), []verify.Kind{verify.ObjectForeign}},
	{"intake segment", archiveBent(func(w *world, body []byte) []byte {
		f, err := segment.ParseSegment(body)
		check(w.t, err)
		b := segment.NewBuilder(segment.Intake, f.Log)
		for _, e := range f.Extents {
			e.BaseOffset, e.EndOffset = 0, 0
			for _, batch := range batches(w.t, body[e.Offset:e.Offset+e.Length]) {
				check(w.t, b.Add(e.ExtentMeta, e.MinTime, batch))
			}
		}
		out, _, err := b.Finish()
		check(w.t, err)
		return out
	}), []verify.Kind{verify.ObjectForeign}},
	{"footer names another topic", archiveRebuilt(func(_ int, m *segment.ExtentMeta) { m.Topic = "000000000000" }), threeOf(verify.PlaceDiffers)},
	{"footer names another partition", archiveRebuilt(func(i int, m *segment.ExtentMeta) { m.Partition += int32(i % 2) }), []verify.Kind{verify.PlaceDiffers}},
	{"footer names another lane", archiveRebuilt(func(_ int, m *segment.ExtentMeta) { m.Lane = "another" }), threeOf(verify.PlaceDiffers)},
	{"footer has other offsets", archiveRebuilt(func(i int, m *segment.ExtentMeta) { m.EndOffset += int64(i % 2) }), []verify.Kind{verify.OffsetsDiffer}},
	{"archive segment cut off", archiveBent(func(_ *world, body []byte) []byte { return body[:len(body)-20] }), []verify.Kind{verify.ObjectUnreadable}},
	{"archive segment cut off within a run", archiveBent(func(w *world, body []byte) []byte { return body[:w.rowAt(3, 0).Start+100] }),
		[]verify.Kind{verify.ExtentOutside, verify.ObjectUnreadable}},
	{"archive segment empty", archiveBent(func(*world, []byte) []byte { return []byte{} }), append(threeOf(verify.ExtentOutside), verify.ObjectUnreadable)},
	{"header of the archive segment", archiveBent(func(_ *world, body []byte) []byte { body[3]++; return body }), []verify.Kind{verify.ObjectUnreadable}},
	{"byte of a batch flipped", runBent(func(b [][]byte) { b[3][len(b[3])-5] ^= 4 }), []verify.Kind{verify.BatchCorrupt}},
	{"base offset negative", runBent(func(b [][]byte) { segment.SetBaseOffset(b[0], -1) }), []verify.Kind{verify.BatchCorrupt}},
	{"base offset shifted", runBent(func(b [][]byte) { segment.SetBaseOffset(b[0], 1) }), []verify.Kind{verify.OffsetsOutside}},
	{"base offset above the run", runBent(func(b [][]byte) { segment.SetBaseOffset(b[2], 1<<62) }), []verify.Kind{verify.OffsetsOutside}},
	{"row has another sum", rowBent(0, func(r *metadata.Row) { r.Sum.Plain++ }), []verify.Kind{verify.RowSumDiffers}},
	{"row has another sum of offsets", rowBent(0, func(r *metadata.Row) { r.Sum.Weighted++ }), []verify.Kind{verify.RowSumDiffers}},
	{"two records exchanged", runBent(func(b [][]byte) { exchange(b[2], b[5]) }), []verify.Kind{verify.RowSumDiffers}},
	{"record changed, with the right checksum", runBent(func(b [][]byte) { archivetest.Age(b[4]) }), []verify.Kind{verify.RowSumDiffers}},
	{"record in place of another", runBent(func(b [][]byte) { copy(b[4][8:], b[3][8:]) }), []verify.Kind{verify.RowSumDiffers}},
	{"base offset of the last batch shifted", runBent(func(b [][]byte) { segment.SetBaseOffset(b[7], 8) }), []verify.Kind{verify.OffsetsOutside}},
}

// Each fault of the archive is found, is called what it is, and brings with it nothing else.
func TestArchiveFaults(t *testing.T) {
	for i, f := range archiveFaults {
		if i%faultsShare > 0 {
			continue
		}
		t.Run(strings.ReplaceAll(f.name, " ", "-"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f.test(t, archived) })
		})
	}
}

// An archive segment of other offsets in place of one, of about the same length.
func TestArchiveSegmentOfOtherOffsets(t *testing.T) {
	w, _ := archived(t)
	archiveBent(func(w *world, _ []byte) []byte { return w.body(w.archiveName(1, 8)) })(w, "")
	r := w.verify(w.options())
	found := kinds(r)
	if n := found[verify.OffsetsDiffer] + found[verify.LengthDiffers]; n != 3 || r.Damage-int64(found[verify.ExtentOutside]) != 3 {
		t.Error(describe(r))
	}
}

// Any byte of an archive segment that is not as it was written is found, but for the leader epochs, as in intake segments.
func TestFlippedByteOfAnArchiveSegment(t *testing.T) {
	w, _ := archived(t)
	name := w.archiveName(1, 0)
	body := w.body(name)
	footer, err := segment.ParseSegment(body)
	check(t, err)
	free := map[int]bool{}
	for _, e := range footer.Extents {
		at := int(e.Offset)
		for _, batch := range batches(t, body[e.Offset:e.Offset+e.Length]) {
			for i := range 4 {
				free[at+12+i] = true
			}
			at += len(batch)
		}
	}
	for i := 0; i < len(body); i += stride {
		bent := slices.Clone(body)
		bent[i] ^= 1 << (i % 8)
		w.store.show(name, bent)
		o := w.options()
		o.Topics = []string{"t"}
		r := w.verify(o)
		if r.OK() != free[i] {
			t.Errorf("byte %d of %d, free %v: %s", i, len(body), free[i], describe(r))
		}
		for _, f := range r.Findings {
			if f.Object != name || len(f.Ranges) == 0 || f.Do == "" || f.Item == "" {
				t.Errorf("byte %d: %+v", i, f)
			}
		}
	}
}

// What the archive has taken the place of is counted apart from what nothing ever named.
func TestSupersededAndOrphans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := used(t) // of the first chunk's archive segment, another holds what was not erased of each partition
		old := w.archiveName(0, 8)
		w.merge(0) // and of the second, partition 1's run is named still
		body := w.body(old)
		for age, n := range map[time.Duration]int{2 * time.Hour: 3, 30 * time.Minute: 2} {
			for i := range n {
				id := segment.NewID(w.env.Now().Add(-age), 7, segment.Archived, uint64(i), segment.ID{})
				check(t, w.store.Put(t.Context(), segment.ArchiveName(w.row("t").ID, id), body))
			}
		}
		r := w.verify(w.options())
		orphans, recent := verify.Heap{Objects: 3, Bytes: 3 * int64(len(body))}, verify.Heap{Objects: 2, Bytes: 2 * int64(len(body))}
		// 16 intake segments, the first archive segment, and what the erasure had made of it for partition 0
		if !r.OK() || r.Totals.Superseded.Objects != 18 || r.Totals.Orphans != orphans || r.Totals.Recent != recent || !maps.Equal(kinds(r), map[verify.Kind]int{verify.Orphans: 1}) {
			t.Errorf("%s\n%+v", describe(r), r.Totals)
		}
		if r.Totals.Rows != 1+2 || r.Totals.Records != 2*(27-1) {
			t.Errorf("%+v", r.Totals)
		}
		w.erase(func(*segment.Record) bool { return true })
		if r := w.verify(w.options()); !r.OK() || r.Totals.Records != 0 {
			t.Errorf("all erased: %s\n%+v", describe(r), r.Totals)
		}
	})
}

// Nothing of the archive is looked at but what is above the log start; what waits there for the sweep is no orphan.
func TestArchiveBelowTheLogStart(t *testing.T) {
	w, _ := archived(t)
	to := func(partition int, offset int64) {
		t.Helper()
		_, err := w.log.Admin().DeleteRecords(t.Context(), "t", partition, offset)
		check(t, err)
	}
	to(0, 8)
	to(1, 7)
	to(3, 8)
	w.store.show(w.archiveName(0, 0), nil)
	if f := only(t, w.verify(w.options()), verify.ObjectMissing); len(f.Ranges) != 1 || f.Ranges[0].Partition != 1 { // of the others nothing is lost
		t.Error(f)
	}
	to(1, 8)
	if r := w.verify(w.options()); !r.OK() || len(r.Findings) != 0 || r.Totals.Expired != 1 || r.Totals.Rows != 3 {
		t.Errorf("%s\n%+v", describe(r), r.Totals)
	}
	check(t, w.table.DeleteRows(t.Context(), []*metadata.Row{w.rowAt(0, 0), w.rowAt(1, 0)}))
	if r := w.verify(w.options()); !r.OK() || len(r.Findings) != 0 || r.Totals.Rows != 3 {
		t.Errorf("%s\n%+v", describe(r), r.Totals)
	}
}
