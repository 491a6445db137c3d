package segment

import (
	"encoding/binary"
	"hash/crc32"
	"math"
)

// Filter returns a batch without the records that keep refuses. What is left has its offsets, timestamps, ids and codec: base offset, base timestamp
// and last offset delta stay, so the batch takes the offsets that it took, and those without a record are gaps. keep is called for every record, in order, and
// must keep nothing of it. info.Count is how many are left: with all of them the result is batch itself, with none it is nil, otherwise it is appended to dst[:0]
// where its capacity allows. base is as in Decode, whose errors these are.
func (d *Decoder) Filter(batch []byte, base int64, dst []byte, keep func(*Record) bool) (out []byte, info BatchInfo, err error) {
	h, body, err := d.open(batch, base)
	if err == nil {
		d.filtered, err = d.records(&h, body, base, d.filtered[:0])
	}
	if err != nil {
		return nil, info, err
	}
	info.MinTime, info.MaxTime = math.MaxInt64, math.MinInt64
	kept := d.kept[:0]
	for i := range d.filtered {
		record := rawRecord(body)
		body = body[len(record):]
		if r := &d.filtered[i]; keep(r) {
			kept = append(kept, record...)
			info.Count++
			info.MinTime, info.MaxTime = min(info.MinTime, r.Timestamp), max(info.MaxTime, r.Timestamp)
		}
	}
	d.kept = kept
	clear(d.filtered)
	switch info.Count {
	case len(d.filtered):
		info.Length = len(batch)
		return batch, info, nil
	case 0:
		return nil, BatchInfo{}, nil
	}
	out = append(dst[:0], batch[:recordsAt]...)
	codec := h.Codec()
	if codec != None {
		if out = compress(out, kept, codec, 0); len(out) >= recordsAt+len(kept) {
			out, codec = out[:recordsAt], None
		}
	}
	if codec == None {
		out = append(out, kept...)
	}
	info.Length = len(out)
	binary.BigEndian.PutUint32(out[lengthAt:], uint32(len(out)-lengthFieldsBytes))
	binary.BigEndian.PutUint16(out[attributesAt:], h.Attributes&^codecMask|uint16(codec))
	binary.BigEndian.PutUint64(out[maxTimeAt:], uint64(info.MaxTime))
	binary.BigEndian.PutUint32(out[countAt:], uint32(info.Count))
	binary.BigEndian.PutUint32(out[crcAt:], crc32.Checksum(out[attributesAt:], castagnoli))
	return out, info, nil
}

// rawRecord is the encoding of the first record of records that were decoded.
func rawRecord(records []byte) []byte {
	length, n := binary.Varint(records)
	return records[:n+int(length)]
}
