package topics

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

var dayLong = Change{Set: map[string]string{metadata.RetentionMs: "86400000"}}

func TestAlter(t *testing.T) {
	table := newTable(t)
	before := mustCreate(t, table, "orders", 3, 1)
	p := &process{Table: table}
	after, err := keeper(p).Alter(t.Context(), "orders", dayLong)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"ReplaceTopic", "SetHeadConfig", "SetStateConfig", "SetHeadConfig", "SetStateConfig", "SetHeadConfig", "SetStateConfig"}; !slices.Equal(p.writes, want) {
		t.Errorf("steps %v, want %v: the row before the heads", p.writes, want)
	}
	got := whole(t, table, "orders")
	if after.Version != 2 || got.Version != 2 || got.Class().String() != "r1d" || !slices.Equal(got.Lanes, before.Lanes) || len(got.History) != 1 {
		t.Errorf("%+v", got)
	}
	if want := []segment.Class{7, 1}; !slices.Equal(got.Classes, want) {
		t.Errorf("classes %v, want %v", got.Classes, want)
	}
	if !slices.Equal(got.Stored, got.Classes) || !slices.Equal(got.Leaving(), []segment.Class{7}) {
		t.Errorf("stored %v: of what is stored nothing is known yet", got.Stored)
	}
	for _, lane := range got.Lanes {
		head, err := table.Head(t.Context(), lane, metadata.Strong)
		if err != nil {
			t.Fatal(err)
		}
		for x, epoch := range head.Epochs {
			if epoch != 1 {
				t.Errorf("lane %s epoch %d is %d: its writers would not read the row", lane, x, epoch)
			}
		}
	}
}

// A crash at any step leaves a topic that works, and any later Alter, of the same or of something else, completes it.
func TestAlterCrash(t *testing.T) {
	other := Change{Set: map[string]string{metadata.MaxMessageBytes: "1000"}}
	for _, f := range crashes(7) {
		for name, then := range map[string]Change{"the same again": dayLong, "another change": other, "no change": {}} {
			t.Run(f.String()+", then "+name, func(t *testing.T) {
				table := newTable(t)
				mustCreate(t, table, "orders", 3, 1)
				if _, err := keeper(&process{Table: table, fault: f}).Alter(t.Context(), "orders", dayLong); !errors.Is(err, errCrashed) {
					t.Fatal(err)
				}
				if _, err := keeper(table).Alter(t.Context(), "orders", then); err != nil {
					t.Fatal(err)
				}
				got := whole(t, table, "orders")
				crashedBefore := f.at == 0 && !f.applied
				if want := !crashedBefore || name == "the same again"; (got.Class() == 1) != want {
					t.Errorf("class %s after %v", got.Class(), f)
				}
				if name == "another change" && got.Config.MaxMessageBytes != 1000 {
					t.Errorf("%+v", got.Config)
				}
			})
		}
	}
}

func TestAlterSettlesUnknownOutcomes(t *testing.T) {
	for _, f := range doubts(7) {
		t.Run(f.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := newTable(t)
				mustCreate(t, table, "orders", 3, 1)
				if _, err := keeper(&process{Table: table, fault: f}).Alter(t.Context(), "orders", Change{Set: dayLong.Set, Partitions: 5}); err != nil {
					t.Fatal(err)
				}
				got := whole(t, table, "orders")
				if got.Version != 2 || len(got.Lanes) != 5 || len(got.History) != 2 {
					t.Errorf("the change was made twice, or not: %+v", got)
				}
			})
		})
	}
}

// Changes that meet lose nothing of one another.
func TestAlterConcurrently(t *testing.T) {
	table := newTable(t)
	mustCreate(t, table, "orders", 4, 2)
	changes := []Change{
		dayLong,
		{Set: map[string]string{metadata.RetentionBytes: "5"}},
		{Set: map[string]string{metadata.MaxMessageBytes: "7"}},
		{Set: map[string]string{metadata.CleanupPolicy: "compact,delete"}},
		{Set: map[string]string{metadata.TimestampType: "LogAppendTime"}},
		{Partitions: 6},
		{Partitions: 9},
	}
	var wg sync.WaitGroup
	for _, c := range changes {
		wg.Go(func() {
			_, err := keeper(table).Alter(t.Context(), "orders", c)
			var f *metadata.FieldError
			if err != nil && !(c.Partitions == 6 && errors.As(err, &f)) { // 9 may have been first
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got := whole(t, table, "orders")
	want := metadata.TopicConfig{Retention: 24 * 3600e9, RetentionBytes: 5, MaxMessageBytes: 7, CleanupPolicy: "compact,delete", TimeType: segment.LogAppendTime}
	if got.Config != want || got.Partitions != 9 || len(got.Lanes) != 5 {
		t.Errorf("%+v", got)
	}
}

func TestBR28_Grow(t *testing.T) {
	table := newTable(t)
	before := mustCreate(t, table, "orders", 5, 2) // the last lane is half empty
	after, err := keeper(table).Alter(t.Context(), "orders", Change{Partitions: 8})
	if err != nil {
		t.Fatal(err)
	}
	for p := range before.Partitions {
		if before.Place(p) != after.Place(p) {
			t.Errorf("partition %d moved", p)
		}
	}
	got := whole(t, table, "orders")
	if want := []metadata.Growth{{Version: 1, Partitions: 5}, {Version: 2, Partitions: 8}}; !slices.Equal(got.History, want) || len(got.Lanes) != 4 {
		t.Errorf("%+v", got)
	}
	var f *metadata.FieldError
	for _, n := range []int{7, 1, -1, 49*2 + 1} {
		if _, err := keeper(table).Alter(t.Context(), "orders", Change{Partitions: n}); !errors.As(err, &f) || f.Topic != "orders" || f.Field != "partitions" {
			t.Errorf("to %d: %v", n, err)
		}
	}
	if err := table.MarkKeyed(t.Context(), "orders", got.ID); err != nil {
		t.Fatal(err)
	}
	_, err = keeper(table).Alter(t.Context(), "orders", Change{Partitions: 16})
	var moves *KeysMoveError
	if !errors.As(err, &moves) || !errors.Is(err, metadata.ErrInvalid) || moves.From != 8 || moves.To != 16 {
		t.Errorf("a keyed topic grew unasked: %v", err)
	}
	if whole(t, table, "orders").Version != 2 {
		t.Error("a refused change changed the row")
	}
	if _, err = keeper(table).Alter(t.Context(), "orders", Change{Partitions: 16, MoveKeys: true}); err != nil {
		t.Error(err)
	}
	if got := whole(t, table, "orders"); got.Partitions != 16 || !got.Keyed {
		t.Errorf("%+v", got)
	}
}

func TestGrowCrash(t *testing.T) {
	for _, f := range crashes(9) {
		t.Run(f.String(), func(t *testing.T) {
			table := newTable(t)
			mustCreate(t, table, "orders", 2, 1)
			if _, err := keeper(&process{Table: table, fault: f}).Alter(t.Context(), "orders", Change{Partitions: 4}); !errors.Is(err, errCrashed) {
				t.Fatal(err)
			}
			if _, err := keeper(table).Alter(t.Context(), "orders", Change{Partitions: 4}); err != nil {
				t.Fatal(err)
			}
			if got := whole(t, table, "orders"); got.Partitions != 4 || len(got.Lanes) != 4 || got.Version != 2 {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestMovingPercent(t *testing.T) {
	for _, c := range []struct{ from, to int }{{8, 16}, {8, 12}, {3, 4}, {1, 2}, {7, 49}} {
		moved, n := 0, 100_000
		for h := range n {
			if h%c.from != h%c.to {
				moved++
			}
		}
		if got, want := movingPercent(c.from, c.to), 100*moved/n; got < want-1 || got > want+1 {
			t.Errorf("%d to %d: %d %%, counted %d %%", c.from, c.to, got, want)
		}
	}
}
