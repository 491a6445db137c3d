package clean_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/clean"
	"github.com/varvelog/varve/functions/internal/archive"
	"github.com/varvelog/varve/functions/internal/archivetest"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a log whose topic is to be cleaned.
type world struct{ *archivetest.World }

func newWorld(t testing.TB, partitions int, policy string) world {
	return world{archivetest.New(t, partitions, policy)}
}

// stateOf is the last value of each key.
func stateOf(records []segment.Record) map[string]string {
	state := map[string]string{}
	for _, r := range records {
		switch {
		case r.Key == nil:
		case r.Value == nil:
			delete(state, string(r.Key))
		default:
			state[string(r.Key)] = string(r.Value)
		}
	}
	return state
}

// verify holds what is left against what was appended: records are as they were, in order; the state is that of all; no key comes back for any reader who begins at
// the start; records without a key are there.
func (w world) verify(partition int) (records []segment.Record) {
	w.T.Helper()
	records, _ = w.Left(partition)
	all := w.Records[partition]
	last := int64(-1)
	keyless := 0
	for _, r := range records {
		if r.Offset <= last || !reflect.DeepEqual(r, all[r.Offset]) {
			w.T.Fatalf("partition %d: after %d\n got %+v\nwant %+v", partition, last, r, all[r.Offset])
		}
		if last = r.Offset; r.Key == nil {
			keyless++
		}
	}
	for _, r := range all {
		if r.Key == nil {
			keyless--
		}
	}
	if got, want := stateOf(records), stateOf(all); !maps.Equal(got, want) || keyless != 0 {
		w.T.Fatalf("partition %d: %d keys, want %d; %d records without a key too few", partition, len(got), len(want), -keyless)
	}
	return records
}

// clean verifies that after a run that is done exactly the latest of each key is left, and of tombstones those that are not too old.
func (w world) clean(o clean.Options) *clean.Report {
	w.T.Helper()
	o.Env = w.Env
	report, err := clean.Run(w.T.Context(), w.Table, w.Objects, o)
	check(w.T, err)
	return report
}

// latest is the offset of the latest record of each key that was appended.
func (w world) latest(partition int) map[string]int64 {
	latest := map[string]int64{}
	for _, r := range w.Records[partition] {
		if r.Key != nil {
			latest[string(r.Key)] = r.Offset
		}
	}
	return latest
}

// isClean fails unless exactly the latest record of each key is left, but for tombstones past the age.
func (w world) isClean(partition int, tombstones time.Duration) {
	w.T.Helper()
	latest := w.latest(partition)
	left := map[int64]bool{}
	for _, r := range w.verify(partition) {
		left[r.Offset] = true
	}
	for _, r := range w.Records[partition] {
		want := r.Key == nil || latest[string(r.Key)] == r.Offset
		if r.Value == nil && r.Key != nil && time.Since(w.Ages[partition][r.Offset]) > tombstones {
			want = false
		}
		if left[r.Offset] != want {
			w.T.Fatalf("partition %d offset %d (%q = %q): left %t, want %t", partition, r.Offset, r.Key, r.Value, left[r.Offset], want)
		}
	}
	if s := w.State(); s.Ends[partition] != int64(len(w.Records[partition])) || s.Cleaned[partition].To != s.Ends[partition] {
		w.T.Fatalf("partition %d ends at %d, is clean up to %d, %d records were appended", partition, s.Ends[partition], s.Cleaned[partition].To, len(w.Records[partition]))
	}
}

// some makes records with a few keys, some of them tombstones or without a key.
func some(chance *rand.Rand, n, keys int) (records []segment.Record) {
	for i := range n {
		r := segment.Record{Timestamp: int64(i), Key: fmt.Append(nil, "key", chance.IntN(keys)), Value: fmt.Append(nil, "value", chance.Int64())}
		switch chance.IntN(12) {
		case 0:
			r.Value = nil
		case 1:
			r.Key = nil
		case 2:
			r.Value = []byte{}
		case 3:
			r.Key = []byte{}
		case 4:
			r.Headers = []segment.Header{{Key: "h", Value: nil}, {Key: "h", Value: []byte("x")}}
		}
		records = append(records, r)
	}
	return records
}

// Passes over a growing partition, of all codecs, from memory and from files: exactly the latest of each key stays.
func TestLatestOfEachKeyStays(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for seed := range uint64(stories) {
		synctest.Test(t, func(t *testing.T) {
			chance := rand.New(rand.NewPCG(seed, 1))
			w := newWorld(t, 2, "compact")
			o := clean.Options{Dirty: 0.01, Tombstones: 8 * time.Hour, Target: 4000}
			if seed%2 == 1 {
				o.Memory = 500
			}
			for range 12 {
				for p := range 2 {
					w.Append(p, segment.Codec(chance.IntN(5)), some(chance, 1+chance.IntN(60), 20)...)
				}
				time.Sleep(time.Duration(chance.IntN(4)) * time.Hour)
				if chance.IntN(2) == 0 {
					w.clean(o)
					for p := range 2 {
						w.verify(p)
					}
				}
			}
			report := w.clean(o)
			for p := range 2 {
				w.isCleanBut(p, o.Tombstones)
			}
			for range 2 { // the first notes that nothing is left before the tombstones that are there, by the second they may go
				time.Sleep(24 * time.Hour)
				w.Append(0, segment.None, some(chance, 5, 20)...)
				w.Append(1, segment.None, some(chance, 5, 20)...)
				w.clean(o)
			}
			for p := range 2 {
				w.isClean(p, o.Tombstones)
			}
			if again := w.clean(o); len(again.Partitions) != 0 {
				t.Errorf("a pass over what is clean: %+v", again)
			}
			if files, _ := filepath.Glob(filepath.Join(os.TempDir(), "varve-clean-*")); seed%2 == 1 && len(files) > 0 {
				t.Errorf("left behind: %v", files)
			}
			if seed == 0 {
				t.Logf("%+v", report.Partitions)
			}
		})
	}
}

// isCleanBut is isClean where tombstones of some age may be there or not.
func (w world) isCleanBut(partition int, tombstones time.Duration) {
	w.T.Helper()
	latest := w.latest(partition)
	left := map[int64]bool{}
	for _, r := range w.verify(partition) {
		left[r.Offset] = true
		if r.Key != nil && latest[string(r.Key)] != r.Offset {
			w.T.Fatalf("partition %d offset %d is left, a later one has its key", partition, r.Offset)
		}
	}
	for key, offset := range latest {
		if r := w.Records[partition][offset]; !left[offset] && (r.Value != nil || time.Since(w.Ages[partition][offset]) <= tombstones) {
			w.T.Fatalf("partition %d: the latest of %q, offset %d, is gone", partition, key, offset)
		}
	}
}

// BR-14: one key ten times over three segments. What is left is the last, at its offset, and the rows reach to the end.
func TestBR14_OneKeyTenTimes(t *testing.T) {
	w := newWorld(t, 1, "compact")
	for _, n := range []int{4, 3, 3} {
		var records []segment.Record
		for range n {
			records = append(records, segment.Record{Key: []byte("k"), Value: fmt.Append(nil, len(w.Records[0])+len(records))})
		}
		w.Append(0, segment.None, records...)
	}
	if r := w.clean(clean.Options{DryRun: true}); len(r.Partitions) != 1 || r.Partitions[0].Rows != 3 || w.State().Cleaned[0].To != 0 {
		t.Fatalf("%+v", r)
	}
	w.clean(clean.Options{})
	records, rows := w.Left(0)
	if len(records) != 1 || records[0].Offset != 9 || rows[0].Base != 0 || rows[len(rows)-1].End != 10 {
		t.Fatalf("%+v %+v", records, rows)
	}
	w.Append(0, segment.None, segment.Record{Key: []byte("k")})
	w.clean(clean.Options{Dirty: 0.01})
	if records, _ = w.Left(0); len(records) != 1 || records[0].Offset != 10 || records[0].Value != nil {
		t.Fatalf("%+v", records)
	}
}

// BR-05: null, empty and bytes of keys, values and header values, names of headers that are empty or come again, a thousand headers. Of batches that are written again without some of
// their records the others are what they were, in every codec; a null value alone deletes, and a key of no bytes is a key.
func TestBR05_NullAndEmptyAfterKeysWereCompacted(t *testing.T) {
	for codec := range segment.Codec(5) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1, "compact")
			w.Batch = 50
			forms := [][]byte{nil, {}, []byte("bytes")}
			many := make([]segment.Header, 1000)
			for i := range many {
				many[i] = segment.Header{Key: fmt.Sprint("h", i%3), Value: forms[i%3]}
			}
			var records []segment.Record
			for range 2 { // each key again: of the first only those without a key stay
				for _, key := range forms {
					for _, value := range forms {
						records = append(records, segment.Record{Key: key, Value: value, Headers: []segment.Header{{Key: "", Value: forms[len(records)%3]}, {Key: "", Value: []byte("again")}}})
					}
				}
			}
			records = append(records, segment.Record{Value: []byte{}, Headers: many}, segment.Record{Key: []byte{}, Value: nil}, segment.Record{Key: []byte("bytes"), Value: []byte{}, Headers: many})
			w.Append(0, codec, records...)
			for left := 9; left >= 8; left-- { // the tombstone of the key of no bytes goes at last
				w.clean(clean.Options{Dirty: 1e-6})
				if got := w.verify(0); len(got) != left {
					t.Fatalf("codec %d: %d records are left, want %d", codec, len(got), left)
				}
				time.Sleep(clean.DefaultTombstones)
				w.Append(0, codec, segment.Record{Key: []byte("bytes"), Value: []byte{}, Headers: many})
			}
		})
	}
}

// BR-37: a deleted key never comes back, whatever is compacted when; its tombstone stays as long as it is asked to.
func TestBR37_DeletedKeyStaysDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, "compact")
		o := clean.Options{Dirty: 0.01}
		w.Append(0, segment.None, segment.Record{Key: []byte("k"), Value: []byte("v1")}, segment.Record{Key: []byte("other"), Value: []byte("o")})
		w.clean(o)
		w.Append(0, segment.None, segment.Record{Key: []byte("k")})
		w.clean(o) // v1 goes, the tombstone stays
		if records, _ := w.Left(0); len(records) != 2 || records[1].Value != nil {
			t.Fatalf("%+v", records)
		}
		for range 2 {
			time.Sleep(clean.DefaultTombstones + time.Minute)
			w.Append(0, segment.None, segment.Record{Key: []byte("other"), Value: []byte("p")})
			w.clean(o)
		}
		records, rows := w.Left(0)
		if len(records) != 1 || string(records[0].Value) != "p" || rows[0].Base != 0 {
			t.Fatalf("%+v", records)
		}
		w.verify(0)
	})
}

// BR-37: a reader is past the value, and not yet at its tombstone, when the value goes. However long ago the tombstone was appended, it is there for a day from then on. After
// that the state says who may have missed it: that is noted before the first tombstone goes.
func TestBR37_ReaderBetweenValueAndTombstone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, "compact")
		o := clean.Options{Dirty: 0.01}
		w.Append(0, segment.None, segment.Record{Key: []byte("k"), Value: []byte("v1")})
		w.Append(0, segment.None, segment.Record{Key: []byte("k")})
		time.Sleep(30 * clean.DefaultTombstones)
		tombstone := func() bool {
			records, _ := w.Left(0)
			return len(records) > 0 && records[0].Offset == 1 && records[0].Value == nil
		}
		w.clean(o) // v1 goes
		if !tombstone() || w.State().Cleaned[0].Purged != 0 {
			t.Fatalf("%+v", w.State().Cleaned[0])
		}
		another := func(after time.Duration) {
			time.Sleep(after)
			w.Append(0, segment.None, segment.Record{Key: []byte("other"), Value: []byte("o")})
			w.clean(o)
		}
		another(time.Hour)
		if another(clean.DefaultTombstones - time.Hour - time.Second); !tombstone() {
			t.Fatal("the tombstone went less than a day after what it deletes")
		}
		noted := false
		w.Env.Pause = func(p env.Point) {
			if c := w.State().Cleaned[0]; p == env.BeforePublish && c.Purged == 2 && c.Until.After(time.Now()) {
				noted = true
			}
		}
		another(time.Second)
		c := w.State().Cleaned[0]
		if tombstone() || !noted || c.Purged != 2 || c.Until.Sub(c.Since) != time.Minute || c.Settled != 5 || c.To != 5 {
			t.Fatalf("noted before: %t, then %+v", noted, c)
		}
		w.verify(0)
	})
}

// there is time for one partition a run, or for one group of it. Each run leaves lasting progress, and in the end all is clean, though one partition is never done with.
func TestX06_TimeForOneOfTen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 10, "compact")
		chance := rand.New(rand.NewPCG(3, 3))
		for p := range 10 {
			for range 4 {
				w.Append(p, segment.None, some(chance, 30, 10)...)
			}
		}
		w.OnStore = func(c fault.Call) fault.Fault {
			if c.Op == store.OpGet { // so the time is over when a partition has been read
				time.Sleep(time.Minute)
			}
			return fault.Fault{}
		}
		runs := 0
		for open := 10; open > 0; runs++ {
			w.Append(0, segment.None, some(chance, 200, 10)...) // the first partition is always due
			report := w.clean(clean.Options{Deadline: time.Minute, Target: 1000})
			if len(report.Partitions) != 1 || report.Left == 0 && open > 2 {
				t.Fatalf("run %d: %+v", runs, report)
			}
			done := report.Partitions[0]
			rows, err := archive.Rows(t.Context(), w.Table, w.Topic, done.Partition, w.State())
			if check(t, err); done.Kept == done.Records && done.Written == 0 && len(rows) >= done.Rows && !done.Done {
				t.Fatalf("run %d leaves no progress: %+v, %d rows", runs, report, len(rows))
			}
			open = 1
			for p := 1; p < 10; p++ {
				if w.State().Cleaned[p].To == 0 {
					open++
				}
			}
			if open == 1 {
				break
			}
			if runs > 1000 {
				t.Fatalf("%d partitions wait for ever", open)
			}
		}
		w.OnStore = nil
		w.clean(clean.Options{Dirty: 1e-6})
		for p := range 10 {
			w.isClean(p, clean.DefaultTombstones)
		}
		t.Logf("%d runs", runs)
	})
}

// Of two that clean at once one has ended when the other is at its end: that is no failure.
func TestTwoCleanAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, "compact")
		for i := range 3 {
			w.Append(0, segment.None, segment.Record{Key: fmt.Append(nil, i), Value: []byte("n")}) // a row of which nothing goes
			updates := 0
			w.OnTable = func(c dynamodb.Call) dynamodb.Fault {
				if c.Op == "UpdateItem" {
					if updates++; updates == 1 {
						w.clean(clean.Options{Dirty: 1e-6, Target: 1})
						time.Sleep(time.Second)
					}
				}
				return dynamodb.Fault{}
			}
			w.clean(clean.Options{Dirty: 1e-6, Target: 1})
			if w.OnTable = nil; updates != 2 {
				t.Errorf("%d updates", updates)
			}
			w.isClean(0, clean.DefaultTombstones)
		}
	})
}

// An object that is gone for good is damage, and said to be; not that another has been faster.
func TestMissingObjectIsDamage(t *testing.T) {
	w := newWorld(t, 1, "compact")
	w.Append(0, segment.None, some(rand.New(rand.NewPCG(1, 1)), 60, 10)...)
	_, rows := w.Left(0)
	check(t, w.Raw.Delete(t.Context(), segment.ArchiveName(w.Topic.ID, rows[0].Segment)))
	report, err := clean.Run(t.Context(), w.Table, w.Objects, clean.Options{Env: w.Env})
	if !errors.As(err, new(*archive.AlarmError)) || report.Overtaken != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

// The floor passes the segment before it is published: it is written again under an id above it.
func TestFloorPassesTheSegment(t *testing.T) {
	w := newWorld(t, 1, "compact")
	w.Append(0, segment.None, some(rand.New(rand.NewPCG(1, 1)), 60, 10)...)
	raised := false
	w.Env.Pause = func(p env.Point) {
		if p == env.BeforePublish && !raised {
			raised = true
			check(t, w.Table.RaiseStateFloor(t.Context(), w.Topic.Lanes[0], segment.NewID(time.Now().Add(time.Minute), 0, segment.InBucket, 0, segment.ID{})))
		}
	}
	w.clean(clean.Options{})
	w.isClean(0, clean.DefaultTombstones)
}

// What fails before it is applied, or after, at any request: the state is right at every moment, and a later run ends the work.
func TestFaultsAtEveryRequest(t *testing.T) {
	for _, applied := range []bool{false, true} {
		for n := 0; ; n += stride {
			requests := 0
			synctest.Test(t, func(t *testing.T) {
				chance := rand.New(rand.NewPCG(7, 7))
				w := newWorld(t, 1, "compact")
				for range 4 {
					w.Append(0, segment.None, some(chance, 30, 10)...)
				}
				made := w.FailAt(n, applied)
				_, err := clean.Run(t.Context(), w.Table, w.Objects, clean.Options{Env: w.Env, Target: 1500})
				w.Heal()
				requests = *made
				w.verify(0)
				w.clean(clean.Options{Target: 1500, Dirty: 0.0001})
				w.isClean(0, clean.DefaultTombstones)
				_ = err // some are repeated by the adapter, others end the run
			})
			if requests <= n {
				t.Logf("applied %t: %d requests", applied, n)
				if n < 10 {
					t.Error("too few")
				}
				break
			}
		}
	}
}

// Another changes the rows between a pass's reading and its publication: it publishes nothing, and loses nothing.
func TestOvertaken(t *testing.T) {
	chance := rand.New(rand.NewPCG(9, 9))
	w := newWorld(t, 1, "compact")
	for range 4 {
		w.Append(0, segment.None, some(chance, 30, 10)...)
	}
	inner := w.Env
	once := true
	w.Env.Pause = func(p env.Point) {
		if p == env.BeforePublish && once {
			once = false
			_, rows := w.Left(0)
			x := archive.Rewriting{Log: segment.LogID{1}, Topic: w.Topic, Groups: [][]*metadata.Row{rows}, Keep: func(*segment.Record) bool { return true }}
			s := w.Services()
			s.Env = inner
			_, _, err := archive.Rewrite(t.Context(), s, x, func() {})
			check(t, err)
		}
	}
	report := w.clean(clean.Options{})
	w.verify(0)
	if report.Overtaken != 1 {
		t.Fatalf("%+v", report)
	}
	w.clean(clean.Options{})
	w.isClean(0, clean.DefaultTombstones)
}

func TestRunRefuses(t *testing.T) {
	w := newWorld(t, 1, "delete")
	for _, o := range []clean.Options{{Topics: []string{"state"}}, {Dirty: 2}, {Tombstones: -1}} {
		o.Env = w.Env
		if _, err := clean.Run(t.Context(), w.Table, w.Objects, o); !errors.Is(err, metadata.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := clean.Run(t.Context(), w.Table, w.Objects, clean.Options{Env: w.Env, Topics: []string{"none"}}); !errors.Is(err, metadata.ErrUnknownTopic) {
		t.Error(err)
	}
	w.Append(0, segment.None, some(rand.New(rand.NewPCG(1, 1)), 10, 2)...)
	if report := w.clean(clean.Options{}); report.Topics != 0 {
		t.Errorf("%+v", report)
	}
}

// Damage is not copied: it ends the pass, and the rows stay.
func TestDamageEndsThePass(t *testing.T) {
	w := newWorld(t, 1, "compact")
	w.Append(0, segment.None, some(rand.New(rand.NewPCG(1, 1)), 30, 3)...)
	_, before := w.Left(0)
	w.OnStore = func(c fault.Call) fault.Fault {
		if c.Op == store.OpGet {
			return fault.Fault{Kind: fault.Short, Cut: 10}
		}
		return fault.Fault{}
	}
	if _, err := clean.Run(t.Context(), w.Table, w.Objects, clean.Options{Env: w.Env}); err == nil {
		t.Error("no error")
	}
	w.OnStore = nil
	if _, after := w.Left(0); !reflect.DeepEqual(after, before) {
		t.Errorf("%+v", after)
	}
}

// Records that are not what they were when they were archived, with a right checksum, end the pass, and the rows stay.
func TestAnotherSumEndsThePass(t *testing.T) {
	w := newWorld(t, 1, "compact")
	for range 3 {
		w.Append(0, segment.Zstd, some(rand.New(rand.NewPCG(1, 1)), 30, 3)...)
	}
	_, before := w.Left(0)
	var differs *archive.SumError
	if _, err := clean.Run(t.Context(), w.Table, w.Aged(before[2]), clean.Options{Env: w.Env}); !errors.As(err, &differs) || differs.Row.Base != before[2].Base || !errors.Is(err, metadata.ErrCorrupt) {
		t.Error(err)
	}
	after, err := archive.Rows(t.Context(), w.Table, w.Topic, 0, w.State())
	if check(t, err); !reflect.DeepEqual(after[1:], before[1:]) {
		t.Errorf("%+v", after)
	}
}
