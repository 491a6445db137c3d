package retain_test

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/functions/retain"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// At an age of exactly the retention nothing goes, by preview, run and rule alike; a millisecond later all of it does, by preview and run, and by the rule
// some time after.
func TestBR36_AtExactlyTheRetention(t *testing.T) {
	w := newWorld(t)
	topic := w.create("t", 1, 1)
	id := w.commit(topic.Lanes[0], born, extent{0, 5, 100})
	for _, c := range []struct {
		age  time.Duration
		want int64
	}{{7*day - time.Millisecond, 0}, {7 * day, 0}, {7*day + time.Millisecond, 5}} {
		w.now = born.Add(c.age)
		preview, done := w.mustRun(retain.Options{DryRun: true}), w.mustRun(retain.Options{})
		if fmt.Sprint(preview.Topics[0].Moves) != fmt.Sprint(done.Topics[0].Moves) {
			t.Errorf("at %v: the preview says %v, the run %v", c.age, preview.Topics[0].Moves, done.Topics[0].Moves)
		}
		if got := w.starts(topic)[0]; got != c.want {
			t.Errorf("at %v: log start %d, want %d", c.age, got, c.want)
		}
		if due := metadata.RuleDue(id.Time(), id.Class()); !due.After(w.now) {
			t.Errorf("at %v: the rule has deleted since %v", c.age, due)
		}
	}
	if w.mustRun(retain.Options{}); w.starts(topic)[0] != 5 {
		t.Error("again")
	}
}

// piece is an extent as the model sees it.
type piece struct {
	base, end, bytes int64
	last             time.Time
}

// model is the log start that these pieces should have: a dumb second implementation.
func model(pieces []piece, start int64, now time.Time, keep metadata.Retention) int64 {
	for _, x := range pieces {
		if !metadata.Expired(x.last, now, keep.Time) {
			break
		}
		start = max(start, x.end)
	}
	kept, from := int64(0), int64(math.MaxInt64)
	for i := len(pieces) - 1; i >= 0 && kept < keep.Bytes; i-- {
		kept, from = kept+pieces[i].bytes, pieces[i].base
	}
	if len(pieces) == 0 || keep.Bytes < 0 || kept < keep.Bytes {
		return start
	}
	if keep.Bytes == 0 {
		from = pieces[len(pieces)-1].end
	}
	return max(start, from)
}

// TestLogStarts compares log starts with the model's, in histories with rows, chunks and heads, log starts within extents, slots that are seldom written,
// and limits of both kinds.
func TestLogStarts(t *testing.T) {
	var moved, byBytes, byTime int
	for seed := range uint64(histories) {
		w := newWorld(t)
		rnd := env.NewRand(seed)
		keep := metadata.Retention{Time: time.Duration(rnd.Int64N(48)) * time.Hour, Bytes: rnd.Int64N(40_000)}
		switch rnd.Int64N(4) {
		case 0:
			keep.Time = -1
		case 1, 2:
			keep.Bytes = -1
		}
		timeLimit := "-1"
		if keep.Time >= 0 {
			timeLimit = ms(keep.Time)
		}
		topic := w.create("t", 3, 3, metadata.RetentionMs, timeLimit, metadata.RetentionBytes, fmt.Sprint(keep.Bytes))
		lane := topic.Lanes[0]
		var pieces [3][]piece
		var ends [3]int64
		now := born
		commits := rnd.Int64N(120)
		for range commits {
			now = now.Add(time.Duration(rnd.Int64N(int64(time.Hour))))
			var extents []extent
			for slot := range metadata.Slot(3) {
				if rnd.Int64N(int64(1+3*slot)) > 0 {
					continue
				}
				x := extent{slot, int32(1 + rnd.Int64N(9)), int32(100 + rnd.Int64N(900))}
				extents = append(extents, x)
				pieces[slot] = append(pieces[slot], piece{ends[slot], ends[slot] + int64(x.count), int64(x.bytes), now})
				ends[slot] += int64(x.count)
			}
			if len(extents) > 0 {
				w.commit(lane, now, extents...)
			}
		}
		w.now = now
		head, err := w.Table.Head(w.ctx, lane, metadata.Strong)
		check(t, err)
		for archived := int64(0); archived < head.First && rnd.Int64N(3) > 0; {
			archived = min(archived+1+rnd.Int64N(32), head.First) // which may be within a chunk
			p := w.archive(topic, lane, archived, int(1+rnd.Int64N(4)), topic.Class())
			for slot := range metadata.Slot(3) {
				end, ok := p.Ends[slot]
				if !ok {
					continue
				}
				rest := slices.DeleteFunc(pieces[slot], func(x piece) bool { return x.end <= end && x.base >= firstOf(p, int(slot)) })
				at := slices.IndexFunc(rest, func(x piece) bool { return x.base >= end })
				if at < 0 {
					at = len(rest)
				}
				var rows []piece
				for _, r := range p.Put {
					if r.Partition == int(slot) {
						rows = append(rows, piece{r.Base, r.End, r.Bytes, r.Last})
					}
				}
				pieces[slot] = slices.Insert(rest, at, rows...)
			}
		}
		for round := range 3 {
			before := w.starts(topic)
			if rnd.Int64N(3) == 0 { // as DeleteRecords does, at any record
				slot := metadata.Slot(rnd.Int64N(3))
				_, err := w.Table.SetStart(w.ctx, lane, slot, rnd.Int64N(ends[slot]+1))
				check(t, err)
				before = w.starts(topic)
			}
			w.mustRun(retain.Options{})
			for p, got := range w.starts(topic) {
				rest := slices.DeleteFunc(slices.Clone(pieces[p]), func(x piece) bool { return x.end <= before[p] })
				want := model(rest, before[p], w.now, keep)
				if got != want {
					t.Fatalf("seed %d round %d: partition %d starts at %d, want %d (was %d); keeps %v; %d commits", seed, round, p, got, want, before[p], keep, commits)
				}
				if got > before[p] {
					moved++
				}
			}
			w.now = w.now.Add(time.Duration(rnd.Int64N(int64(30 * time.Hour))))
		}
		if keep.Bytes >= 0 {
			byBytes++
		}
		if keep.Time >= 0 {
			byTime++
		}
	}
	t.Logf("%d log starts moved as they should, in %d histories with a limit of time and %d with one of bytes", moved, byTime, byBytes)
	if moved < histories*3/2 || byBytes < histories/4 || byTime < histories/4 {
		t.Error("too little was tried")
	}
}

func firstOf(p *metadata.Publication, partition int) int64 {
	for _, r := range p.Put {
		if r.Partition == partition {
			return r.Base
		}
	}
	return 0
}

// Of nothing that has expired a run knows by one read of each lane, whatever is in it.
func TestCostsWhenNothingExpires(t *testing.T) {
	w := newWorld(t)
	topic := w.create("t", 64*3, 64)
	for i := range 100 {
		for _, lane := range topic.Lanes {
			w.commit(lane, born.Add(time.Duration(i)*time.Minute), extent{metadata.Slot(i % 64), 1, 100})
		}
	}
	w.now = born.Add(2 * time.Hour)
	w.mustRun(retain.Options{})
	first := len(w.calls)
	w.now = born.Add(7*day - time.Hour)
	w.mustRun(retain.Options{})
	if want := []string{"Identity", "Topics", "State", "State", "State"}; !slices.Equal(w.calls, want) {
		t.Errorf("%v, want %v", w.calls, want)
	}
	t.Logf("3 lanes of 64 partitions, 300 commits: the first run makes %d requests, later ones %d", first, len(w.calls))
}

// What has expired is found by a search, and gone through once.
func TestCostsOfWhatExpires(t *testing.T) {
	const commits = 3000
	w := newWorld(t)
	topic := w.create("t", 1, 1)
	lane := topic.Lanes[0]
	w.series(lane, commits, time.Minute, extent{0, 1, 100})
	run := func(now time.Time, want int64) (chunks int) {
		w.now = now
		w.mustRun(retain.Options{})
		if got := w.starts(topic)[0]; got != want {
			t.Errorf("log start %d, want %d", got, want)
		}
		for _, op := range w.calls {
			if op == "Chunks" {
				chunks++
			}
		}
		return chunks
	}
	at := func(n int) time.Time { return born.Add(7*day + time.Duration(n)*time.Minute) }
	halvings := bits.Len(commits / metadata.ChunkOrders)
	few := run(at(1000), 1000)
	again := run(at(1030), 1030)
	many := run(at(2500), 2500)
	t.Logf("%d commits in the index: %d queries of chunks until 1,000 have expired, %d for 30 more, %d for 1,470 more", commits, few, again, many)
	pages := func(n int) int { return bits.Len(uint(n/8)) + n/8/64 + 1 } // of 1, 2, 4 … 64 chunks
	if few > halvings+pages(1000) || again > halvings+pages(30) || many > halvings+pages(1470) {
		t.Errorf("%d halvings, and %d, %d, %d pages would do", halvings, pages(1000), pages(30), pages(1470))
	}
}

// By bytes, no more is gone through than what is kept.
func TestCostsByBytes(t *testing.T) {
	const commits = 3000
	w := newWorld(t)
	topic := w.create("t", 1, 1, metadata.RetentionMs, "-1", metadata.RetentionBytes, "20000")
	lane := topic.Lanes[0]
	w.series(lane, commits, time.Minute, extent{0, 1, 100})
	w.mustRun(retain.Options{})
	if got := w.starts(topic)[0]; got != commits-200 {
		t.Errorf("log start %d: 200 commits of 100 bytes are to be kept of %d", got, commits)
	}
	if n := len(w.calls); n > 7 { // identity, topics, state twice, head, a page of chunks, the start
		t.Errorf("%d requests: %v", n, w.calls)
	}
}

// Of extents of 100 bytes, in a head, chunks and rows of four each, as many stay as come to at least retention.bytes, and not one more, to the byte.
func TestBytesToTheByte(t *testing.T) {
	for _, c := range []struct{ bytes, kept int64 }{{1, 1}, {100, 1}, {101, 2}, {400, 4}, {401, 5}, {2000, 20}, {2001, 21}, {2400, 24}, {2401, 28}, {2800, 28}, {2801, 32}, {4000, 40}, {4001, 40}} {
		w := newWorld(t)
		topic := w.create("t", 1, 1, metadata.RetentionMs, "-1", metadata.RetentionBytes, fmt.Sprint(c.bytes))
		for range 40 {
			w.commit(topic.Lanes[0], w.now, extent{0, 1, 100})
		}
		w.archive(topic, topic.Lanes[0], 16, 4, topic.Class())
		w.mustRun(retain.Options{})
		if got := 40 - w.starts(topic)[0]; got != c.kept {
			t.Errorf("%d bytes: %d records of 100 are kept, want %d", c.bytes, got, c.kept)
		}
	}
}

// Each write fails, or fails and is applied all the same. The run says so; the next one completes it.
func TestFaults(t *testing.T) {
	broken := fmt.Errorf("%w: broken", metadata.ErrDenied) // one that is not tried again
	for _, op := range []string{"SetStart", "SetOldest", "SetHeadConfig", "SetStateConfig", "SetStored"} {
		for _, applied := range []bool{false, true} {
			for nth := range 2 {
				t.Run(fmt.Sprintf("%s %d, applied %v", op, nth, applied), func(t *testing.T) {
					w := newWorld(t)
					topic := w.create("t", 4, 2)
					for _, lane := range topic.Lanes {
						w.commit(lane, born, extent{0, 3, 10}, extent{1, 4, 10})
					}
					w.halfAltered(topic, metadata.RetentionMs, ms(30*day))
					w.now = born.Add(8 * day)
					n, met := 0, false
					w.fault = func(what string) (bool, error) {
						if what == op {
							if n++; n == nth+1 {
								met = true
								return applied, broken
							}
						}
						return false, nil
					}
					_, err := w.run(retain.Options{})
					if met && !errors.Is(err, broken) || !met && err != nil {
						t.Errorf("met it: %v; the run says %v", met, err)
					}
					if !met && !(op == "SetStored" && nth == 1) {
						t.Error("it was not met")
					}
					w.fault = nil
					w.mustRun(retain.Options{})
					if got := w.starts(topic); !slices.Equal(got, []int64{3, 4, 3, 4}) {
						t.Errorf("log starts %v", got)
					}
					if row := w.row("t"); !slices.Equal(row.Stored, []segment.Class{30}) || row.EffectiveRetention().Time != 30*day {
						t.Errorf("stored %v", row.Stored)
					}
				})
			}
		}
	}
}

// Of two runs that meet, neither undoes or disturbs the other's work.
func TestRunsThatMeet(t *testing.T) {
	w := newWorld(t)
	topic := w.create("t", 2, 2)
	for i := range 50 {
		w.commit(topic.Lanes[0], born.Add(time.Duration(i)*time.Hour), extent{0, 1, 10}, extent{1, 2, 10})
	}
	w.now = born.Add(7*day + 20*time.Hour + time.Minute)
	inner := false
	w.before = func(n int, op string) {
		if inner || n != 6 {
			return
		}
		inner = true
		now := w.now
		w.now = now.Add(5 * time.Hour) // the other one has begun later
		_, err := retain.Run(w.ctx, w, retain.Options{Env: w.env})
		w.now = now
		check(t, err)
	}
	w.mustRun(retain.Options{})
	if !inner {
		t.Fatal("they did not meet")
	}
	if got := w.starts(topic); !slices.Equal(got, []int64{26, 52}) {
		t.Errorf("log starts %v, want those of the later one", got)
	}
}

// Rows that are merged, and chunks that the sweep removes behind a log start that another has raised, between any two reads: no alarm, and nothing wrong.
func TestTheLaneMovesOn(t *testing.T) {
	events := map[string]func(w *world, topic *metadata.Topic, p *metadata.Publication){
		"rows are merged": func(w *world, topic *metadata.Topic, p *metadata.Publication) {
			w.minted++
			id := segment.NewID(w.now, topic.Class(), segment.Archived, w.minted, segment.ID{})
			merged := p.Put[0]
			merged.Segment = id
			for _, r := range p.Put[1:] {
				merged.End, merged.Count, merged.Bytes, merged.Last, merged.RunMax = r.End, merged.Count+r.Count, merged.Bytes+r.Bytes, r.Last, r.RunMax
			}
			check(w.t, w.Table.Publish(w.ctx, &metadata.Publication{Lane: p.Lane, ID: id, From: p.To, To: p.To, Put: []metadata.Row{merged}, Replace: p.Put, Left: []segment.ID{p.ID}}))
		},
		"chunks are removed": func(w *world, topic *metadata.Topic, p *metadata.Publication) {
			_, err := w.Table.SetStart(w.ctx, p.Lane, 0, 64)
			check(w.t, err)
			_, err = w.Table.SetFirst(w.ctx, p.Lane, 64)
			check(w.t, err)
			check(w.t, w.Table.DeleteChunks(w.ctx, p.Lane, 0, 64))
		},
		"chunks go to the archive": func(w *world, topic *metadata.Topic, p *metadata.Publication) {
			w.archive(topic, p.Lane, 64, 3, topic.Class())
		},
	}
	for name, event := range events {
		for _, bytes := range []string{"-1", "2000"} {
			for at := 0; ; at += stride {
				w := newWorld(t)
				topic := w.create("t", 1, 1, metadata.RetentionBytes, bytes)
				w.series(topic.Lanes[0], 100, time.Hour, extent{0, 1, 50})
				w.now = born.Add(7*day + 70*time.Hour + time.Minute)
				p := w.archive(topic, topic.Lanes[0], 32, 4, topic.Class())
				happened := false
				w.before = func(n int, _ string) {
					if n == at {
						happened = true
						event(w, topic, p)
					}
				}
				if _, err := w.run(retain.Options{}); err != nil {
					t.Errorf("%s before request %d: %v", name, at, err)
				}
				w.before = nil
				w.mustRun(retain.Options{})
				if got := w.starts(topic)[0]; got != 71 {
					t.Errorf("%s before request %d: log start %d", name, at, got)
				}
				if !happened {
					break
				}
			}
		}
	}
}

// What is really missing is told, moves nothing, and keeps no other topic from its due.
func TestDamage(t *testing.T) {
	w := newWorld(t)
	var all []*metadata.Topic
	for _, name := range []string{"a", "b", "c"} {
		topic := w.create(name, 1, 1)
		all = append(all, topic)
		for i := range 40 {
			w.commit(topic.Lanes[0], born.Add(time.Duration(i)*time.Minute), extent{0, 1, 50})
		}
		w.archive(topic, topic.Lanes[0], 16, 4, topic.Class())
	}
	w.now = born.Add(8 * day)
	check(t, w.Table.DeleteChunks(w.ctx, all[0].Lanes[0], 16, 24))
	lost, err := w.Table.Row(w.ctx, all[1].ID, 0, 8, metadata.Strong)
	check(t, err)
	check(t, w.Table.DeleteRows(w.ctx, []*metadata.Row{lost}))
	_, err = w.run(retain.Options{})
	if !errors.Is(err, metadata.ErrCorrupt) || !strings.Contains(err.Error(), `topic "a"`) || !strings.Contains(err.Error(), `topic "b"`) || strings.Contains(err.Error(), `topic "c"`) {
		t.Errorf("%v", err)
	}
	for i, want := range []int64{0, 0, 40} {
		if got := w.starts(all[i]); got[0] != want {
			t.Errorf("%s: log start %d, want %d", all[i].Name, got[0], want)
		}
	}
}

func TestTopicsOfARun(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b"} {
		w.commit(w.create(name, 1, 1).Lanes[0], born, extent{0, 1, 50})
	}
	w.now = born.Add(8 * day)
	report := w.mustRun(retain.Options{Topics: []string{"b"}})
	if len(report.Topics) != 1 || report.Rules != nil || w.starts(w.row("a"))[0] != 0 || w.starts(w.row("b"))[0] != 1 {
		t.Errorf("%+v", report)
	}
	if _, err := w.run(retain.Options{Topics: []string{"none"}}); !errors.Is(err, metadata.ErrUnknownTopic) {
		t.Error(err)
	}
}
