package metadata

import "github.com/varvelog/varve/segment"

// Spill is what moves entries out of a head: put every chunk, then, and only when all of them are known to be
// there, trim the head. The head then still has every entry that no chunk has.
type Spill struct {
	Lane     LaneID
	From, To int64 // First before and after
	Chunks   []*Chunk
	IDs      []segment.ID // of the entries that leave the head
}

// SpillDue tells whether the commit of m entries that left this image should spill: it brought the entries in the head
// over a multiple of K. So of several writers one spills, and when it dies the next does K orders later.
func (h *Head) SpillDue(m int) bool {
	n := h.Next - h.First
	return n/h.K > (n-int64(m))/h.K
}

// PlanSpill plans the spill of every whole chunk in the head. before are the MaxTimes of the chunk that ends at
// h.First, zero when that is 0. The plan depends on nothing else, so all who spill the same orders write the
// same chunks. A head with fewer than K entries gives a plan without chunks.
func PlanSpill(h *Head, before Offsets) Spill {
	s := Spill{Lane: h.Lane, From: h.First, To: h.First}
	bases, maxima := Bases(h.Entries, h.Ends), before
	k := int(h.K)
	for i := 0; i+k <= len(h.Entries); i += k {
		entries := h.Entries[i : i+k]
		maxima = MaxTimes(maxima, entries)
		s.Chunks = append(s.Chunks, &Chunk{Lane: h.Lane, First: s.To, Bases: bases[i], MaxTimes: maxima, Entries: entries})
		for j := range entries {
			s.IDs = append(s.IDs, entries[j].ID)
		}
		s.To += h.K
	}
	return s
}

// Holds tells whether the head begins with the entries that the plan takes out of it.
func (h *Head) Holds(s *Spill) bool {
	if h.First != s.From || len(h.Entries) < len(s.IDs) {
		return false
	}
	for i, id := range s.IDs {
		if h.Entries[i].ID != id {
			return false
		}
	}
	return true
}

// MaxTimes carries running maximum timestamps over entries. Bytes that were withdrawn (count 0) do not count.
func MaxTimes(before Offsets, entries []Entry) Offsets {
	for i := range entries {
		for _, s := range entries[i].Slots {
			if s.Count > 0 {
				before[s.Slot] = max(before[s.Slot], s.MaxTime)
			}
		}
	}
	return before
}

// PadNeeded is how many empty entries fill an idle lane up to a whole chunk, so that all of it can be spilled.
func (h *Head) PadNeeded() int { return int((h.K - h.Next%h.K) % h.K) }

// PlanPadding is the commit of empty entries with the given fresh ids, as many as PadNeeded. It is refused when
// the lane has gone on since the image, because then other entries fill the chunk.
func PlanPadding(h *Head, writer int, ids []segment.ID) Commit {
	c := Commit{Lane: h.Lane, Writer: writer, Epoch: h.Epochs[writer], Cap: CapFor(h.First, len(ids)), PadAt: h.Next, PadIf: true}
	for _, id := range ids {
		c.Entries = append(c.Entries, Entry{ID: id, Empty: true})
	}
	return c
}
