package metadata

import (
	"hash/fnv"
	"time"

	"github.com/varvelog/varve/segment"
)

// Bases returns, for each entry of the image, the offsets of all slots before it: what an entry's records
// start at. It is the one place where base offsets are computed. ends are the offsets after the last entry.
func Bases(entries []Entry, ends Offsets) []Offsets {
	bases := make([]Offsets, len(entries))
	for i := len(entries) - 1; i >= 0; i-- {
		for _, s := range entries[i].Slots {
			ends[s.Slot] -= int64(s.Count)
		}
		bases[i] = ends
	}
	return bases
}

// Find returns the index of the entry with the id, or -1.
func (h *Head) Find(id segment.ID) int { return find(h.Entries, id) }

func find(entries []Entry, id segment.ID) int {
	for i := range entries {
		if entries[i].ID == id {
			return i
		}
	}
	return -1
}

// Ends are the offsets of all slots after the chunk's last entry.
func (c *Chunk) Ends() Offsets {
	ends := c.Bases
	for i := range c.Entries {
		for _, s := range c.Entries[i].Slots {
			ends[s.Slot] += int64(s.Count)
		}
	}
	return ends
}

// EpochOf is the fence epoch that a writer of this name uses, in [0, Epochs).
func EpochOf(writer string) int {
	h := fnv.New32a()
	h.Write([]byte(writer))
	return int(h.Sum32() % Epochs)
}

// CapFor is Commit.Cap for an update of m entries by a writer that last saw First at first. A First seen too
// long ago is lower than the true one, so the cap is then only too strict.
func CapFor(first int64, m int) int64 { return first + MaxHeadEntries + 1 - int64(m) }

// Stamp is one moment on both clocks.
type Stamp struct {
	Wall time.Time
	Mono time.Duration
}

// Age is the time from s to now: the larger of what the two clocks say, since the wall clock may have been set
// back and the monotonic clock may have stood still while the process was frozen.
func (s Stamp) Age(now Stamp) time.Duration {
	return max(now.Wall.Sub(s.Wall), now.Mono-s.Mono)
}

// Reason is why a head refused a commit.
type Reason uint8

// Reasons, in the order in which WhyRefused looks for them.
const (
	ReasonUnexplained  Reason = iota // no condition known to this build fails on the image
	ReasonNoLane                     // there is no head: the topic was deleted
	ReasonAlreadyThere               // an earlier attempt of the same entries was applied
	ReasonVersion                    // the head asks for writers of a later format
	ReasonProducer                   // the request of a producer is not the next one, or cannot be verified, or there are too many
	ReasonToken                      // a slot's fencing token is another
	ReasonOffset                     // a slot's end offset is not the expected one
	ReasonPadding                    // padding: the lane went on meanwhile
	ReasonEpoch                      // the writer's epoch was raised
	ReasonFloor                      // an id is not above the floor
	ReasonFull                       // too many entries in the head
	ReasonSpilled                    // a commit that may be sent again: entries have been spilled that may have been its own
)

var reasons = [...]string{"unexplained", "no lane", "already there", "version", "producer", "token", "offset", "padding", "epoch", "floor", "full", "spilled"}

func (r Reason) String() string { return reasons[r] }

// WhyRefused tells why the head with this image (nil: there was none) refused the commit. Several conditions may
// fail at once: first comes that it was applied before, which makes it no refusal at all; then what no
// repetition can mend, producers before conditions, as a request that was applied has ended its own condition;
// then what the writer can mend, where an epoch goes before floor and cap because every later attempt needs it.
func WhyRefused(c Commit, h *Head) Reason {
	switch {
	case h == nil:
		return ReasonNoLane
	case anyThere(c.Entries, h):
		return ReasonAlreadyThere
	case h.MinVersion > FormatVersion:
		return ReasonVersion
	case len(c.FailedProducers(h)) > 0:
		return ReasonProducer
	case c.FailedToken(h) != nil:
		return ReasonToken
	case c.FailedExpect(h) != nil:
		return ReasonOffset
	case c.PadIf && h.Next != c.PadAt:
		return ReasonPadding
	case h.Epochs[c.Writer] != c.Epoch:
		return ReasonEpoch
	case !h.Floor.IsZero() && !h.Floor.Less(lowest(c.Entries)):
		return ReasonFloor
	case h.Next >= c.Cap:
		return ReasonFull
	case c.Once && h.First > c.Since:
		return ReasonSpilled
	}
	return ReasonUnexplained
}

// Final tells that the head never lets the commit through any more, whenever it arrives: all that the reason depends on only grows.
func (r Reason) Final() bool {
	switch r {
	case ReasonEpoch, ReasonFloor, ReasonFull, ReasonSpilled:
		return true
	}
	return false
}

func anyThere(entries []Entry, h *Head) bool {
	for i := range entries {
		if h.Find(entries[i].ID) >= 0 {
			return true
		}
	}
	return false
}

// FailedToken is the first token that is not the image's, or nil.
func (c Commit) FailedToken(h *Head) *Token {
	for i, t := range c.Tokens {
		if h.Tokens[t.Slot] != t.Token {
			return &c.Tokens[i]
		}
	}
	return nil
}

// FailedExpect is the first expected offset that is not the image's, or nil.
func (c Commit) FailedExpect(h *Head) *Expect {
	for i, e := range c.Expect {
		if h.Ends[e.Slot] != e.Offset {
			return &c.Expect[i]
		}
	}
	return nil
}

// FailedProducer is a request of a producer that an image does not admit.
type FailedProducer struct {
	ProducerStep
	Why Admission
}

// FailedProducers are those requests of producers that the image does not admit.
func (c Commit) FailedProducers(h *Head) (failed []FailedProducer) {
	for i, why := range h.AdmitAll(c.Producers) {
		if why != Admitted {
			failed = append(failed, FailedProducer{c.Producers[i], why})
		}
	}
	return failed
}

func lowest(entries []Entry) segment.ID {
	low := entries[0].ID
	for _, e := range entries[1:] {
		if e.ID.Less(low) {
			low = e.ID
		}
	}
	return low
}

// Located says where the entries of one update are: they have consecutive orders.
type Located struct {
	Order int64   // of the first entry
	Bases Offsets // of all slots before the first entry
}

// Locate finds the entries of one update in the image. One of them is enough: the others took the orders next
// to it, and some of them may be in a chunk already.
func (h *Head) Locate(entries []Entry) (at Located, ok bool) {
	return locate(entries, h.Entries, h.Ends)
}

// Locate finds the entries of one update in the chunk, as Head.Locate does.
func (c *Chunk) Locate(entries []Entry) (at Located, ok bool) {
	return locate(entries, c.Entries, c.Ends())
}

func locate(wanted, entries []Entry, ends Offsets) (at Located, ok bool) {
	for i := range wanted {
		j := find(entries, wanted[i].ID)
		if j < 0 {
			continue
		}
		base := Bases(entries, ends)[j]
		if i > 0 { // those before it were applied with it, and may be in an earlier chunk
			base = Bases(wanted[:i], base)[0]
		}
		return Located{Order: entries[j].Order - int64(i), Bases: base}, true
	}
	return Located{}, false
}

// Verdict is what a settlement concludes from chunks.
type Verdict uint8

// Verdicts.
const (
	Undecided  Verdict = iota // a chunk that would tell is missing
	Applied                   // found
	NotApplied                // not there
)

// Settle looks for the entries of an update whose outcome is unknown in the chunks that a strong read of [from,
// to) showed, both multiples of k. When the range reaches from ChunkOf(g0), g0 being an order that the lane had
// reached before the update was sent, to the First of a head image that shows the writer's epoch above the one
// the update was sent with and that does not have the entries either, and the chunks were read after that
// image, then NotApplied is for ever: what was applied is at g0 or above, what is below First is in a chunk,
// and what is fenced cannot be applied later.
func Settle(entries []Entry, from, to, k int64, chunks []*Chunk) (at Located, v Verdict) {
	have := make(map[int64]bool, len(chunks))
	for _, c := range chunks {
		if at, ok := c.Locate(entries); ok {
			return at, Applied
		}
		have[c.First] = true
	}
	for first := from; first < to; first += k {
		if !have[first] {
			return Located{}, Undecided
		}
	}
	return Located{}, NotApplied
}

// ChunkOf is the first order of the chunk that has the order, k being the lane's orders per chunk.
func ChunkOf(order, k int64) int64 { return order - order%k }
