package segment

import (
	"encoding/binary"
	"hash/crc32"
	"math"
)

// A record batch is Kafka's RecordBatch, magic 2, big-endian:
//
//	 0 base offset 8 · 8 length of what follows 4 · 12 leader epoch 4 · 16 magic 1 · 17 CRC-32C of byte 21 on 4
//	21 attributes 2 · 23 last offset delta 4 · 27 base timestamp 8 · 35 max timestamp 8
//	43 producer id 8 · 51 producer epoch 2 · 53 base sequence 4 · 57 record count 4 · 61 records
const (
	lengthAt      = 8
	leaderEpochAt = 12
	magicAt       = 16
	crcAt         = 17
	attributesAt  = 21
	lastDeltaAt   = 23
	baseTimeAt    = 27
	maxTimeAt     = 35
	producerIDAt  = 43
	epochAt       = 51
	sequenceAt    = 53
	countAt       = 57
	recordsAt     = 61

	batchMagic = 2
)

// Bits of the attributes.
const (
	codecMask         = 0x07
	logAppendTimeBit  = 1 << 3
	transactionalBit  = 1 << 4
	controlBit        = 1 << 5
	deleteHorizonBit  = 1 << 6
	knownAttributes   = codecMask | logAppendTimeBit | transactionalBit | controlBit | deleteHorizonBit
	minRecordSize     = 7                 // length, attributes, two deltas, two null lengths, header count: one byte each
	maxOffset         = math.MaxInt64 - 1 // so that the offset after it is a number too
	lengthFieldsBytes = leaderEpochAt     // what stands before the bytes that the length counts
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// BatchHeader is what a batch says about itself, with every field as it came.
type BatchHeader struct {
	BaseOffset      int64
	Length          int // whole batch, bytes
	LeaderEpoch     int32
	CRC             uint32
	Attributes      uint16
	LastOffsetDelta int32
	BaseTimestamp   int64
	MaxTimestamp    int64
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	Count           int32
}

// Codec is the codec of the records.
func (h *BatchHeader) Codec() Codec { return Codec(h.Attributes & codecMask) }

// TimeType says whether MaxTimestamp stands for every record.
func (h *BatchHeader) TimeType() TimeType {
	return TimeType(h.Attributes & logAppendTimeBit / logAppendTimeBit)
}

// Transactional tells whether the batch is part of a Kafka transaction, Control whether it is a marker.
func (h *BatchHeader) Transactional() bool { return h.Attributes&transactionalBit != 0 }
func (h *BatchHeader) Control() bool       { return h.Attributes&controlBit != 0 }

// ParseBatchHeader reads the header of the batch at the start of b, which may be longer or end within the
// records. It checks each field by itself; the checksum, which needs all of the batch, is Decode's.
func ParseBatchHeader(b []byte) (BatchHeader, error) {
	if len(b) < recordsAt {
		return BatchHeader{}, malformed(ErrCorrupt, "batch", "header", 0, "%d bytes, a header has %d", len(b), recordsAt)
	}
	h := BatchHeader{
		BaseOffset:      int64(binary.BigEndian.Uint64(b)),
		Length:          int(int32(binary.BigEndian.Uint32(b[lengthAt:]))) + lengthFieldsBytes,
		LeaderEpoch:     int32(binary.BigEndian.Uint32(b[leaderEpochAt:])),
		CRC:             binary.BigEndian.Uint32(b[crcAt:]),
		Attributes:      binary.BigEndian.Uint16(b[attributesAt:]),
		LastOffsetDelta: int32(binary.BigEndian.Uint32(b[lastDeltaAt:])),
		BaseTimestamp:   int64(binary.BigEndian.Uint64(b[baseTimeAt:])),
		MaxTimestamp:    int64(binary.BigEndian.Uint64(b[maxTimeAt:])),
		ProducerID:      int64(binary.BigEndian.Uint64(b[producerIDAt:])),
		ProducerEpoch:   int16(binary.BigEndian.Uint16(b[epochAt:])),
		BaseSequence:    int32(binary.BigEndian.Uint32(b[sequenceAt:])),
		Count:           int32(binary.BigEndian.Uint32(b[countAt:])),
	}
	return h, h.check(b[magicAt])
}

func (h *BatchHeader) check(magic byte) error {
	switch {
	case magic != batchMagic:
		return malformed(ErrVersion, "batch", "magic", magicAt, "%d, known is %d", magic, batchMagic)
	case h.Attributes&^knownAttributes != 0:
		return malformed(ErrVersion, "batch", "attributes", attributesAt, "%#04x has unknown bits, known are %#04x", h.Attributes, knownAttributes)
	case h.Codec() >= codecs:
		return malformed(ErrVersion, "batch", "attributes", attributesAt, "codec %d, known are 0 to %d", h.Codec(), codecs-1)
	case h.Length < recordsAt:
		return malformed(ErrCorrupt, "batch", "length", lengthAt, "%d, at least %d", h.Length-lengthFieldsBytes, recordsAt-lengthFieldsBytes)
	case h.BaseOffset < 0:
		return malformed(ErrCorrupt, "batch", "base offset", 0, "%d, at least 0", h.BaseOffset)
	case h.Count < 0:
		return malformed(ErrCorrupt, "batch", "record count", countAt, "%d, at least 0", h.Count)
	case h.LastOffsetDelta < max(h.Count-1, 0):
		return malformed(ErrCorrupt, "batch", "last offset delta", lastDeltaAt, "%d, at least %d with %d records", h.LastOffsetDelta, max(h.Count-1, 0), h.Count)
	case h.BaseOffset > maxOffset-int64(h.LastOffsetDelta):
		return malformed(ErrCorrupt, "batch", "base offset", 0, "%d plus %d is above %d", h.BaseOffset, h.LastOffsetDelta, int64(maxOffset))
	}
	return nil
}

// SplitBatch cuts the first batch off b, which is one or more whole batches. It reads the length only; the
// pieces alias b.
func SplitBatch(b []byte) (batch, rest []byte, err error) {
	if len(b) < recordsAt {
		return nil, nil, malformed(ErrCorrupt, "batch", "header", 0, "%d bytes left, a header has %d", len(b), recordsAt)
	}
	n := int64(int32(binary.BigEndian.Uint32(b[lengthAt:]))) + lengthFieldsBytes
	if n < recordsAt || n > int64(len(b)) {
		return nil, nil, malformed(ErrCorrupt, "batch", "length", lengthAt, "batch of %d bytes, %d to %d are possible", n, recordsAt, len(b))
	}
	return b[:n:n], b[n:], nil
}

// SetBaseOffset changes the base offset of a whole batch in place. The checksum does not cover it.
func SetBaseOffset(batch []byte, base int64) {
	binary.BigEndian.PutUint64(batch, uint64(base))
}

func errTransactional(h *BatchHeader) error {
	return malformed(ErrTransactional, "batch", "attributes", attributesAt, "%#04x, varve keeps neither transactions nor their markers", h.Attributes)
}
