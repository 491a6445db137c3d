package segment

import (
	"hash/crc32"
	"math"
	"slices"
)

// Decoder reads batches. The zero value is ready. It keeps decompressors between batches, so use one for each
// reading goroutine. Not for concurrent use.
type Decoder struct {
	// Limits bound what one batch may take; zero fields have their defaults. A batch above is ErrTooLarge.
	Limits Limits
	// Reuse makes Decode write into memory of the Decoder's own: keys, values and headers of the batch
	// before are then overwritten. Without it they stay valid for ever, in memory of their batch's own.
	// Either way the keys and values of an uncompressed batch point into the bytes that Decode was given.
	Reuse bool
	// SumChecked says that what Decode is given is known to be sound, as by Sums: Decode then does not look at the checksum.
	SumChecked bool

	inflater inflater
	headers  headerMemory
	filtered []Record // Filter's
	kept     []byte   // likewise
}

// Decode checks one whole batch, its checksum included, and appends its records to dst. Offsets are base plus
// the batch's own base offset plus the record's delta: base is the extent's base offset for batches of an
// intake segment, whose own are relative, and 0 for those of an archive segment. On error dst comes back as
// it was and the error is a FormatError.
func (d *Decoder) Decode(batch []byte, base int64, dst []Record) ([]Record, error) {
	h, body, err := d.open(batch, base)
	if err != nil {
		return dst, err
	}
	return d.records(&h, body, base, dst)
}

// open checks one whole batch, but for its records, and returns those as they are encoded.
func (d *Decoder) open(batch []byte, base int64) (h BatchHeader, body []byte, err error) {
	limits := d.Limits.orDefaults()
	if h, err = ParseBatchHeader(batch); err == nil {
		err = checkBatch(&h, batch, base, &limits)
	}
	if err == nil && !d.SumChecked {
		err = checkSum(&h, batch)
	}
	if err != nil {
		return h, nil, err
	}
	body = batch[recordsAt:]
	if codec := h.Codec(); codec != None {
		if body, err = d.inflater.inflate(codec, body, limits.RecordBytes, d.Reuse); err != nil {
			return h, nil, err
		}
	}
	if int64(h.Count)*minRecordSize > int64(len(body)) {
		return h, nil, malformed(ErrCorrupt, "batch", "record count", countAt, "%d records in %d bytes, each takes at least %d", h.Count, len(body), minRecordSize)
	}
	return h, body, nil
}

// records appends the records of a batch that was opened.
func (d *Decoder) records(h *BatchHeader, body []byte, base int64, dst []Record) ([]Record, error) {
	d.headers.reset(d.Limits.orDefaults().Headers, d.Reuse)
	first := len(dst)
	dst = slices.Grow(dst, int(h.Count))[:first+int(h.Count)]
	if err := d.readRecords(h, body, base+h.BaseOffset, dst[first:]); err != nil {
		return dst[:first], err
	}
	return dst, nil
}

// CheckSum is nil for a whole batch that has the checksum that it says, else a *FormatError.
func CheckSum(batch []byte) error {
	h, err := ParseBatchHeader(batch)
	if err == nil && h.Length != len(batch) {
		err = malformed(ErrCorrupt, "batch", "length", lengthAt, "batch of %d bytes in %d", h.Length, len(batch))
	}
	if err == nil {
		err = checkSum(&h, batch)
	}
	return err
}

func checkSum(h *BatchHeader, batch []byte) error {
	if got := crc32.Checksum(batch[attributesAt:], castagnoli); got != h.CRC {
		return malformed(ErrCorrupt, "batch", "checksum", crcAt, "%08x, the bytes have %08x", h.CRC, got)
	}
	return nil
}

// checkBatch is everything that can be known before the records are touched, but for the checksum.
func checkBatch(h *BatchHeader, batch []byte, base int64, limits *Limits) error {
	switch {
	case h.Length != len(batch):
		return malformed(ErrCorrupt, "batch", "length", lengthAt, "batch of %d bytes in %d", h.Length, len(batch))
	case h.Transactional() || h.Control():
		return errTransactional(h)
	case int(h.Count) > limits.Records:
		return malformed(ErrTooLarge, "batch", "record count", countAt, "%d, limit %d", h.Count, limits.Records)
	case h.Codec() == None && len(batch)-recordsAt > limits.RecordBytes:
		return malformed(ErrTooLarge, "batch", "records", recordsAt, "%d bytes, limit %d", len(batch)-recordsAt, limits.RecordBytes)
	case base < 0 || base > maxOffset-h.BaseOffset-int64(h.LastOffsetDelta):
		return malformed(ErrCorrupt, "batch", "base offset", 0, "%d from %d on, with last delta %d, is outside [0, %d]", h.BaseOffset, base, h.LastOffsetDelta, int64(maxOffset))
	}
	return nil
}

// readRecords fills records from body, which must hold exactly them. base is the offset of delta 0.
func (d *Decoder) readRecords(h *BatchHeader, body []byte, base int64, records []Record) error {
	r := reader{b: body, part: "record"}
	last := int64(h.LastOffsetDelta)
	next := int64(0) // least offset delta of the next record
	for i := 0; i < len(records); i++ {
		run := records[i:min(int64(len(records)), int64(i)+last-next+1)]
		n, rest := readPlain(body[r.at:], run, h.BaseTimestamp, base, next)
		r.at = len(body) - len(rest)
		next += int64(n)
		if i += n; i == len(records) {
			break
		}
		r.record = i
		d.readRecord(&r, &records[i], h.BaseTimestamp, next, last)
		if r.err != nil {
			return r.err
		}
		next = records[i].Offset + 1
		records[i].Offset += base
	}
	if r.left() > 0 {
		return malformed(ErrCorrupt, "batch", "record count", countAt, "%d, but %d bytes follow the last record", h.Count, r.left())
	}
	if h.TimeType() == LogAppendTime {
		for i := range records {
			records[i].Timestamp = h.MaxTimestamp
		}
	}
	return nil
}

// readRecord reads the record that comes next; its Offset is the delta, which is in [low, high].
func (d *Decoder) readRecord(r *reader, rec *Record, baseTime, low, high int64) {
	size := int(r.signed("length", minRecordSize-1, math.MaxInt32))
	if size > r.left() {
		r.fail(ErrCorrupt, "length", "%d, %d bytes are left", size, r.left())
	}
	if r.err != nil {
		return
	}
	whole := r.b
	end := r.at + size
	r.b = r.b[:end]
	if attributes := r.bytes("attributes", 1); r.err == nil && attributes[0] != 0 {
		r.fail(ErrVersion, "attributes", "%#02x, none are known", attributes[0])
	}
	rec.Timestamp = baseTime + r.signed("timestamp delta", math.MinInt64, math.MaxInt64)
	rec.Offset = r.signed("offset delta", low, high)
	rec.Key = r.nullable("key length")
	rec.Value = r.nullable("value length")
	rec.Headers = d.headers.read(r)
	if r.err == nil && r.at != end {
		r.fail(ErrCorrupt, "length", "%d, but %d bytes are left after the last field", size, r.left())
	}
	r.b = whole
}
