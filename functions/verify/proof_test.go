package verify_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/clean"
	"github.com/varvelog/varve/functions/internal/archivetest"
	"github.com/varvelog/varve/functions/verify"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// proven is the log of used, and a check of it with a proof file.
func proven(t testing.TB) (*world, verify.Options) {
	w := used(t)
	o := w.options()
	o.Proof = filepath.Join(t.TempDir(), "proof")
	r := w.verify(o)
	if !r.OK() || len(r.Findings) > 0 || !r.Proof.Replaced || !r.Proof.Since.IsZero() || r.Totals.Known+r.Totals.Compared+r.Totals.Uncompared != 0 {
		t.Fatalf("%s\n%+v", describe(r), r)
	}
	return w, o
}

// The sums of partitions are those of their records, whatever has been erased, and wherever they are.
func TestPartitionSums(t *testing.T) {
	w, _ := proven(t)
	r := w.verify(w.options())
	for p, got := range r.Partitions {
		var all []segment.Record
		reader, err := w.log.NewReader(t.Context(), "t", sdk.ReadPartitions(p), sdk.From(sdk.AtOffset(0)))
		check(t, err)
		for len(all) < 26 {
			fetches, err := reader.Poll(t.Context())
			check(t, err)
			for _, f := range fetches {
				for _, r := range f.Records {
					all = append(all, segment.Record{Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value})
				}
			}
		}
		check(t, reader.Close())
		want := verify.PartitionSum{Topic: "t", Partition: p, To: 27, Records: 26, Removed: 1, Sum: archivetest.Sum(all), Appended: got.Appended}
		if got != want || got.Appended.Records != 27 || got.Appended == got.Sum {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if len(r.Partitions) != 2 {
		t.Errorf("%+v", r.Partitions)
	}
}

// The next check reads what is new: commits behind the archive, and rows that are others.
func TestOnlyWhatIsNewIsRead(t *testing.T) {
	w, o := proven(t)
	var gets atomic.Int64
	w.store.before = func(call string) {
		if call == "Get" {
			gets.Add(1)
		}
	}
	reads := func() int64 {
		gets.Store(0)
		r := w.verify(o)
		if !r.OK() || len(r.Findings) > 0 || !r.Proof.Replaced || r.Proof.Since.IsZero() == (o.Proof != "") || r.Totals.Uncompared > 0 {
			t.Fatalf("%s\n%+v", describe(r), r)
		}
		t.Logf("%+v", r.Totals)
		return gets.Load()
	}
	const identity, commits, segments = 1, metadata.ChunkOrders + 3, 3 // two rows of each partition; those of the first segment were written again, each to one of its own
	if n := reads(); n != identity+commits {
		t.Errorf("nothing is new: %d GETs", n)
	}
	o.All = true
	if n := reads(); n != identity+commits+segments {
		t.Errorf("all: %d GETs", n)
	}
	o.All = false
	w.compact(1)
	if n := reads(); n != identity+3+1 {
		t.Errorf("a chunk archived: %d GETs", n)
	}
	w.merge(0)
	if n := reads(); n != identity+3+1 {
		t.Errorf("rows of a partition merged: %d GETs", n)
	}
	w.produce(2, at("t", 0)...)
	if n := reads(); n != identity+5 {
		t.Errorf("two commits more: %d GETs", n)
	}
}

// What has been appended stays the same, whatever rewrites it.
func TestRewritesAreAccountedFor(t *testing.T) {
	for _, e := range archiveEvents {
		synctest.Test(t, func(t *testing.T) {
			w, o := proven(t)
			e.happen(w)
			for range 2 {
				r := w.verify(o)
				if !harmless(r) || !r.Proof.Replaced {
					t.Errorf("%s: %s", e.name, describe(r))
				}
				t.Logf("%s: %d known, %d compared, %d not", e.name, r.Totals.Known, r.Totals.Compared, r.Totals.Uncompared)
			}
		})
	}
}

// An erasure and a key compaction of rows that were proven are compared to the last offset.
func TestRemovalsAreAccountedFor(t *testing.T) {
	w, o := proven(t)
	w.everythingArchived()
	if r := w.verify(o); !harmless(r) || r.Totals.Compared != 54 || r.Totals.Uncompared != 0 {
		t.Fatalf("archived: %s\n%+v", describe(r), r.Totals)
	}
	w.erase(func(r *segment.Record) bool { return r.Offset%5 == 0 })
	if r := w.verify(o); !harmless(r) || r.Totals.Compared != 54 || r.Totals.Uncompared != 0 || r.Partitions[0].Removed != 7 {
		t.Fatalf("erased: %s\n%+v", describe(r), r.Totals)
	}
	_, err := w.log.Admin().AlterTopic(t.Context(), "t", sdk.Alteration{Config: map[string]string{metadata.CleanupPolicy: "compact"}})
	check(t, err)
	_, err = clean.Run(t.Context(), w.plain(), w.store.Store, clean.Options{Dirty: 0.01, Env: w.env})
	check(t, err)
	if r := w.verify(o); !harmless(r) || r.Totals.Compared != 54 || r.Totals.Uncompared != 0 || r.Partitions[0].Records != 1 || r.Partitions[0].Appended.Records != 27 {
		t.Fatalf("key-compacted: %s\n%+v", describe(r), r.Totals)
	}
}

// Where a partition ended when it was proven may come to lie within a row. It is compared up to there if what has been removed of the row was all on one side of it; otherwise the row is not, which is told.
func TestTheEndThatWasProven(t *testing.T) {
	theEndThatWasProven(t, 8, 32, 36)
	theEndThatWasProven(t, 0, 32)
	theEndThatWasProven(t, 0, 36)
}

func theEndThatWasProven(t *testing.T, uncompared int64, erased ...int64) {
	t.Helper()
	w, o := proven(t)
	w.produce(4, at("t", 0, 1)...)
	w.everythingArchived()
	if r := w.verify(o); !harmless(r) || r.Totals.Compared != 54 || r.Totals.Uncompared != 0 {
		t.Fatalf("archived: %s\n%+v", describe(r), r.Totals)
	}
	w.produce(4, at("t", 0, 1)...)
	if r := w.verify(o); !harmless(r) || r.Totals.Compared != 62 || r.Totals.Uncompared != 0 {
		t.Fatalf("more: %s\n%+v", describe(r), r.Totals)
	}
	w.produce(2, at("t", 0, 1)...)
	w.everythingArchived()
	w.erase(func(r *segment.Record) bool { return slices.Contains(erased, r.Offset) })
	r := w.verify(o)
	told := int64(0)
	for _, f := range r.Findings {
		if f.Kind == verify.HistoryUncompared {
			told++
		}
	}
	if r.Damage+r.Suspicious > 0 || r.Totals.Compared != 70-uncompared || r.Totals.Uncompared != uncompared || told != uncompared/4 {
		t.Fatalf("erased %v: %s\n%+v", erased, describe(r), r.Totals)
	}
	if r := w.verify(o); !harmless(r) || r.Totals.Compared != 74 || r.Totals.Uncompared != 0 {
		t.Fatalf("afterwards: %s\n%+v", describe(r), r.Totals)
	}
}

// rewrites are those of a varve that is wrong, each sound in itself: nothing but the proof tells.
var rewrites = []struct {
	name string
	do   func(w *world)
}{
	{"a record lost", func(w *world) {
		w.erase(func(r *segment.Record) bool { return r.Offset == 12 })
		w.bendRows(func(r *metadata.Row) {
			if r.Base == 8 {
				r.Gone = segment.Sum{}
			}
		})
	}},
	{"a record lost, and another counted as removed", func(w *world) {
		w.erase(func(r *segment.Record) bool { return r.Offset == 12 })
		w.bendRows(func(r *metadata.Row) {
			if r.Base == 8 {
				r.Gone.Plain++
			}
		})
	}},
	{"what was removed is forgotten", func(w *world) {
		w.bendRows(func(r *metadata.Row) { r.Gone = segment.Sum{} })
	}},
	{"two records exchanged", func(w *world) { w.rewritten(func(b [][]byte) { exchange(b[2], b[5]) }) }},
	{"a record changed", func(w *world) { w.rewritten(func(b [][]byte) { archivetest.Age(b[2]) }) }},
	{"a record twice, instead of another", func(w *world) { w.rewritten(func(b [][]byte) { copy(b[4][8:], b[3][8:]) }) }},
	{"records appended before they were archived changed", func(w *world) {
		w.everythingArchived()
		w.rewriteAt(16, func(b [][]byte) { exchange(b[2], b[5]) })
	}},
	{"records appended before they were archived with newer ones changed", func(w *world) {
		w.produce(5, at("t", 0, 1)...)
		w.everythingArchived()
		w.rewriteAt(16, func(b [][]byte) { archivetest.Age(b[9]) })
	}},
	{"the same, and merged with others", func(w *world) {
		w.erase(func(r *segment.Record) bool { return r.Offset == 3 })
		w.everythingArchived()
		w.merge(0)
		w.merge(1)
		w.rewriteAt(0, func(b [][]byte) { exchange(b[20], b[22]) })
	}},
}

func (w *world) bendRows(bend func(*metadata.Row)) {
	topic := w.row("t").ID
	w.table.row = func(r *metadata.Row) {
		if r.Topic == topic && r.Partition == 1 {
			bend(r)
		}
	}
}

// rewritten changes the batches of partition 1 from offset 8 on, and the row's sum with them.
func (w *world) rewritten(bend func(batches [][]byte)) { w.rewriteAt(8, bend) }

func (w *world) rewriteAt(base int64, bend func(batches [][]byte)) {
	w.t.Helper()
	name := w.archiveName(1, base)
	row, body := w.rowAt(1, base), w.body(name)
	all := batches(w.t, body[row.Start:][:row.Bytes])
	bend(all)
	var sum segment.Sum
	for _, b := range all {
		records, err := new(segment.Decoder).Decode(b, 0, nil)
		check(w.t, err)
		sum = sum.Plus(archivetest.Sum(records))
	}
	w.store.show(name, body)
	w.bendRows(func(r *metadata.Row) {
		if r.Base == row.Base {
			r.Sum = sum
		}
	})
}

// Each of them is found, by this check and by the next, and by no check without the proof.
func TestBadRewritesAreFound(t *testing.T) {
	for _, c := range rewrites {
		synctest.Test(t, func(t *testing.T) {
			w, o := proven(t)
			c.do(w)
			if r := w.verify(w.options()); len(r.Findings) > 0 {
				t.Errorf("%s, without the proof: %s", c.name, describe(r))
			}
			for range 2 {
				if f := only(t, w.verify(o), verify.HistoryChanged); len(f.Ranges) != 1 || f.Ranges[0].Partition != 1 || f.Ranges[0].To <= f.Ranges[0].From {
					t.Errorf("%s: %+v", c.name, f)
				}
			}
		})
	}
}

// An object that is changed under a row that stays is found by a check of all, and by each after that.
func TestKnownRowsAreReadAgain(t *testing.T) {
	w, o := proven(t)
	w.rewriteAt(8, func(b [][]byte) { exchange(b[2], b[5]) })
	w.table.row = nil
	if r := w.verify(o); !r.OK() {
		t.Fatal(describe(r))
	}
	for i := range 2 {
		o.All = i == 0
		only(t, w.verify(o), verify.RowSumDiffers)
	}
	w.store.bodies = nil
	for i := range 2 {
		if r := w.verify(o); !r.OK() || r.Totals.Known == 4 != (i == 1) {
			t.Errorf("mended: %s\n%+v", describe(r), r.Totals)
		}
	}
	w.store.show(w.archiveName(1, 8), nil)
	only(t, w.verify(o), verify.ObjectMissing)
}

// A table that was put back to an earlier moment has less than was proven.
func TestPutBackIsTold(t *testing.T) {
	w, o := proven(t)
	lane := w.row("t").Lanes[0]
	w.table.head = func(h *metadata.Head) {
		if h.Lane == lane {
			h.Next, h.Entries, h.Ends = h.Next-1, h.Entries[:len(h.Entries)-1], metadata.Offsets{26, 26}
		}
	}
	for range 2 {
		r := w.verify(o)
		if kinds(r)[verify.HistoryShorter] != 2 || r.Damage != 2 {
			t.Error(describe(r))
		}
	}
	w.table.head = nil
	if r := w.verify(o); !r.OK() || r.Totals.Compared != 54 {
		t.Error(describe(r))
	}
}

// What a lifecycle rule has deleted before the log start was moved is not known, and no damage: what was proven stays.
func TestWhatIsGoneIsNotCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, o := proven(t)
		time.Sleep(8 * 24 * time.Hour)
		w.vanish(w.object(w.row("t").Lanes[0], 20))
		r := w.verify(o)
		if !harmless(r) || r.Totals.Compared != 0 || !r.Partitions[0].Partial || r.Totals.Expired != 1 {
			t.Fatalf("%s\n%+v\n%+v", describe(r), r.Totals, r.Partitions)
		}
		for p := range 2 {
			_, err := w.log.Admin().DeleteRecords(t.Context(), "t", p, 21)
			check(t, err)
		}
		if r := w.verify(o); !harmless(r) || r.Partitions[0].Partial || r.Partitions[0].From != 21 {
			t.Fatalf("%s\n%+v\n%+v", describe(r), r.Totals, r.Partitions)
		}
	})
}

// What is no proof of this log is refused, and stays as it is; so does one when the check could not be finished.
func TestProofsThatAreRefused(t *testing.T) {
	w, o := proven(t)
	good, err := os.ReadFile(o.Proof)
	check(t, err)
	other := used(t)
	for name, c := range map[string]struct {
		w    *world
		body []byte
		want string
	}{
		"of another log": {other, good, "name the file of this log"},
		"cut off":        {w, good[:len(good)-20], "remove it"},
		"empty":          {w, nil, "remove it"},
		"a line less":    {w, bytes.Join(append(bytes.SplitAfter(good, []byte("\n"))[:1:1], bytes.SplitAfter(good, []byte("\n"))[2:]...), nil), "remove it"},
		"a byte changed": {w, bytes.Replace(good, []byte(`"end":8`), []byte(`"end":7`), 1), "remove it"},
		"a newer one":    {w, bytes.Replace(good, []byte(`Proof":1`), []byte(`Proof":2`), 1), "newer"},
		"something else": {w, []byte("hello\n"), "remove it"},
	} {
		check(t, os.WriteFile(o.Proof, c.body, 0o600))
		var refused *verify.ProofError
		r, err := verify.Run(t.Context(), c.w.table, c.w.store, verify.Options{Env: w.env, Proof: o.Proof})
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) || !r.Incomplete {
			t.Errorf("%s: %v", name, err)
		}
		if now, err := os.ReadFile(o.Proof); err != nil || !bytes.Equal(now, c.body) {
			t.Errorf("%s: it is another now, %v", name, err)
		}
	}
	check(t, os.WriteFile(o.Proof, good, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	w.table.before = func(string) { cancel() }
	if _, err := verify.Run(ctx, w.table, w.store, o); err == nil {
		t.Error("no error")
	}
	w.table.before = nil
	now, err := os.ReadFile(o.Proof)
	if files, _ := os.ReadDir(filepath.Dir(o.Proof)); err != nil || !bytes.Equal(now, good) || len(files) != 1 {
		t.Errorf("not finished: it is another now, %v, %d files", err, len(files))
	}
	nowhere := filepath.Join(t.TempDir(), "none", "proof")
	if _, err := verify.Run(t.Context(), w.table, w.store, verify.Options{Env: w.env, Proof: nowhere}); !errors.As(err, new(*verify.ProofError)) || !strings.Contains(err.Error(), "make it") {
		t.Errorf("in a directory that is not there: %v", err)
	}
	o.IndexOnly = true
	if _, err := verify.Run(t.Context(), w.table, w.store, o); !errors.Is(err, metadata.ErrInvalid) {
		t.Error(err)
	}
}

// A check of some topics keeps what was proven of others; topics that are gone are told of once.
func TestProofOfSomeTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, o := proven(t)
		w.topic("other", 2, 1)
		w.produce(9, at("other", 0, 1)...)
		some := o
		some.Topics = []string{"other"}
		if r := w.verify(some); !r.OK() || r.Totals.Compared != 0 || len(r.Partitions) != 2 {
			t.Fatalf("%s\n%+v", describe(r), r)
		}
		if r := w.verify(o); !r.OK() || r.Totals.Compared != 54+18 || r.Totals.Known != 4 {
			t.Fatalf("%s\n%+v", describe(r), r)
		}
		check(t, w.log.Admin().DeleteTopic(t.Context(), "t"))
		time.Sleep(time.Hour)
		some.Topics = []string{"other"}
		if r := w.verify(some); !r.OK() || kinds(r)[verify.HistoryGone] != 1 {
			t.Fatal(describe(r))
		}
		if r := w.verify(o); !harmless(r) || kinds(r)[verify.HistoryGone] != 0 || r.Totals.Compared != 18 {
			t.Fatalf("%s\n%+v", describe(r), r.Totals)
		}
	})
}
