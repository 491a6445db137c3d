package sweep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
)

// What names segments and cannot be read may name any: nothing is deleted then. What is only read to look for orphans may come after that for which a publication
// or a log start speaks; then no orphan is deleted.
func TestRefusesWithoutAllReferences(t *testing.T) {
	for name, spoil := range map[string]func(*busy){
		"a topic's row":    func(y *busy) { y.spoil(metadata.TopicKey("b"), "lanes") },
		"a deleted topic":  func(y *busy) { y.spoil(metadata.GoneKey(y.gone()), "lanes") },
		"a head":           func(y *busy) { y.spoil(metadata.HeadKey(y.b.Lanes[0]), "g") },
		"a head, lost":     func(y *busy) { y.lose(metadata.HeadKey(y.b.Lanes[0])) },
		"a state":          func(y *busy) { y.spoil(metadata.StateKey(y.b.Lanes[0]), "archived") },
		"a state, lost":    func(y *busy) { y.lose(metadata.StateKey(y.b.Lanes[0])) },
		"a chunk":          func(y *busy) { y.spoil(metadata.ChunkKey(y.b.Lanes[0], 32), "c") },
		"a chunk, lost":    func(y *busy) { y.lose(metadata.ChunkKey(y.b.Lanes[0], 32)) },
		"the work list":    func(y *busy) { y.spoil(metadata.ReplacedKey(y.anEntry()), "lane") },
		"the log's floor":  func(y *busy) { y.spoil(metadata.FloorKey(), "floor") },
		"the sweep's mark": func(y *busy) { y.spoil(metadata.SweepKey(), "mark") },
		"an archive's row": func(y *busy) { y.spoil(y.lastRow(), "end") },
		"the table's id":   func(y *busy) { y.lose(metadata.IdentityKey()) },
		"another log's id": func(y *busy) { y.lose(metadata.IdentityKey()); y.otherIdentity() },
		"the bucket's id":  func(y *busy) { check(y.t, y.bucket.Delete(y.t.Context(), segment.IdentityName)) },
		"a service that is not there": func(y *busy) {
			y.request = func(c dynamodb.Call) dynamodb.Fault {
				if c.Op == "Query" && strings.HasPrefix(c.Keys[0].Partition, "C#") {
					return dynamodb.Dropped()
				}
				return dynamodb.Fault{}
			}
		},
	} {
		if raced && !strings.Contains(name, "lost") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				y := newBusy(w)
				spoil(y)
				before := len(y.everything())
				r, told, err := y.sweep(y.options())
				switch {
				case err == nil || r.Finished:
					t.Fatalf("it went on: %q", names(told))
				case strings.Contains(name, "id"):
					if !errors.Is(err, metadata.ErrWrongLog) {
						t.Errorf("%v", err)
					}
				case strings.Contains(name, "service"):
					if !errors.Is(err, metadata.ErrUnavailable) {
						t.Errorf("%v", err)
					}
				case !errors.Is(err, ErrReferences):
					t.Errorf("%v", err)
				}
				late := slices.Contains([]string{"the sweep's mark", "an archive's row", "a chunk", "a chunk, lost"}, name)
				if after := len(y.everything()); after != before && !late || len(told) > 0 && !late || !y.has(y.dead) {
					t.Errorf("deleted %q, %d of %d objects are left", names(told), after, before)
				}
			})
		})
	}
}

// A floor that was not raised, whatever the attempt ended with, is noticed when the item is read.
func TestFloorsAreReadBack(t *testing.T) {
	for _, kind := range []string{"L#", "A#", "LOG"} {
		inBubble(t, func(t *testing.T, w *world) {
			y := newBusy(w)
			y.request = func(c dynamodb.Call) dynamodb.Fault {
				if c.Op == "UpdateItem" && strings.HasPrefix(c.Keys[0].Partition, kind) {
					return dynamodb.Dropped()
				}
				return dynamodb.Fault{}
			}
			if _, told, err := y.sweep(y.options()); !errors.Is(err, metadata.ErrUnavailable) || len(told) > 0 {
				t.Errorf("%s: %v, deleted %d", kind, err, len(told))
			}
			y.settle()
		})
	}
}

func (y *busy) gone() segment.TopicID {
	y.t.Helper()
	list, err := y.table.Gone(y.t.Context())
	check(y.t, err)
	return list[0].ID
}

func (y *busy) anEntry() segment.ID {
	y.t.Helper()
	for _, hash := range hashes {
		list, _, err := y.table.Replaced(y.t.Context(), hash, segment.ID{}, endOfTime, 1)
		check(y.t, err)
		if len(list) > 0 {
			return list[0].ID
		}
	}
	y.t.Fatal("the work list is empty")
	return segment.ID{}
}

func (y *busy) lastRow() metadata.Key {
	rows := y.rows(y.a, 1)
	return rows[0].Key()
}

func (y *busy) otherIdentity() {
	y.t.Helper()
	_, err := y.table.PutIdentity(y.t.Context(), metadata.Identity{Log: segment.LogID{8}, Version: 1, Bucket: "b", Prefix: "p"})
	check(y.t, err)
}

// Nearly everything would go: the table was put back to a time before, or is another's. Nothing goes unless it is forced. A deleted topic's segments are no sign
// of that.
func TestTooMuch(t *testing.T) {
	for _, c := range []struct {
		named, orphans int
		refused        bool
	}{{0, 9, false}, {0, 20, true}, {2, 19, false}, {2, 30, true}, {4, 30, false}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				topic, gone := w.topic("orders", 1, 1), w.topic("gone", 1, 1)
				w.fill(c.named, part{topic, 0, 1})
				var dead []segment.ID
				for range c.orphans {
					dead = append(dead, w.id(time.Now(), segment.InBucket))
					w.upload(dead[len(dead)-1], part{topic, 0, 1})
				}
				for range 50 {
					w.upload(w.id(time.Now(), segment.InBucket), part{gone, 0, 1})
				}
				w.delete("gone")
				time.Sleep(2 * time.Hour)
				for _, dry := range []bool{true, false} {
					o := w.options()
					o.DryRun = dry
					_, _, err := w.sweep(o)
					var much *TooMuchError
					if errors.As(err, &much) != c.refused || c.refused && (much.Orphans != int64(c.orphans) || much.Named != int64(c.named)) {
						t.Fatalf("dry %v: %v", dry, err)
					}
				}
				for _, id := range dead {
					if w.has(id) != c.refused {
						t.Errorf("%s is there: %v", id, w.has(id))
					}
				}
				o := w.options()
				o.Force = true
				_, _, err := w.sweep(o)
				check(t, err)
				if n := len(w.everything()); n != 1+c.named {
					t.Errorf("%d objects are left after a sweep with force", n)
				}
				w.sound()
			})
		})
	}
}

// Objects that do not say what they are, or whose they are, are kept and reported, and do not stop the others.
func TestKeeps(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		topic := w.topic("orders", 1, 1)
		ids := w.fill(20, part{topic, 0, 1})
		broken, foreign, dead := w.id(time.Now(), segment.InBucket), w.id(time.Now(), segment.InBucket), w.id(time.Now(), segment.InBucket)
		check(t, w.bucket.Put(t.Context(), segment.IntakeName(broken), []byte("no segment at all, though it has more bytes than the least that a segment has, which are sixty or so")))
		w.log = segment.LogID{9}
		w.upload(foreign, part{topic, 0, 1})
		w.log = segment.LogID{7}
		w.upload(dead, part{topic, 0, 1})
		check(t, w.bucket.Put(t.Context(), "r7d/intake/00/readme", []byte("x")))
		w.compact(topic, topic.Lanes[0])
		time.Sleep(2 * time.Hour)
		o := w.options()
		r, told, err := w.sweep(o)
		check(t, err)
		want(t, names(told), intakeLines(dead))
		if r.Kept != 3 || len(r.KeptNames) != 3 {
			t.Errorf("%+v", r)
		}
		for _, id := range []segment.ID{broken, foreign, ids[0]} {
			if !w.has(id) {
				t.Errorf("%s was deleted", id)
			}
		}
	})
}

// The run ends at its deadline and leaves what it did; runs that are always too short get to the end together.
func TestDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		y := newBusy(w)
		delay := func() { time.Sleep(time.Second) }
		y.request = func(dynamodb.Call) dynamodb.Fault { delay(); return dynamodb.Fault{} }
		y.call = func(fault.Call) fault.Fault { delay(); return fault.Fault{} }
		o := y.options()
		o.Deadline = 100 * time.Second
		runs, total := 0, 0
		for ; ; runs++ {
			r, told, err := y.sweep(o)
			total += len(told)
			if err == nil {
				break
			}
			if !errors.Is(err, ErrDeadline) || r.Finished || r.Seconds > 110 {
				t.Fatalf("%v after %.0f s", err, r.Seconds)
			}
			if runs > 20 {
				t.Fatal("it never gets to an end")
			}
		}
		t.Logf("%d runs that were cut off, and one that was not, deleted %d", runs, total)
		if runs == 0 {
			t.Error("the deadline was never met")
		}
		y.settle()
	})
}

// The search for orphans goes on where the last run stopped.
func TestSearchGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		topic := w.topic("orders", 1, 1)
		w.fill(3, part{topic, 0, 1})
		time.Sleep(2 * time.Hour)
		lists := 0
		w.call = func(c fault.Call) fault.Fault {
			if c.Op == store.OpList {
				lists++
				if strings.Contains(c.Name, "intake") && lists > 2 {
					return fault.Fault{Kind: fault.LostBefore}
				}
			}
			return fault.Fault{}
		}
		if _, _, err := w.sweep(w.options()); err == nil {
			t.Fatal("no error")
		}
		mark, err := w.table.SweepMark(t.Context())
		check(t, err)
		if !mark.To.IsZero() || mark.Next.IsZero() || !strings.HasPrefix(mark.Past, "D#") {
			t.Fatalf("%+v", mark)
		}
		w.call = nil
		first := mark.Next
		time.Sleep(time.Hour)
		dead := w.id(time.Now().Add(-90*time.Minute), segment.InTable) // uploaded late, behind what was searched: the next search takes it in
		w.table.PutSmall(t.Context(), dead, func() []byte { b, _ := w.intake(dead, part{topic, 0, 1}); return b }())
		want(t, w.swept(), intakeLines(dead))
		if mark, err = w.table.SweepMark(t.Context()); err != nil || !first.Less(mark.To) || !mark.Next.IsZero() {
			t.Errorf("%+v, %v", mark, err)
		}
	})
}

// pager is a bucket that shows what a page of hidden things does: nothing, and that there is more.
type pager struct {
	Store
	lists int
}

func (p *pager) List(ctx context.Context, prefix, after string, max int) (store.Page, error) {
	p.lists++
	if p.lists%2 == 1 {
		return store.Page{Last: after, More: true}, nil
	}
	return p.Store.List(ctx, prefix, after, max)
}

// All pages count, whatever is on them.
func TestBR35_Pages(t *testing.T) {
	for _, n := range []int{1000, 1001, 2501} {
		for _, full := range []bool{false, true} {
			if n == 2501 && raced && !full {
				continue
			}
			t.Run(fmt.Sprint(n, full), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					topic := w.topic("orders", 1, 1)
					w.fill(1, part{topic, 0, 1})
					body, _ := w.intake(w.id(time.Now(), segment.InBucket), part{topic, 0, 1})
					for range n {
						check(t, w.bucket.Put(t.Context(), segment.IntakeName(w.id(time.Now(), segment.InBucket)), body))
					}
					for range 1200 {
						w.random++
						id := segment.NewID(time.Now(), 7, segment.InBucket, w.random<<8|0x3f, segment.ID{}) // all of one hash
						check(t, w.bucket.Put(t.Context(), segment.IntakeName(id), body))
					}
					time.Sleep(2 * time.Hour)
					o := w.options()
					o.Full, o.Force = full, true
					r, err := Run(t.Context(), w.table, &pager{Store: w.store}, o)
					check(t, err)
					if left := w.everything(); len(left) != 2 || r.Deleted[Object].Count != int64(n+1200) {
						t.Errorf("%d deleted, %d objects are left", r.Deleted[Object].Count, len(left))
					}
					w.sound()
				})
			})
		}
	}
}

// After a table was put back, segments were made one after another of which it has no commit, between times of which it has: however many these are. They stay until they
// are older than a table can be put back. Where commits lie between them they are what producers left that died.
func TestTooManyInARow(t *testing.T) {
	for _, c := range []struct {
		before, forgotten, after int
		between                  bool // each two there are commits
		refused                  bool
	}{{30, 9, 30, false, false}, {30, 10, 30, false, true}, {30, 60, 3, false, true}, {0, 10, 100, false, true}, {30, 60, 30, true, false}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				topic := w.topic("orders", 1, 1)
				commit := func(n int) {
					for range n {
						w.fill(1, part{topic, 0, 1})
						time.Sleep(20 * time.Second)
					}
				}
				w.swept()
				commit(c.before)
				var dead []segment.ID
				for range c.forgotten {
					dead = append(dead, w.id(time.Now(), segment.InBucket))
					w.upload(dead[len(dead)-1], part{topic, 0, 1})
					time.Sleep(20 * time.Second)
					if c.between {
						commit(1)
					}
				}
				commit(c.after)
				time.Sleep(2 * time.Hour)
				for _, dry := range []bool{true, false} {
					o := w.options()
					o.DryRun = dry
					_, _, err := w.sweep(o)
					var much *TooMuchError
					if errors.As(err, &much) != c.refused || c.refused && much.InARow != int64(c.forgotten) {
						t.Fatalf("dry %v: %v", dry, err)
					}
				}
				for _, id := range dead {
					if w.has(id) != c.refused {
						t.Errorf("%s is there: %v", id, w.has(id))
					}
				}
				time.Sleep(RestoreWindow)
				w.swept()
				for _, id := range dead {
					if w.has(id) {
						t.Errorf("%s is still there", id)
					}
				}
				w.sound()
			})
		})
	}
}

// An era that the table has not finished, or knows nothing of, refuses every sweep, with force too.
func TestRefusesBetweenRestoreAndRepair(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		y := newBusy(w)
		before := len(y.everything())
		refused := func(when string) {
			t.Helper()
			o := y.options()
			o.Force = true
			_, told, err := y.sweep(o)
			var e *UnrepairedError
			if !errors.As(err, &e) || len(told) > 0 || len(y.everything()) != before+1 {
				t.Errorf("%s: %v, deleted %q", when, err, names(told))
			}
		}
		era, err := metadata.EncodeEra(metadata.Era{Number: 1, Begun: time.Now(), Jump: metadata.EraStep})
		check(t, err)
		check(t, y.bucket.Put(t.Context(), segment.EraName(1), era))
		refused("the table knows nothing of it")
		check(t, y.table.SetEraMark(t.Context(), metadata.EraMark{Begun: 1}))
		refused("it is under way")
		check(t, y.table.SetEraMark(t.Context(), metadata.EraMark{Begun: 1, Done: 1}))
		if _, told, err := y.sweep(y.options()); err != nil || len(told) == 0 {
			t.Errorf("when it is finished: %v, deleted %q", err, names(told))
		}
	})
}
