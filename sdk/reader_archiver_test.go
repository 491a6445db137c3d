package sdk_test

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// archiver moves what a lane has into archive segments, as a compaction does, without any of its care.
type archiver struct {
	rowOffsets   int64                                  // of a row, at most; 0: all are one
	batchRecords int                                    // of a batch, at most; 0: ten
	keep         func(partition int, offset int64) bool // nil: all
	damage       func(object []byte)                    // nil: none
}

// archive fills the topic's lanes up to whole chunks and archives all of those. It returns the names of the intake objects that nothing needs any more.
func (b *bench) archive(topic string, a archiver) (old []string) {
	b.writing.Lock()
	defer b.writing.Unlock()
	for _, lane := range b.topics[topic].Lanes {
		old = append(old, b.archiveLane(topic, lane, a)...)
	}
	return old
}

func (b *bench) archiveLane(topic string, lane metadata.LaneID, a archiver) (old []string) {
	t, table := b.topics[topic], b.backend.Table
	h, err := table.Head(b.ctx, lane, metadata.Strong)
	check(b.t, err)
	for h.Next%h.K != 0 {
		b.minted++
		id := segment.NewID(time.Now(), t.Class(), segment.InBucket, b.minted, segment.ID{})
		h, err = table.Commit(b.ctx, metadata.Commit{Lane: lane, Entries: []metadata.Entry{{ID: id, Empty: true}}, Epoch: h.Epochs[0], Cap: metadata.CapFor(h.First, 1), PadIf: true, PadAt: h.Next})
		check(b.t, err)
	}
	h = b.spill(h)
	state, err := table.State(b.ctx, lane, metadata.Strong)
	check(b.t, err)
	if state.Archived == h.First {
		return nil
	}
	runs := map[metadata.Slot][]appended{}
	for first := state.Archived; first < h.First; first += h.K {
		c, err := table.Chunk(b.ctx, lane, first, metadata.Strong)
		check(b.t, err)
		for i, e := range c.Entries {
			bases := metadata.Bases(c.Entries, c.Ends())[i]
			at := e.Start
			for _, s := range e.Slots {
				base := bases[s.Slot]
				runs[s.Slot] = append(runs[s.Slot], b.appended(segment.IntakeName(e.ID), at, int64(s.Bytes), base, base+int64(s.Count), base, e.ID.Time())...)
				at += int64(s.Bytes)
			}
			if !e.Empty {
				old = append(old, segment.IntakeName(e.ID))
			}
		}
	}
	p := &metadata.Publication{Lane: lane, From: state.Archived, To: h.First, Ends: map[metadata.Slot]int64{}}
	for slot, run := range runs {
		p.Ends[slot] = run[len(run)-1].Offset + 1
		runs[slot] = slices.DeleteFunc(run, func(x appended) bool { return x.Offset < state.Starts[slot] }) // a stale reader would take what is expired for emptied
	}
	b.publish(t, p, runs, a)
	_, err = table.SetFirst(b.ctx, lane, h.First-h.K)
	check(b.t, err)
	check(b.t, table.DeleteChunks(b.ctx, lane, state.First, h.First-h.K))
	return old
}

// appended is a record and when it was appended.
type appended struct {
	segment.Record
	at   time.Time
	lost bool
}

// appended is the records of the offsets [base, end), which the object's bytes hold. What is not in them, or went with the object, is lost.
func (b *bench) appended(object string, from, n, base, end, decodeBase int64, at time.Time) (all []appended) {
	var body []byte
	var err error
	if n > 0 {
		body, err = b.raw.Get(b.ctx, object, from, n, nil)
	}
	if !errors.Is(err, store.ErrNotExist) {
		check(b.t, err)
	}
	for offset := base; offset < end; offset++ {
		all = append(all, appended{segment.Record{Offset: offset}, at, true})
	}
	var d segment.Decoder
	for rest := body; len(rest) > 0; {
		var batch []byte
		batch, rest, err = segment.SplitBatch(rest)
		check(b.t, err)
		records, err := d.Decode(batch, decodeBase, nil)
		check(b.t, err)
		for _, r := range records {
			all[r.Offset-base] = appended{r, at, false}
		}
	}
	return all
}

// publish writes runs of consecutive offsets as rows and publishes them.
func (b *bench) publish(t *metadata.Topic, p *metadata.Publication, runs map[metadata.Slot][]appended, a archiver) {
	b.minted++
	p.ID = segment.NewID(time.Now(), t.Class(), segment.Archived, b.minted, segment.ID{})
	builder := segment.NewBuilder(segment.Archive, segment.LogID{})
	for slot := range metadata.Slot(metadata.SlotsPerLane) {
		run := runs[slot]
		if len(run) == 0 {
			continue
		}
		partition, _ := t.Partition(metadata.Place{Lane: p.Lane, Slot: slot})
		runMax := int64(0)
		if before, err := b.backend.Table.Row(b.ctx, t.ID, partition, run[0].Offset-1, metadata.Strong); err == nil {
			runMax = before.RunMax
		}
		size := a.rowOffsets
		if size == 0 {
			size = int64(len(run))
		}
		for part := range slices.Chunk(run, int(size)) {
			r := metadata.Row{Topic: t.ID, Partition: partition, Base: part[0].Offset, End: part[len(part)-1].Offset + 1, First: part[0].at, Last: part[len(part)-1].at}
			var kept []segment.Record
			for _, x := range part {
				index := metadata.IndexTimeAt(x.Timestamp, x.at)
				if runMax = max(runMax, index); x.lost {
					continue
				}
				if a.keep == nil || a.keep(partition, x.Offset) {
					kept, r.MaxTime = append(kept, x.Record), max(r.MaxTime, index)
				}
			}
			if r.RunMax = runMax; len(kept) > 0 {
				r.Segment, r.Count, r.Start = p.ID, int64(len(kept)), int64(builder.Size())
				meta := segment.ExtentMeta{Lane: string(p.Lane), Slot: uint8(slot), Topic: t.ID, Partition: int32(partition), BaseOffset: r.Base, EndOffset: r.End}
				n := a.batchRecords
				if n == 0 {
					n = 10
				}
				for batch := range slices.Chunk(kept, n) {
					check(b.t, builder.Add(meta, 0, sparse(batch)))
				}
				r.Bytes = int64(builder.Size()) - r.Start
			}
			p.Put = append(p.Put, r)
		}
	}
	if body, _, err := builder.Finish(); err == nil {
		if a.damage != nil {
			a.damage(body)
		}
		check(b.t, b.raw.Put(b.ctx, segment.ArchiveName(t.ID, p.ID), body))
	}
	check(b.t, b.backend.Table.Publish(b.ctx, p))
}

// rewrite writes rows of a partition anew, as one run, and publishes that in their place. It returns the names of the objects
// that no row names any more.
func (b *bench) rewrite(topic string, partition int, from, to int64, a archiver) (old []string) {
	b.writing.Lock()
	defer b.writing.Unlock()
	t := b.topics[topic]
	at := t.Place(partition)
	rows, _, err := b.backend.Table.Rows(b.ctx, t.ID, partition, from, to, 40, metadata.Strong)
	check(b.t, err)
	state, err := b.backend.Table.State(b.ctx, at.Lane, metadata.Strong)
	check(b.t, err)
	// Rows below the log start may have gaps, which a stale reader would take for emptied.
	if rows = slices.DeleteFunc(rows, func(r *metadata.Row) bool { return r.End <= state.Starts[at.Slot] }); len(rows) == 0 {
		return nil
	}
	p := &metadata.Publication{Lane: at.Lane, From: state.Archived, To: state.Archived}
	var run []appended
	for _, r := range rows {
		p.Replace = append(p.Replace, *r)
		if run = append(run, b.appended(segment.ArchiveName(t.ID, r.Segment), r.Start, r.Bytes, r.Base, r.End, 0, r.First)...); r.Count == 0 {
			continue
		}
		name := segment.ArchiveName(t.ID, r.Segment)
		if !slices.Contains(p.Left, r.Segment) {
			p.Left, old = append(p.Left, r.Segment), append(old, name)
		}
	}
	b.publish(t, p, map[metadata.Slot][]appended{at.Slot: run}, a)
	for partition := range t.Partitions {
		rows, _, err := b.backend.Table.Rows(b.ctx, t.ID, partition, 0, 1<<40, 4000, metadata.Strong)
		check(b.t, err)
		for _, r := range rows {
			old = slices.DeleteFunc(old, func(name string) bool { return name == segment.ArchiveName(t.ID, r.Segment) })
		}
	}
	return old
}

// sparse is a batch of records whose offsets ascend but need not be dense. It ends at the last.
func sparse(records []segment.Record) []byte {
	b := make([]byte, 61)
	base, first, latest := records[0].Offset, records[0].Timestamp, int64(0)
	for _, r := range records {
		body := binary.AppendVarint([]byte{0}, r.Timestamp-first)
		body = binary.AppendVarint(body, r.Offset-base)
		for _, field := range [][]byte{r.Key, r.Value} {
			if field == nil {
				body = binary.AppendVarint(body, -1)
				continue
			}
			body = append(binary.AppendVarint(body, int64(len(field))), field...)
		}
		body = binary.AppendVarint(body, 0)
		b = append(binary.AppendVarint(b, int64(len(body))), body...)
		latest = max(latest, r.Timestamp)
	}
	binary.BigEndian.PutUint64(b, uint64(base))
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	b[16] = 2
	binary.BigEndian.PutUint32(b[23:], uint32(records[len(records)-1].Offset-base))
	binary.BigEndian.PutUint64(b[27:], uint64(first))
	binary.BigEndian.PutUint64(b[35:], uint64(latest))
	binary.BigEndian.PutUint64(b[43:], ^uint64(0))
	binary.BigEndian.PutUint16(b[51:], ^uint16(0))
	binary.BigEndian.PutUint32(b[53:], ^uint32(0))
	binary.BigEndian.PutUint32(b[57:], uint32(len(records)))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// remove deletes objects.
func (b *bench) remove(names []string) {
	for _, name := range names {
		check(b.t, b.raw.Delete(b.ctx, name))
	}
}
