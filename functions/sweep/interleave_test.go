package sweep

import (
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"slices"
	"testing"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/topics"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store/fault"
)

// stride is which of a sweep's requests have their turn: with 1 every one, some 2,500 worlds.
var stride = flag.Int("stride", usualStride, "take every nth request of a sweep")

// busy is a log with something of everything that a sweep deletes, and of everything that it must not.
type busy struct {
	*world
	a, b   *metadata.Topic
	paused segment.ID // uploaded, and to be committed to both lanes
	footer segment.Footer
	dead   segment.ID            // uploaded, and nothing more
	lost   *metadata.Publication // written, and to be published
}

func newBusy(w *world) *busy {
	y := &busy{world: w, a: w.topic("a", 2, 2), b: w.topic("b", 1, 1)}
	gone := w.topic("gone", 1, 1)
	both := []part{{y.a, 0, 1}, {y.a, 1, 1}, {y.b, 0, 1}}
	slices.SortStableFunc(both, func(p, q part) int {
		if p.topic.Lanes[0] < q.topic.Lanes[0] {
			return -1
		} else if p.topic.Lanes[0] > q.topic.Lanes[0] {
			return 1
		}
		return p.partition - q.partition
	})
	w.fill(18, both...)
	w.produceIn(segment.InTable, both...)
	w.fill(9, part{gone, 0, 1})
	w.compact(y.a, y.a.Lanes[0])
	w.compact(gone, gone.Lanes[0])
	w.fill(14, both...)
	w.compact(y.b, y.b.Lanes[0])
	w.compact(y.a, y.a.Lanes[0])
	w.merge(y.a, w.rows(y.a, 0)...)
	w.start(y.a, 1, 18)
	time.Sleep(12 * time.Hour)
	_, _, err := w.sweep(w.options()) // so that the search for orphans is past all of this
	check(w.t, err)
	w.delete("gone")
	time.Sleep(RestoreWindow - 11*time.Hour)
	w.fill(10, both...)
	y.dead = w.id(time.Now(), segment.InBucket)
	w.upload(y.dead, both...)
	w.upload(w.id(time.Now(), segment.InTable), both...)
	y.paused = w.id(time.Now(), segment.InBucket)
	y.footer = w.upload(y.paused, both...)
	y.lost = w.compaction(y.a, y.a.Lanes[0])
	time.Sleep(2 * time.Hour)
	return y
}

// settle lets days pass, and checks that what is left is what the log needs.
func (y *busy) settle() {
	y.t.Helper()
	y.request, y.call = nil, nil
	y.sound()
	for range 3 {
		time.Sleep(RestoreWindow)
		_, _, err := y.sweep(y.options())
		check(y.t, err)
		y.sound()
	}
	for _, k := range y.keys() {
		if k[:2] == "X#" || k[:2] == "D#" || k[:4] == "GONE" {
			y.t.Errorf("%s is left", k)
		}
	}
	needed := y.needed()
	for _, name := range y.everything() {
		if !needed[name] && name != segment.IdentityName {
			y.t.Errorf("%s is left", name)
		}
	}
}

// needed are the objects that the log names, by rows, by chunks from the first that is kept, and by heads.
func (y *busy) needed() map[string]bool {
	y.t.Helper()
	all := map[string]bool{}
	list, _, err := y.table.Topics(y.t.Context(), "", 1000)
	check(y.t, err)
	for _, t := range list {
		for _, lane := range t.Lanes {
			head := y.head(lane)
			if below := y.chunks(lane, 0, y.state(lane).First); len(below) > 0 {
				y.t.Errorf("%d chunks are left below the first order of %s", len(below), t.Name)
			}
			entries := head.Entries
			for _, c := range y.chunks(lane, 0, head.First) {
				entries = append(entries, c.Entries...)
			}
			for _, e := range entries {
				all[segment.IntakeName(e.ID)] = true
			}
		}
		for p := range t.Partitions {
			for _, r := range y.rows(t, p) {
				all[segment.ArchiveName(t.ID, r.Segment)] = true
			}
		}
	}
	return all
}

// meanwhile are things that others do while a sweep runs.
var meanwhile = map[string]func(*busy){
	"a commit": func(y *busy) { y.produce(part{y.a, 0, 1}) },
	"a commit that was paused": func(y *busy) {
		for _, lane := range []metadata.LaneID{y.a.Lanes[0], y.b.Lanes[0]} {
			y.commit(lane, y.paused, y.footer) // refused, or it counts: then sound will want its object
		}
	},
	"spills": func(y *busy) {
		for _, t := range []*metadata.Topic{y.a, y.b} {
			for range 8 {
				y.produce(part{t, 0, 1})
			}
		}
	},
	"a publication that was paused": func(y *busy) { y.table.Publish(y.t.Context(), y.lost) },
	"a publication":                 func(y *busy) { y.compact(y.b, y.b.Lanes[0]) },
	"a new topic": func(y *busy) {
		t := y.topic("new", 2, 1)
		y.produce(part{t, 0, 1})
		y.commit(t.Lanes[0], y.paused, y.footer)
		if f := y.head(t.Lanes[0]).Floor; y.floor().IsZero() != f.IsZero() {
			y.t.Errorf("a new head has the floor %s, the log %s", f, y.floor())
		}
	},
	"a topic is deleted": func(y *busy) { y.delete("b") },
	"a topic grows": func(y *busy) {
		_, err := topics.New(y.table, y.env).Alter(y.t.Context(), "b", topics.Change{Partitions: 3})
		check(y.t, err)
	},
	"a log start": func(y *busy) { y.start(y.b, 0, 20) },
	"another sweep": func(y *busy) {
		_, _, err := y.sweep(y.options())
		check(y.t, err)
	},
	"another sweep, hours later": func(y *busy) {
		time.Sleep(30 * time.Hour)
		_, _, err := y.sweep(y.options())
		check(y.t, err)
	},
}

func (w *world) floor() segment.ID {
	w.t.Helper()
	f, err := w.table.Floor(w.t.Context())
	check(w.t, err)
	return f
}

// first is the first request that has its turn: another one for each test.
func first(name string) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	return 1 + int(h.Sum32())%*stride
}

// requests is what steps has counted.
var requests int

// steps is how many requests a sweep of the busy log makes to table and bucket.
func steps(t *testing.T) int {
	if requests > 0 {
		return requests
	}
	n := 0
	inBubble(t, func(t *testing.T, w *world) {
		y := newBusy(w)
		y.request = func(dynamodb.Call) dynamodb.Fault { n++; return dynamodb.Fault{} }
		y.call = func(fault.Call) fault.Fault { n++; return fault.Fault{} }
		_, told, err := y.sweep(y.options())
		check(t, err)
		t.Logf("%d requests, %d deletions", n, len(told))
		y.settle()
	})
	requests = n
	return n
}

// Whatever happens before whichever request of a sweep, nothing that is named goes, and in the end nothing else is left. That is a topic created in the middle of it,
// an entry spilled between two of its reads, another sweep, and more.
func TestInterleavings(t *testing.T) {
	all := steps(t)
	for name, do := range meanwhile {
		t.Run(name, func(t *testing.T) {
			for n := first(name); n <= all; n += *stride {
				inBubble(t, func(t *testing.T, w *world) {
					y, at := newBusy(w), n
					step := func() {
						if at--; at == 0 {
							do(y)
						}
					}
					y.request = func(dynamodb.Call) dynamodb.Fault { step(); return dynamodb.Fault{} }
					y.call = func(fault.Call) fault.Fault { step(); return fault.Fault{} }
					if _, _, err := y.sweep(y.options()); err != nil && !errors.Is(err, ErrDeadline) {
						t.Errorf("before request %d: %v", n, err)
					}
					y.settle()
					if t.Failed() {
						t.Fatalf("%s before request %d", name, n)
					}
				})
			}
		})
	}
}

// A sweep dies at whichever request, which was applied or not. The next goes on, and all ends as if nothing had been.
func TestCrashes(t *testing.T) {
	all := steps(t)
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprint("applied ", applied), func(t *testing.T) {
			for n := first(t.Name()); n <= all; n += *stride {
				inBubble(t, func(t *testing.T, w *world) {
					y, at := newBusy(w), n
					y.request = func(dynamodb.Call) dynamodb.Fault {
						switch at--; {
						case at > 0:
							return dynamodb.Fault{}
						case at == 0 && applied:
							return dynamodb.AnswerLost()
						}
						return dynamodb.Dropped()
					}
					y.call = func(fault.Call) fault.Fault {
						switch at--; {
						case at > 0:
							return fault.Fault{}
						case at == 0 && applied:
							return fault.Fault{Kind: fault.LostAfter}
						}
						return fault.Fault{Kind: fault.LostBefore}
					}
					r, _, err := y.sweep(y.options())
					if err == nil || r.Finished {
						t.Errorf("it did not notice that all went wrong from request %d on", n)
					}
					y.settle()
					if t.Failed() {
						t.Fatalf("dead at request %d", n)
					}
				})
			}
		})
	}
}

// One request is lost, or its answer: a sweep asks again, or ends with an error, and the next one finds all as it should be.
func TestFaults(t *testing.T) {
	all := steps(t)
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprint("applied ", applied), func(t *testing.T) {
			for n := first(t.Name()); n <= all; n += *stride {
				inBubble(t, func(t *testing.T, w *world) {
					y, at := newBusy(w), n
					hit := func() bool { at--; return at == 0 }
					y.request = func(dynamodb.Call) dynamodb.Fault {
						switch {
						case !hit():
							return dynamodb.Fault{}
						case applied:
							return dynamodb.AnswerLost()
						}
						return dynamodb.Dropped()
					}
					y.call = func(fault.Call) fault.Fault {
						switch {
						case !hit():
							return fault.Fault{}
						case applied:
							return fault.Fault{Kind: fault.LostAfter}
						}
						return fault.Fault{Kind: fault.LostBefore}
					}
					y.sweep(y.options())
					y.settle()
					if t.Failed() {
						t.Fatalf("request %d", n)
					}
				})
			}
		})
	}
}

// A first sweep, which looks at everything that lanes name, misses nothing that goes from a head to a chunk between two of its reads.
func TestSpilledDuringAFirstSweep(t *testing.T) {
	for n, reached := 1, true; reached; n += 1 + *stride/100 {
		reached = false
		inBubble(t, func(t *testing.T, w *world) {
			y := &busy{world: w, a: w.topic("a", 1, 1), b: w.topic("b", 1, 1)}
			w.fill(10, part{y.a, 0, 1}, part{y.b, 0, 1})
			time.Sleep(2 * time.Hour)
			at := n
			y.request = func(dynamodb.Call) dynamodb.Fault {
				if at--; at == 0 {
					reached = true
					meanwhile["spills"](y)
				}
				return dynamodb.Fault{}
			}
			_, _, err := y.sweep(y.options())
			check(t, err)
			y.settle()
			if t.Failed() {
				t.Fatalf("spilled before request %d", n)
			}
		})
	}
}
