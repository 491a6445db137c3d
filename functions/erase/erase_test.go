package erase_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/functions/erase"
	"github.com/varvelog/varve/functions/internal/archive"
	"github.com/varvelog/varve/functions/internal/archivetest"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// filled is a topic of two partitions of five rows each, in which every tenth record is of the key "gone".
func filled(t testing.TB) *archivetest.World {
	w := archivetest.New(t, 2, "delete")
	n := 0
	for row := range 5 {
		for p := range 2 {
			var records []segment.Record
			for range 20 + 3*row {
				r := segment.Record{Timestamp: int64(n), Key: fmt.Append(nil, "key", n), Value: bytes.Repeat([]byte{byte(n)}, 50)}
				if n%10 == 0 && row != 2 {
					r.Key = []byte("gone")
				}
				n++
				records = append(records, r)
			}
			w.Append(p, segment.Codec(row), records...)
		}
	}
	return w
}

func match(r *segment.Record) bool { return string(r.Key) == "gone" }

func options(w *archivetest.World) erase.Options {
	return erase.Options{Topic: w.Topic.Name, Match: match, Env: w.Env, Archive: func(context.Context, string) error { return nil }}
}

// erased fails unless all but the records to be erased are there, as they were.
func erased(w *archivetest.World) (gone int64) {
	w.T.Helper()
	for p := range w.Records {
		var want []segment.Record
		for _, r := range w.Records[p] {
			if match(&r) {
				gone++
				continue
			}
			want = append(want, r)
		}
		if got, _ := w.Left(p); !reflect.DeepEqual(got, want) {
			w.T.Fatalf("partition %d: %d records are left, want %d", p, len(got), len(want))
		}
	}
	return gone
}

func TestErase(t *testing.T) {
	w := filled(t)
	var before [][]*metadata.Row
	for p := range 2 {
		_, rows := w.Left(p)
		before = append(before, rows)
	}
	o := options(w)
	o.DryRun = true
	dry, err := erase.Run(t.Context(), w.Table, w.Objects, o)
	check(t, err)
	for p := range 2 {
		if _, rows := w.Left(p); !reflect.DeepEqual(rows, before[p]) {
			t.Fatal("a dry run changes rows")
		}
	}
	o = options(w)
	o.Target = 3000 // several segments
	o.Versions = 30 * 24 * time.Hour
	report, err := erase.Run(t.Context(), w.Table, w.Objects, o)
	check(t, err)
	gone := erased(w)
	if report.Erased != gone || dry.Erased != gone || report.Rewritten != 8 || dry.Rewritten != 8 || report.Extents != 10 || report.Verified == nil || report.Verified.Extents != 10 || report.Verified.Found != 0 {
		t.Errorf("%d are gone: %+v %+v", gone, report, report.Verified)
	}
	for p := range 2 {
		_, rows := w.Left(p)
		for i, row := range rows {
			if was := before[p][i]; row.Base != was.Base || row.End != was.End || (i == 2) != row.Same(was) || row.RunMax != was.RunMax || !row.First.Equal(was.First) {
				t.Errorf("row %+v was %+v", row, was)
			}
		}
	}
	left := 0
	for _, r := range report.Replaced {
		left += len(r.Left)
		if d := time.Until(r.Due); d > metadata.RestoreWindow || d < metadata.RestoreWindow-time.Minute {
			t.Errorf("due in %v", d)
		}
	}
	if left != 8 || len(report.Replaced) < 10 { // the replaced segments; and the entries of the world's own publications
		t.Errorf("%d objects in %d entries", left, len(report.Replaced))
	}
	const day = 24 * time.Hour
	g := report.Gone
	if late := g.Versions.Sub(g.Objects) - day - o.Versions; late <= 0 || late > day || !g.Versions.Equal(g.Versions.Truncate(day)) || g.Backups.Sub(g.Objects) != day+erase.TableBackups {
		t.Errorf("%+v", g)
	}
	o = options(w)
	o.Versions = -1
	again, err := erase.Run(t.Context(), w.Table, w.Objects, o)
	check(t, err)
	if again.Erased != 0 || !again.Gone.Versions.IsZero() || again.Rewritten != 0 || again.Written != 0 {
		t.Errorf("%+v", again)
	}
	o.Match = func(*segment.Record) bool { return true } // all: rows without a segment stay
	_, err = erase.Run(t.Context(), w.Table, w.Objects, o)
	check(t, err)
	records, rows := w.Left(0)
	if len(records) != 0 || rows[len(rows)-1].End != int64(len(w.Records[0])) {
		t.Errorf("%d records, %+v", len(records), rows)
	}
}

// What fails before it is applied, or after, at any request: nothing else is lost, and another run ends the work.
func TestFaultsAtEveryRequest(t *testing.T) {
	for _, applied := range []bool{false, true} {
		for n, step := 0, stride; ; n += step {
			if n > 80 { // now it only reads the work list
				step = 150
			}
			w := filled(t)
			made := w.FailAt(n, applied)
			_, err := erase.Run(t.Context(), w.Table, w.Objects, options(w))
			w.Heal()
			requests := *made
			if err == nil {
				erased(w)
			}
			_, err = erase.Run(t.Context(), w.Table, w.Objects, options(w))
			check(t, err)
			erased(w)
			if requests <= n {
				t.Logf("applied %t: %d requests", applied, requests)
				break
			}
		}
	}
}

// Another rewrites the rows between reading and publishing: the partition is begun anew.
func TestOvertaken(t *testing.T) {
	w := filled(t)
	inner, times := w.Env, 0
	o := options(w)
	o.Env.Pause = func(p env.Point) {
		if p != env.BeforePublish || times == 2 {
			return
		}
		times++
		_, rows := w.Left(0)
		s := w.Services()
		s.Env = inner
		_, _, err := archive.Rewrite(t.Context(), s, archive.Rewriting{Log: segment.LogID{1}, Topic: w.Topic, Groups: [][]*metadata.Row{rows}, Keep: func(*segment.Record) bool { return true }}, func() {})
		check(t, err)
	}
	_, err := erase.Run(t.Context(), w.Table, w.Objects, o)
	check(t, err)
	erased(w)
}

// A record that is archived by a publication between erasing and proving is found by the proof.
func TestProofFinds(t *testing.T) {
	w := filled(t)
	o := options(w)
	done := false
	o.Env.Pause = func(p env.Point) {
		if p == env.AfterPublish && !done {
			done = true
			w.Append(0, segment.None, segment.Record{Key: []byte("gone"), Value: []byte("late")})
		}
	}
	_, err := erase.Run(t.Context(), w.Table, w.Objects, o)
	var found *erase.FoundError
	if !errors.As(err, &found) || found.Found != 1 {
		t.Fatal(err)
	}
}

func TestRefuses(t *testing.T) {
	w := filled(t)
	o := options(w)
	o.Topic = "none"
	if _, err := erase.Run(t.Context(), w.Table, w.Objects, o); !errors.Is(err, metadata.ErrUnknownTopic) || !strings.Contains(err.Error(), `"none"`) {
		t.Error(err)
	}
	o = options(w)
	broken := errors.New("broken")
	o.Archive = func(context.Context, string) error { return broken }
	if _, err := erase.Run(t.Context(), w.Table, w.Objects, o); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// Records that are not what they were when they were archived, with a right checksum, end the erasure, and the rows stay.
func TestAnotherSumEndsTheErasure(t *testing.T) {
	w := filled(t)
	_, before := w.Left(0)
	var differs *archive.SumError
	if _, err := erase.Run(t.Context(), w.Table, w.Aged(before[0]), options(w)); !errors.As(err, &differs) || differs.Row.Base != before[0].Base {
		t.Error(err)
	}
	after, err := archive.Rows(t.Context(), w.Table, w.Topic, 0, w.State())
	if check(t, err); !reflect.DeepEqual(after, before) {
		t.Errorf("%+v", after)
	}
}
