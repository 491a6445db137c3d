package sim

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// Record is a record that was committed, whatever has become of it since.
type Record struct {
	Value     string
	Key       string // empty: none
	Tombstone bool
	Time      time.Time // its own
	Appended  time.Time // the time in the id of its segment
}

// ledger is all that was ever committed. The world reads it from time to time, before anything of it can have been removed, sharing with the log's own readers
// only the codecs.
type ledger struct {
	mu    sync.Mutex
	lanes map[metadata.LaneID]*account
}

// account is what was committed to one lane. Orders and offsets must be dense.
type account struct {
	next    int64 // orders below it are in records
	records map[metadata.Slot][]Record

	spilled     int64            // chunks below it were read
	open        []metadata.Entry // in records, and not below it
	ends, times metadata.Offsets
}

// record takes in what was committed since it was called last.
func (w *World) record() {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	topics, _, err := w.table().Topics(context.Background(), "", 1000)
	w.must(err)
	for _, t := range topics {
		for _, l := range t.Lanes {
			if w.ledger.lanes[l] == nil {
				w.ledger.lanes[l] = &account{records: map[metadata.Slot][]Record{}}
			}
			w.recordLane(t, l, w.ledger.lanes[l])
		}
	}
}

func (w *World) recordLane(t *metadata.Topic, l metadata.LaneID, a *account) {
	h, err := w.table().Head(context.Background(), l, metadata.Strong)
	if w.removes && errors.Is(err, metadata.ErrNoLane) {
		return // the topic is being deleted
	}
	if err != nil {
		w.Bad(About{}, "%v", err)
		return
	}
	entries, ok := w.chunks(h, a)
	if !ok {
		return
	}
	for _, e := range append(entries, h.Entries...) {
		if e.Order < a.next {
			continue
		}
		if e.Order != a.next {
			w.Bad(About{}, "entry %d of lane %s has order %d", a.next, l, e.Order)
		}
		a.next = e.Order + 1
		if e.Order >= a.spilled {
			a.open = append(a.open, e)
		}
		from := e.Start
		for _, s := range e.Slots {
			if p, ok := t.Partition(metadata.Place{Lane: l, Slot: s.Slot}); s.Count > 0 && ok {
				a.records[s.Slot] = append(a.records[s.Slot], w.extent(e.ID, Partition{t.Name, p}, from, s)...)
			} else if s.Count > 0 {
				w.Bad(About{}, "segment %s has records of slot %d of lane %s, which is no partition", e.ID, s.Slot, l)
			}
			from += int64(s.Bytes)
		}
	}
	for slot, end := range h.Ends {
		p, _ := t.Partition(metadata.Place{Lane: l, Slot: metadata.Slot(slot)})
		if n := len(a.records[metadata.Slot(slot)]); int64(n) != end {
			at := Partition{t.Name, p}
			w.Bad(About{At: at}, "%v has %d records, the head ends it at %d", at, n, end)
		}
	}
}

// chunks is what was spilled since the last time, checking what the chunks say of themselves.
func (w *World) chunks(h *metadata.Head, a *account) (entries []metadata.Entry, ok bool) {
	for ; a.spilled < h.First; a.spilled += h.K {
		c, err := w.table().Chunk(context.Background(), h.Lane, a.spilled, metadata.Strong)
		if w.removes && errors.Is(err, metadata.ErrNoChunk) && a.next >= a.spilled+h.K { // it has come and gone since all of it was seen in the head
			c, err = &metadata.Chunk{Bases: a.ends, MaxTimes: metadata.MaxTimes(a.times, a.open[:h.K]), Entries: a.open[:h.K]}, nil
		}
		if err != nil {
			w.Bad(About{}, "chunk at %d of lane %s, below the head's first %d: %v", a.spilled, h.Lane, h.First, err)
			return nil, false
		}
		a.times = metadata.MaxTimes(a.times, c.Entries)
		if c.Bases != a.ends || c.MaxTimes != a.times {
			w.Bad(About{}, "chunk at %d of lane %s has bases %v, counted are %v", a.spilled, h.Lane, c.Bases, a.ends)
		}
		entries, a.ends = append(entries, c.Entries...), c.Ends()
		a.open = a.open[min(h.K, int64(len(a.open))):]
	}
	return entries, true
}

// extent is one partition's records in one segment of intake.
func (w *World) extent(id segment.ID, at Partition, from int64, s metadata.SlotEntry) (records []Record) {
	for _, r := range w.segment("", id, at, from, int64(s.Bytes)) {
		records = append(records, Record{Value: valueOf(r.Value, r.Headers), Key: string(r.Key), Tombstone: r.Value == nil, Time: time.UnixMilli(r.Timestamp), Appended: id.Time()})
	}
	if len(records) != int(s.Count) {
		w.Bad(About{At: at}, "segment %s has %d records of %v, the index says %d", id, len(records), at, s.Count)
	}
	return records
}

// segment is the records in a range of a segment.
func (w *World) segment(topic segment.TopicID, id segment.ID, at Partition, from, n int64) (records []segment.Record) {
	b, err := objects.NewReader(w.objects, w.table()).Get(context.Background(), objects.Of(topic, id), from, n, nil)
	if err != nil {
		w.Bad(About{At: at}, "segment %s is in the log: %v", id, err)
	}
	var d segment.Decoder
	for len(b) > 0 && err == nil {
		var batch []byte
		if batch, b, err = segment.SplitBatch(b); err == nil {
			records, err = d.Decode(batch, 0, records)
		}
		if err != nil {
			w.Bad(About{At: at}, "segment %s: %v", id, err)
		}
	}
	return records
}
