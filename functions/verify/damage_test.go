package verify_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/functions/verify"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// sound is a log of two topics: t has two whole chunks and five entries in its head, in partitions 0, 1 and 3 of 4; u has three commits.
func sound(t testing.TB) (w *world, lane metadata.LaneID) {
	w = newWorld(t)
	lane = w.topic("t", 4, 1).Lanes[0]
	w.topic("u", 2, 1)
	w.produce(18, at("t", 0, 1, 3)...)
	w.produce(3, slices.Concat(at("t", 0, 1, 3), at("u", 0, 1))...)
	if h := w.head(lane); h.First != 16 || h.Next != 21 {
		t.Fatalf("head has [%d, %d)", h.First, h.Next)
	}
	return w, lane
}

func TestSoundLog(t *testing.T) {
	w, _ := sound(t)
	for _, indexOnly := range []bool{false, true} {
		o := w.options()
		o.IndexOnly = indexOnly
		r := w.verify(o)
		want := verify.Totals{Topics: 2, Partitions: 6, Commits: 24, Records: 18*3 + 3*5, Objects: 24, Bytes: r.Totals.Bytes, Listed: 22}
		if !r.OK() || len(r.Findings) != 0 || r.Totals != want || r.Totals.Bytes == 0 {
			t.Errorf("%s\n%+v", describe(r), r.Totals)
		}
	}
	o := w.options()
	o.Topics = []string{"u"}
	if r := w.verify(o); !r.OK() || r.Totals.Topics != 1 || r.Totals.Commits != 3 || r.Totals.Listed != 0 {
		t.Errorf("%s\n%+v", describe(r), r.Totals)
	}
	o.Topics = []string{"t", "v"}
	if _, err := verify.Run(t.Context(), w.table, w.store, o); !errors.Is(err, metadata.ErrUnknownTopic) {
		t.Errorf("an unknown topic: %v", err)
	}
}

// What a check of a sound log asks for: of the table the identity, the topics, of each lane state, head, the chunks that are not trimmed and a page of
// those below, and of each partition a page of rows; of the store the identity, each object's length and then all of it at once, and a page of names.
func TestRequests(t *testing.T) {
	w, _ := sound(t)
	var mu sync.Mutex
	calls := map[string]int{}
	count := func(call string) {
		mu.Lock()
		defer mu.Unlock()
		calls[call]++
	}
	w.table.before, w.store.before = count, count
	w.verify(w.options())
	want := map[string]int{"Identity": 1, "Topics": 1, "Floor": 1, "State": 2, "Head": 2, "Chunks": 3, "Rows": 6, "Stat": 25, "Get": 25, "List": 1}
	if !maps.Equal(calls, want) {
		t.Errorf("%v, want %v", calls, want)
	}
}

func TestEmptyLog(t *testing.T) {
	w := newWorld(t)
	if r := w.verify(w.options()); !r.OK() || len(r.Findings) != 0 {
		t.Error(describe(r))
	}
	w.topic("t", 4, 2)
	if r := w.verify(w.options()); !r.OK() || len(r.Findings) != 0 || r.Totals.Partitions != 4 {
		t.Error(describe(r))
	}
}

// Any byte of an object that is not as it was written is found, but for four bytes of each batch that no checksum covers, and no reader looks at.
func TestFlippedByte(t *testing.T) {
	w, lane := sound(t)
	name := w.object(lane, 18) // of both topics, so of two lanes
	body := w.body(name)
	footer, err := segment.ParseSegment(body)
	check(t, err)
	free := map[int]bool{}
	for _, e := range footer.Extents {
		for i := range 4 {
			free[int(e.Offset)+12+i] = true // the leader epoch
		}
	}
	for i := 0; i < len(body); i += stride {
		bent := slices.Clone(body)
		bent[i] ^= 1 << (i % 8)
		w.store.show(name, bent)
		o := w.options()
		o.Topics = []string{"t", "u"} // all, but nothing is listed
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

// An object that is read piece by piece.
func TestFlippedByteOfALargeObject(t *testing.T) { synctest.Test(t, flippedByteOfALargeObject) }

func flippedByteOfALargeObject(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 2, 2)
	const size, each = 200, 32 << 10
	name := w.large(size, each, at("t", 0, 1)...)
	if r := w.verify(w.options()); !r.OK() || r.Totals.Records != 2*size || r.Totals.Bytes < 2*size*each {
		t.Fatalf("%s\n%+v", describe(r), r.Totals)
	}
	body := w.body(name)
	for _, i := range []int{0, 100, len(body) / 4, len(body) / 2, len(body) * 3 / 4, len(body) - 100, len(body) - 1} {
		bent := slices.Clone(body)
		bent[i] ^= 4
		w.store.show(name, bent)
		if r := w.verify(w.options()); r.OK() {
			t.Errorf("byte %d of %d: %s", i, len(body), describe(r))
		}
	}
}

func TestMissingObject(t *testing.T) {
	for _, order := range []int64{3, 17} { // in a chunk, in the head
		w, lane := sound(t)
		name := w.object(lane, order)
		w.store.show(name, nil)
		f := only(t, w.verify(w.options()), verify.ObjectMissing)
		want := fmt.Sprintf("topic t partition 0 offsets [%d, %d); topic t partition 1 offsets [%d, %d); topic t partition 3 offsets [%d, %d); object %s", order, order+1, order, order+1, order, order+1, name)
		if f.Object != name || f.Severity != verify.Damage || !strings.HasPrefix(f.Where(), want) {
			t.Errorf("%s\nwant %s", f.Where(), want)
		}
		o := w.options()
		o.IndexOnly = true
		only(t, w.verify(o), verify.ObjectMissing)
	}
}

func TestMissingChunk(t *testing.T) {
	w, lane := sound(t)
	w.table.lost = map[int64]bool{8: true}
	r := w.verify(w.options())
	f := r.Findings[0]
	want := []verify.Range{{Topic: "t", Partition: 0, From: 8, To: 16}, {Topic: "t", Partition: 1, From: 8, To: 16}, {Topic: "t", Partition: 3, From: 8, To: 16}}
	if f.Kind != verify.ChunkMissing || !slices.Equal(f.Ranges, want) || f.Item != metadata.ChunkKey(lane, 8).String() {
		t.Error(describe(r))
	}
	if got := kinds(r); len(got) != 2 || got[verify.OrphansUnknown] != 1 { // what the chunk names would be taken for orphans
		t.Error(describe(r))
	}
	w.table.lost[0] = true
	if r := w.verify(w.options()); r.Damage != 1 || r.Findings[0].Ranges[0].From != 0 || r.Findings[0].Ranges[0].To != 16 {
		t.Error(describe(r))
	}
}

// The head says that more was spilled than there are chunks for.
func TestHeadBeyondItsChunks(t *testing.T) {
	w, lane := sound(t)
	w.table.head = func(h *metadata.Head) {
		if h.Lane == lane {
			h.First, h.Next, h.Entries = h.First+1<<40, h.Next+1<<40, slices.Clone(h.Entries)
			for i := range h.Entries {
				h.Entries[i].Order += 1 << 40
			}
		}
	}
	f := w.verify(w.options()).Findings[0]
	if f.Kind != verify.ChunkMissing || f.Item != metadata.ChunkKey(lane, 16).String() || !strings.Contains(f.What, fmt.Sprintf("[16, %d)", 16+1<<40)) {
		t.Errorf("%+v", f)
	}
}

// bent is one fault of the index or of an object, and what verify must call it, with nothing else.
type bent struct {
	name string
	bend func(w *world, lane metadata.LaneID)
	want []verify.Kind
}

func chunkAt(first int64, lane metadata.LaneID, bend func(*metadata.Chunk)) func(*metadata.Chunk) {
	return func(c *metadata.Chunk) {
		if c.Lane == lane && c.First == first {
			bend(c)
		}
	}
}

func headOf(lane metadata.LaneID, bend func(*metadata.Head)) func(*metadata.Head) {
	return func(h *metadata.Head) {
		if h.Lane == lane {
			bend(h)
		}
	}
}

// slot changes what the chunk at 8 says of slot 1 in order 10.
func slot(bend func(*metadata.Entry, *metadata.SlotEntry)) func(*world, metadata.LaneID) {
	return func(w *world, lane metadata.LaneID) {
		w.table.chunk = chunkAt(8, lane, func(c *metadata.Chunk) { bend(&c.Entries[2], &c.Entries[2].Slots[1]) })
	}
}

// object puts what bend makes of it in place of the object of order 10.
func object(bend func(w *world, body []byte) []byte) func(*world, metadata.LaneID) {
	return func(w *world, lane metadata.LaneID) {
		name := w.object(lane, 10)
		w.store.show(name, bend(w, w.body(name)))
	}
}

// rebuilt is a segment whose extents are of something else.
func rebuilt(edit func(*segment.ExtentMeta)) func(*world, metadata.LaneID) {
	return object(func(w *world, body []byte) []byte {
		f, err := segment.ParseSegment(body)
		check(w.t, err)
		b := segment.NewBuilder(segment.Intake, f.Log)
		for _, e := range f.Extents {
			meta := e.ExtentMeta
			edit(&meta)
			check(w.t, b.Add(meta, e.MinTime, body[e.Offset:e.Offset+e.Length]))
		}
		out, _, err := b.Finish()
		check(w.t, err)
		return out
	})
}

var faults = []bent{
	{"base shifted in one chunk", func(w *world, lane metadata.LaneID) {
		w.table.chunk = chunkAt(8, lane, func(c *metadata.Chunk) { c.Bases[1]++ })
	}, []verify.Kind{verify.BaseShifted}},
	{"base shifted in the first chunk", func(w *world, lane metadata.LaneID) {
		w.table.chunk = chunkAt(0, lane, func(c *metadata.Chunk) { c.Bases[1] = 7 })
	}, []verify.Kind{verify.BaseShifted}},
	{"bases shifted from one chunk on", func(w *world, lane metadata.LaneID) {
		w.table.chunk = chunkAt(8, lane, func(c *metadata.Chunk) { c.Bases[1] += 5 })
		w.table.head = headOf(lane, func(h *metadata.Head) { h.Ends[1] += 5 })
	}, []verify.Kind{verify.BaseShifted}},
	{"end above what the commits hold", func(w *world, lane metadata.LaneID) {
		w.table.head = headOf(lane, func(h *metadata.Head) { h.Ends[3]++ })
	}, []verify.Kind{verify.HeadEnds}},
	{"end below what the commits hold", func(w *world, lane metadata.LaneID) {
		w.table.head = headOf(lane, func(h *metadata.Head) { h.Ends[0]-- })
	}, []verify.Kind{verify.HeadEnds}},
	{"end of a slot that has no partition", func(w *world, lane metadata.LaneID) {
		w.table.head = headOf(lane, func(h *metadata.Head) { h.Ends[9] = 4 })
	}, []verify.Kind{verify.SlotUnknown, verify.HeadEnds}},
	{"head's entries are not its orders", func(w *world, lane metadata.LaneID) {
		w.table.head = headOf(lane, func(h *metadata.Head) { h.Entries = h.Entries[:3] })
	}, []verify.Kind{verify.HeadEntries, verify.OrphansUnknown}},
	{"head begins within a chunk", func(w *world, lane metadata.LaneID) {
		w.table.head = headOf(lane, func(h *metadata.Head) { h.First++; h.Entries = h.Entries[1:] })
	}, []verify.Kind{verify.HeadEntries, verify.OrphansUnknown}},
	{"config version above the topic's", func(w *world, lane metadata.LaneID) {
		w.table.head = headOf(lane, func(h *metadata.Head) { h.ConfigVersion = 2 })
	}, []verify.Kind{verify.ConfigAhead}},
	{"floor above the log's", func(w *world, lane metadata.LaneID) {
		w.table.head = headOf(lane, func(h *metadata.Head) { h.Floor = w.id(0) })
	}, []verify.Kind{verify.FloorWrong}},
	{"running maximum not continued", func(w *world, lane metadata.LaneID) { // as if the chunk before had had none
		w.table.chunk = chunkAt(8, lane, func(c *metadata.Chunk) { c.MaxTimes[3] = 0 })
	}, []verify.Kind{verify.MaximaBroken}},
	{"running maximum too high", func(w *world, lane metadata.LaneID) {
		w.table.chunk = chunkAt(0, lane, func(c *metadata.Chunk) { c.MaxTimes[3]++ })
	}, []verify.Kind{verify.MaximaBroken}},
	{"chunk with an entry too few", func(w *world, lane metadata.LaneID) {
		w.table.chunk = chunkAt(8, lane, func(c *metadata.Chunk) { c.Entries = c.Entries[:7] })
	}, []verify.Kind{verify.ChunkUnreadable, verify.OrphansUnknown}},
	{"chunk between others", func(w *world, lane metadata.LaneID) {
		w.table.more = []*metadata.Chunk{w.extra(lane, 5)}
	}, []verify.Kind{verify.ChunkOutOfPlace}},
	{"chunk beyond the head", func(w *world, lane metadata.LaneID) {
		w.table.more = []*metadata.Chunk{w.extra(lane, 24)}
	}, []verify.Kind{verify.ChunkOutOfPlace}},
	{"chunk between others, and nothing behind it", func(w *world, lane metadata.LaneID) {
		w.spoil(metadata.HeadKey(lane), "g", &types.AttributeValueMemberN{Value: "22"})
		w.table.more = []*metadata.Chunk{w.extra(lane, 21)}
	}, []verify.Kind{verify.HeadUnreadable, verify.ChunkOutOfPlace, verify.OrphansUnknown}},
	{"log start above the end", func(w *world, lane metadata.LaneID) {
		w.table.state = func(s *metadata.State) {
			if s.Lane == lane {
				s.Starts[1] = 22
			}
		}
	}, []verify.Kind{verify.StartAboveEnd}},
	{"index said to begin above the head", func(w *world, lane metadata.LaneID) {
		w.table.state = func(s *metadata.State) {
			if s.Lane == lane {
				s.First = 24
			}
		}
	}, []verify.Kind{verify.StateWrong}},
	{"index said to begin above the archived order", func(w *world, lane metadata.LaneID) {
		w.table.state = func(s *metadata.State) {
			if s.Lane == lane {
				s.First = 8
			}
		}
		w.table.lost = map[int64]bool{0: true}
	}, []verify.Kind{verify.StateWrong}},
	{"two topics in one slot", func(w *world, lane metadata.LaneID) {
		u := w.row("u").Lanes[0]
		w.table.topic = func(t *metadata.Topic) {
			if t.Name == "u" && t.Lanes[0] == u {
				t.Lanes = []metadata.LaneID{lane}
			}
		}
	}, []verify.Kind{verify.SlotShared, verify.SlotShared}},
	{"slot of no partition", func(w *world, lane metadata.LaneID) {
		w.table.topic = func(t *metadata.Topic) {
			if t.Name == "t" {
				t.Partitions = 3
			}
		}
	}, []verify.Kind{verify.SlotUnknown}},
	{"segment committed twice", func(w *world, lane metadata.LaneID) {
		h := w.head(lane)
		twice := w.entry(lane, 3)
		_, err := w.table.Commit(w.t.Context(), metadata.Commit{Lane: lane, Entries: []metadata.Entry{twice}, Epoch: h.Epochs[0], Cap: metadata.CapFor(h.First, 1)})
		check(w.t, err)
	}, []verify.Kind{verify.ExtentDoubled}},
	{"archive segment in a commit", func(w *world, lane metadata.LaneID) {
		w.table.chunk = chunkAt(8, lane, func(c *metadata.Chunk) {
			c.Entries[2].ID = c.Entries[2].ID.In(segment.Archived)
		})
	}, []verify.Kind{verify.EntryElsewhere}},
	{"more bytes than the object has", slot(func(e *metadata.Entry, s *metadata.SlotEntry) { e.Slots[2].Bytes = 1 << 20 }),
		[]verify.Kind{verify.ExtentOutside, verify.LengthDiffers}},
	{"bytes begin elsewhere", slot(func(e *metadata.Entry, s *metadata.SlotEntry) { e.Start++ }), []verify.Kind{verify.LengthDiffers}},
	{"more bytes than the slot has", slot(func(e *metadata.Entry, s *metadata.SlotEntry) { s.Bytes++ }), []verify.Kind{verify.LengthDiffers}},
	{"another slot", slot(func(e *metadata.Entry, s *metadata.SlotEntry) { s.Slot = 2 }),
		[]verify.Kind{verify.LengthDiffers, verify.MaximaBroken, verify.HeadEnds, verify.HeadEnds}},
	{"count above the records", func(w *world, lane metadata.LaneID) { // and all offsets follow it
		w.table.chunk = chunkAt(8, lane, func(c *metadata.Chunk) { c.Entries[2].Slots[1].Count++ })
		w.table.head = headOf(lane, func(h *metadata.Head) { h.Ends[1]++ })
	}, []verify.Kind{verify.CountDiffers}},
	{"count above the records, offsets do not follow", slot(func(e *metadata.Entry, s *metadata.SlotEntry) { s.Count++ }),
		[]verify.Kind{verify.CountDiffers, verify.HeadEnds}},
	{"latest time below a record's", slot(func(e *metadata.Entry, s *metadata.SlotEntry) { s.MaxTime-- }), []verify.Kind{verify.TimeDiffers}},
	{"object of another log", object(func(w *world, _ []byte) []byte {
		other, lane := sound(w.t.(*testing.T))
		return other.body(other.object(lane, 10))
	}), []verify.Kind{verify.ObjectForeign}},
	{"object of another topic", object(func(w *world, _ []byte) []byte {
		w.topic("other", 1, 1)
		w.produce(1, at("other", 0)...)
		return w.body(w.object(w.row("other").Lanes[0], 0))
	}), []verify.Kind{verify.ExtentOutside, verify.PlaceDiffers}},
	{"object of the lane, of other records", object(func(w *world, _ []byte) []byte { return w.body(w.object(w.row("t").Lanes[0], 2)) }),
		[]verify.Kind{verify.TimeDiffers, verify.TimeDiffers, verify.TimeDiffers}},
	{"footer names another topic", rebuilt(func(m *segment.ExtentMeta) { m.Topic = "000000000000" }), slices.Repeat([]verify.Kind{verify.PlaceDiffers}, 3)},
	{"footer names another partition", rebuilt(func(m *segment.ExtentMeta) {
		if m.Partition == 1 {
			m.Partition = 2
		}
	}), []verify.Kind{verify.PlaceDiffers}},
	{"archive segment", object(func(w *world, body []byte) []byte {
		f, err := segment.ParseSegment(body)
		check(w.t, err)
		b, e := segment.NewBuilder(segment.Archive, f.Log), f.Extents[0]
		e.EndOffset = 1
		check(w.t, b.Add(e.ExtentMeta, e.MinTime, body[e.Offset:e.Offset+e.Length]))
		out, _, err := b.Finish()
		check(w.t, err)
		return out
	}), []verify.Kind{verify.ExtentOutside, verify.ObjectForeign}},
	{"object cut off", object(func(_ *world, body []byte) []byte { return body[:len(body)-20] }), []verify.Kind{verify.ObjectUnreadable}},
	{"object empty", object(func(*world, []byte) []byte { return []byte{} }), []verify.Kind{verify.ExtentOutside, verify.ObjectUnreadable}},
	{"checksum of a batch", object(func(w *world, body []byte) []byte {
		f, err := segment.ParseSegment(body)
		check(w.t, err)
		body[f.Extents[1].Offset+f.Extents[1].Length-1]++
		return body
	}), []verify.Kind{verify.BatchCorrupt}},
	{"offsets in an extent not dense", object(func(w *world, body []byte) []byte {
		f, err := segment.ParseSegment(body)
		check(w.t, err)
		segment.SetBaseOffset(body[f.Extents[1].Offset:], 1)
		return body
	}), []verify.Kind{verify.OffsetsNotDense}},
	{"table and bucket of different logs", func(w *world, _ metadata.LaneID) {
		w.table.identity = func(id *metadata.Identity) { id.Log[3]++ }
	}, []verify.Kind{verify.IdentityWrong}},
	{"bucket without identity", func(w *world, _ metadata.LaneID) { w.store.show(segment.IdentityName, nil) }, []verify.Kind{verify.IdentityWrong}},
	{"bucket's identity not readable", func(w *world, _ metadata.LaneID) { w.store.show(segment.IdentityName, []byte("{")) }, []verify.Kind{verify.IdentityWrong}},

	{"topic row not readable", func(w *world, _ metadata.LaneID) {
		w.spoil(metadata.TopicKey("t"), "width", &types.AttributeValueMemberN{Value: "0"})
	},
		[]verify.Kind{verify.TopicUnreadable, verify.OrphansUnknown}},
	{"head not readable", func(w *world, lane metadata.LaneID) {
		w.spoil(metadata.HeadKey(lane), "g", &types.AttributeValueMemberN{Value: "22"})
	},
		[]verify.Kind{verify.HeadUnreadable, verify.OrphansUnknown}},
	{"state not readable", func(w *world, lane metadata.LaneID) {
		w.spoil(metadata.StateKey(lane), "first", &types.AttributeValueMemberN{Value: "-1"})
	},
		[]verify.Kind{verify.StateUnreadable, verify.OrphansUnknown}}, // what is archived is not known
	{"chunk not readable", func(w *world, lane metadata.LaneID) {
		w.spoil(metadata.ChunkKey(lane, 0), "c", &types.AttributeValueMemberB{Value: []byte{1, 99}})
	},
		[]verify.Kind{verify.ChunkUnreadable, verify.OrphansUnknown}},
	{"chunk of a newer version", func(w *world, lane metadata.LaneID) {
		w.spoil(metadata.ChunkKey(lane, 8), "c", &types.AttributeValueMemberB{Value: []byte{9}})
	},
		[]verify.Kind{verify.ChunkUnreadable, verify.OrphansUnknown}},
	{"no head", func(w *world, lane metadata.LaneID) { check(w.t, w.table.DeleteHead(w.t.Context(), lane)) }, []verify.Kind{verify.HeadMissing, verify.OrphansUnknown}},
	{"no state and no chunks", func(w *world, lane metadata.LaneID) {
		_, err := w.table.DeleteLaneRest(w.t.Context(), lane)
		check(w.t, err)
	}, []verify.Kind{verify.StateMissing, verify.ChunkMissing, verify.OrphansUnknown}},
}

// Each fault is found, is called what it is, and hides or brings with it nothing else; and the rest of the log is verified all the same.
func TestFaults(t *testing.T) {
	for i, f := range faults {
		if i%faultsShare > 0 {
			continue
		}
		t.Run(strings.ReplaceAll(f.name, " ", "-"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f.test(t, sound) })
		})
	}
}

func (f bent) test(t *testing.T, sound func(testing.TB) (*world, metadata.LaneID)) {
	w, lane := sound(t)
	f.bend(w, lane)
	r := w.verify(w.options())
	want := map[verify.Kind]int{}
	for _, k := range f.want {
		want[k]++
	}
	if got := kinds(r); !maps.Equal(got, want) {
		t.Fatalf("want %v, %s", want, describe(r))
	}
	for _, f := range r.Findings {
		if f.Do == "" || f.What == "" || f.Severity == "" || f.Where() == "" && f.Kind != verify.OrphansUnknown {
			t.Errorf("%+v", f)
		}
	}
	if f.want[0] != verify.IdentityWrong && r.Totals.Commits < 3 { // of the other topic
		t.Errorf("only %d commits were looked at", r.Totals.Commits)
	}
}

// A chunk that is put and whose entries the head has still is what spillers leave who die before they trim. It must be the one that the next spiller will put.
func TestChunkThatWasNotTrimmed(t *testing.T) {
	w, lane := sound(t)
	w.produce(2, at("t", 0)...)
	spill := metadata.PlanSpill(w.head(lane), w.maxima(lane, 8))
	if len(spill.Chunks) != 0 {
		t.Fatal(spill)
	}
	h := w.head(lane)
	h.K = 1 // a lane with chunks of one order each has one ready
	plan := metadata.PlanSpill(h, w.maxima(lane, 8)).Chunks[0]
	w.table.head = headOf(lane, func(h *metadata.Head) { // as it was before the last spill
		c, err := w.table.Table.Chunk(t.Context(), lane, 8, metadata.Strong)
		check(t, err)
		h.Entries = append(slices.Clone(c.Entries), h.Entries...)
		h.First = 8
	})
	if r := w.verify(w.options()); len(r.Findings) != 0 {
		t.Error(describe(r))
	}
	w.table.chunk = chunkAt(8, lane, func(c *metadata.Chunk) { c.MaxTimes[0]++ })
	only(t, w.verify(w.options()), verify.ChunkDiffers)
	w.table.mark.Begun = 1 // from here on the log was repaired once
	found := func(want verify.Kind) {
		t.Helper()
		r := w.verify(verify.Options{Env: w.env, Topics: []string{"t"}})
		only(t, r, want)
	}
	found(verify.ChunkForgotten)
	w.table.chunk, w.table.more = nil, []*metadata.Chunk{w.extra(lane, 24)}
	found(verify.ChunkForgotten)
	w.table.more = []*metadata.Chunk{w.extra(lane, 27)}
	found(verify.ChunkOutOfPlace)
	if plan.First != 16 {
		t.Errorf("%+v", plan)
	}
}

func TestOrphans(t *testing.T) {
	w, lane := sound(t)
	body := w.body(w.object(lane, 1))
	for age, n := range map[time.Duration]int{time.Hour: 3, time.Minute: 2} {
		for i := range n {
			id := segment.NewID(w.env.Now().Add(-age), 7, segment.InBucket, uint64(i), segment.ID{})
			check(t, w.store.Put(t.Context(), segment.IntakeName(id), body))
		}
	}
	check(t, w.store.Put(t.Context(), "somebody/elses", nil))
	r := w.verify(w.options())
	orphans := verify.Heap{Objects: 3, Bytes: 3 * int64(len(body))}
	recent := verify.Heap{Objects: 2, Bytes: 2 * int64(len(body))}
	if !r.OK() || r.Suspicious != 0 || r.Totals.Orphans != orphans || r.Totals.Recent != recent || !maps.Equal(kinds(r), map[verify.Kind]int{verify.Orphans: 1, verify.NameUnknown: 1}) {
		t.Errorf("%s\n%+v", describe(r), r.Totals)
	}
}

// What is below the log start may be gone, and what is past its class's days.
func TestExpiredIsNoDamage(t *testing.T) {
	w, lane := sound(t)
	for _, p := range []int{0, 1} {
		_, err := w.log.Admin().DeleteRecords(t.Context(), "t", p, 5)
		check(t, err)
	}
	w.store.show(w.object(lane, 2), nil)
	f := only(t, w.verify(w.options()), verify.ObjectMissing)
	if len(f.Ranges) != 1 || f.Ranges[0].Partition != 3 { // of the other two partitions nothing is lost
		t.Error(f.Where())
	}
	_, err := w.log.Admin().DeleteRecords(t.Context(), "t", 3, 3)
	check(t, err)
	if r := w.verify(w.options()); !r.OK() || len(r.Findings) != 0 || r.Totals.Expired != 3 {
		t.Errorf("%s\n%+v", describe(r), r.Totals)
	}

	old := segment.NewID(w.env.Now().Add(-8*24*time.Hour), 7, segment.InBucket, 1, segment.ID{})
	w.table.chunk = chunkAt(0, lane, func(c *metadata.Chunk) {
		c.Entries[7].ID = old
		for i := range c.Entries[7].Slots { // the maxima stay as they are: a later commit has the latest
			c.Entries[7].Slots[i].MaxTime--
		}
	})
	if r := w.verify(w.options()); r.Damage != int64(kinds(r)[verify.MaximaBroken]) || r.Totals.Expired != 4 {
		t.Errorf("%s\n%+v", describe(r), r.Totals)
	}
}

// An index that no longer begins at order 0 is followed from where it begins.
func TestIndexThatBeginsLater(t *testing.T) {
	w, lane := archived(t)
	for order := range int64(8) {
		w.vanish(w.object(lane, order))
	}
	_, err := w.table.SetFirst(t.Context(), lane, 8)
	check(t, err)
	check(t, w.table.DeleteChunks(t.Context(), lane, 0, 8))
	if r := w.verify(w.options()); !r.OK() || len(r.Findings) != 0 || r.Totals.Commits != 13+3 || r.Totals.Superseded.Objects != 8 || r.Totals.Records != 18*3+3*5 {
		t.Errorf("%s\n%+v", describe(r), r.Totals)
	}
	w.table.chunk = chunkAt(8, lane, func(c *metadata.Chunk) { c.Bases[0]++ }) // contradicts the head behind it
	only(t, w.verify(w.options()), verify.HeadEnds)
}

func TestManyFindings(t *testing.T) {
	w, lane := sound(t)
	w.table.chunk = func(c *metadata.Chunk) {
		if c.Lane == lane {
			for i := range c.Entries {
				for j := range c.Entries[i].Slots {
					c.Entries[i].Slots[j].MaxTime = math.MinInt32
				}
			}
		}
	}
	r := w.verify(w.options())
	if r.Damage < 48 || int64(len(r.Findings)) != r.Damage+r.Suspicious+r.Information {
		t.Errorf("%d findings, %d damage", len(r.Findings), r.Damage)
	}
}
