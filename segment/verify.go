package segment

import "fmt"

// Verify reads a whole segment, every record of it, and checks that header, footer, batches and records
// agree. It returns the footer. Errors name the extent and are FormatErrors as from ParseSegment and Decode.
func (d *Decoder) Verify(object []byte) (Footer, error) {
	f, err := ParseSegment(object)
	if err != nil {
		return Footer{}, err
	}
	var records []Record
	next := int64(0)
	for i := range f.Extents {
		e := &f.Extents[i]
		if i == 0 || f.Kind == Archive || e.Lane != f.Extents[i-1].Lane || e.Slot != f.Extents[i-1].Slot {
			next = e.BaseOffset
		}
		if next, records, err = d.verifyExtent(f.Kind, e, object[e.Offset:e.Offset+e.Length], next, records[:0]); err != nil {
			return Footer{}, fmt.Errorf("extent %d, partition %d of topic %s at byte %d: %w", i, e.Partition, e.Topic, e.Offset, err)
		}
	}
	return f, nil
}

// verifyExtent reads an extent whose first offset is at least next, exactly that in intake. records is memory to use.
func (d *Decoder) verifyExtent(kind Kind, e *Extent, b []byte, next int64, records []Record) (int64, []Record, error) {
	count := int64(0)
	for len(b) > 0 {
		batch, rest, err := SplitBatch(b)
		if err == nil {
			records, err = d.Decode(batch, 0, records[:0])
		}
		if err != nil {
			return 0, nil, err
		}
		h, _ := ParseBatchHeader(batch) // Decode has accepted it
		if kind == Intake && (h.BaseOffset != next || h.LastOffsetDelta != h.Count-1) {
			return 0, nil, malformed(ErrCorrupt, "batch", "base offset", 0, "%d to %d with %d records, intake has all from %d on", h.BaseOffset, h.BaseOffset+int64(h.LastOffsetDelta), h.Count, next)
		}
		if kind == Archive && (h.BaseOffset < next || h.BaseOffset+int64(h.LastOffsetDelta) >= e.EndOffset) {
			return 0, nil, malformed(ErrCorrupt, "batch", "base offset", 0, "%d to %d, possible are %d to %d", h.BaseOffset, h.BaseOffset+int64(h.LastOffsetDelta), next, e.EndOffset-1)
		}
		for i := range records {
			if t := records[i].Timestamp; t < e.MinTime || t > min(e.MaxTime, h.MaxTimestamp) {
				return 0, nil, malformed(ErrCorrupt, "batch", "max timestamp", maxTimeAt, "record %d has timestamp %d, outside [%d, %d]", i, t, e.MinTime, min(e.MaxTime, h.MaxTimestamp))
			}
		}
		next = h.BaseOffset + int64(h.LastOffsetDelta) + 1
		count += int64(h.Count)
		b = rest
	}
	if count != e.Count {
		return 0, nil, malformed(ErrCorrupt, "footer", "record count", 0, "%d, the batches have %d", e.Count, count)
	}
	return next, records, nil
}
