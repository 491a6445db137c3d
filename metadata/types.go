package metadata

import (
	"time"

	"github.com/varvelog/varve/segment"
)

// Limits and constants of the layout.
const (
	SlotsPerLane   = 64  // slots in one head
	MaxHeadEntries = 64  // entries in one head, never more
	Epochs         = 16  // fence epochs in one head
	ChunkOrders    = 8   // K: commits in one chunk
	MaxLanes       = 49  // lanes that one creating transaction can hold: two items each, and the name row
	FormatVersion  = 1   // of the table; a head's minimum version above it refuses this build
	MaxNameBytes   = 249 // of topic, group and member names

	// One update expression may have 4 KB and 300 operators: with 64 slots touched this many entries and conditions need 283.
	MaxCommitEntries    = 16
	MaxCommitConditions = 64 // expected offsets and tokens together
)

// MaxSegmentAge is how long after minting its id a segment may still be committed. It bounds how late a request can apply,
// which is what lets the sweep judge orphans by id.
const MaxSegmentAge = 10 * time.Minute

// MaxArchiveAge is the same for an archive segment and its publication: longer than a compaction runs.
const MaxArchiveAge = 50 * time.Minute

// MaxLate is how long after it was sent a request may still be applied: the service takes signatures of five minutes, and from a clock that is as much ahead.
const MaxLate = 10 * time.Minute

// Consistency of a read. An Eventual read may be stale: nothing may be concluded from what it does not show.
type Consistency bool

const (
	Eventual Consistency = false
	Strong   Consistency = true
)

// LaneID names a lane. Opaque.
type LaneID string

// Slot is a partition's place in its lane: 0 to SlotsPerLane-1.
type Slot uint8

// Place is where a partition is sequenced.
type Place struct {
	Lane LaneID
	Slot Slot
}

// Identity is what LOG|ID and the bucket's varve.json both say. Open, CreateTopic and the sweep refuse a log whose two differ.
type Identity struct {
	Log     segment.LogID
	Version int // FormatVersion at creation
	Bucket  string
	Prefix  string
}

// Topic is one row of TOPIC.
type Topic struct {
	Name        string
	ID          segment.TopicID
	Version     int64           // config version, 1 at creation, raised by every change
	Partitions  int             // partitions 0..Partitions-1
	LaneWidth   int             // slots used per lane: partition p is slot p%LaneWidth of Lanes[p/LaneWidth]
	Lanes       []LaneID        // never reordered; growth appends
	Partitioner string          // "murmur2" for now; recorded so that growth can tell which keys move
	Keyed       bool            // a keyed record may have been appended: set before the first one is
	History     []Growth        // every partition count it has had, oldest first
	Classes     []segment.Class // every retention class it has had, without repeats; a deletion hands them to its GONE row
	Stored      []segment.Class // those of them, without repeats, that something in the log may still be under; the topic's own is always one
	Config      TopicConfig
}

// Growth records that from config version Version on the topic had Partitions partitions.
type Growth struct {
	Version    int64
	Partitions int
}

// Place is where partition p is sequenced; p must be in [0, Partitions).
func (t *Topic) Place(p int) Place {
	return Place{Lane: t.Lanes[p/t.LaneWidth], Slot: Slot(p % t.LaneWidth)}
}

// Partition is the inverse of Place.
func (t *Topic) Partition(at Place) (p int, ok bool) {
	for i, l := range t.Lanes {
		if l == at.Lane {
			p = i*t.LaneWidth + int(at.Slot)
			return p, int(at.Slot) < t.LaneWidth && p < t.Partitions
		}
	}
	return 0, false
}

// Class is the retention class that the topic's segments go to.
func (t *Topic) Class() segment.Class { return t.Config.Class() }

// Sharing is what topics have to have in common for their records to share an intake segment. Archive segments are of one topic each.
type Sharing struct {
	Class segment.Class
	Alone segment.TopicID // of an isolated topic, which shares with nobody; else ""
}

// Sharing is with which topics the topic shares segments.
func (t *Topic) Sharing() Sharing {
	s := Sharing{Class: t.Class()}
	if t.Config.Isolate {
		s.Alone = t.ID
	}
	return s
}

// Entry is one commit's part in a lane: which segment, and which of its bytes belong to which slot.
type Entry struct {
	ID    segment.ID
	Order int64
	Empty bool        // padding: no object, no slots
	Start int64       // byte offset in the segment of the first slot's batches
	Slots []SlotEntry // ascending by Slot, laid one after another from Start
}

// SlotEntry is one slot's extent in an entry. Count 0 marks bytes that are in the segment but not part of
// the log: a batch that was withdrawn after its upload.
type SlotEntry struct {
	Slot    Slot
	Count   int32 // records
	Bytes   int32 // length of the batches
	MaxTime int64 // largest index timestamp, ms
}

// Offsets is one number per slot, in most uses the next or base offset.
type Offsets [SlotsPerLane]int64

// Head is the image of L#<lane>|HEAD.
type Head struct {
	Lane          LaneID
	Next          int64   // g: commits so far, so the order of the next one
	First         int64   // s: first order not spilled
	Ends          Offsets // p<i>: next offset of each slot
	Entries       []Entry // by order, exactly [First, Next)
	Epochs        [Epochs]int64
	Floor         segment.ID // ids at or below it are refused
	ConfigVersion int64
	Class         segment.Class
	Tokens        map[Slot]int64 // fencing tokens, where set
	K             int64          // ChunkOrders at creation
	MinVersion    int            // writers of an older format are refused

	Producers     map[ProducerID]ProducerState // those that repeat their requests, at most MaxProducers
	ProducerFloor ProducerID                   // ids up to it that are not among them may have been, and are refused
}

// Chunk is C#<lane>|<first order>: ChunkOrders consecutive commits. Immutable and deterministic: whoever
// spills the same orders writes the same bytes.
type Chunk struct {
	Lane     LaneID
	First    int64
	Bases    Offsets // offsets of each slot before the first entry
	MaxTimes Offsets // running maximum of each slot's MaxTime over everything up to the chunk's end; 0 = no record yet
	Entries  []Entry
}

// State is A#<lane>|STATE.
type State struct {
	Lane     LaneID
	Archived int64   // orders below it are in the archive; may lie within a chunk
	First    int64   // first order still kept
	Ends     Offsets // archived offset of each slot
	Starts   Offsets // log start of each slot
	Cleaned  [SlotsPerLane]Cleaning
	Floor    segment.ID // afloor

	// Class is the only one that archive segments may have from config version Version on; Version 0, before the first change: any.
	Version int64
	Class   segment.Class

	// Oldest: of what each slot retains, the first extent has its newest record appended no earlier than this. So while that would not have expired, nothing
	// has. Zero: not known.
	Oldest time.Time

	Cuts []Cut // of repairs, by slot and offset
}

// Cleaning is how far key compaction is with a slot. Tombstones are records that delete their key.
type Cleaning struct {
	To int64 // of what is below it, only the latest record of each key is left, and records without a key

	// Since that time nothing is left of a key before its tombstone, of tombstones below the offset Settled. Who reads past them may have read what they delete
	// before.
	Settled int64
	Since   time.Time

	// Tombstones below Purged were removed, all of them by Until. Who has read to an offset below it by then, but no further, may have missed some.
	Purged int64
	Until  time.Time
}

// Missed tells whether who had read up to an offset at some time, and reads on there, may not hear of the deletion of a key that was read before.
func (c Cleaning) Missed(offset int64, at time.Time) bool {
	return offset < c.Purged && !at.After(c.Until)
}

// MaxGoneNamed keeps a GONE row below half the size of an item.
const MaxGoneNamed = 8192

// GoneTopic is a deleted topic that is still being cleaned.
type GoneTopic struct {
	ID      segment.TopicID
	Name    string
	Lanes   []LaneID
	Width   int             // slots used per lane: partition p was slot p%Width of Lanes[p/Width]
	Classes []segment.Class // every class it ever used
	Named   []segment.ID    // segments that the heads named, which go at once, at most MaxGoneNamed: by these the sweep finds them
	Deleted time.Time       // service time of the deletion, then of the latest pass: what the waits are counted from
	Pass    int             // cleaning passes done; the row goes after the second, an hour later
}
