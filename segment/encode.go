package segment

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
)

// What the encoding of a record and of a header takes at most besides their payload: numbers, and the
// attributes.
const (
	maxRecordFraming = 1 + 6*maxVarint
	maxHeaderFraming = 2 * maxVarint
)

// A plain record has no headers, a value, and as many bytes of key and value together as make its length a number of two bytes. None of its
// other numbers takes more, but for the offset delta.
const (
	minPlain        = 1<<6 - 6       // attributes, two deltas, two lengths and header count take 6 bytes at least
	maxPlain        = 1<<13 - 1 - 11 // and 11 at most
	maxPlainDelta   = 1<<14 - 1      // of time, zigzag coded
	maxPlainFraming = 2 + 11
)

// BatchBuilder encodes records into one batch. The zero value is an open, empty batch; Reset makes it that
// again and keeps its memory, so that once grown neither Append nor Finish allocates. Not for concurrent use.
type BatchBuilder struct {
	buf      []byte // room for the header, and encoded records, uncompressed; nothing before the first
	count    int
	headers  int
	baseTime int64 // timestamp of the first record
	minTime  int64
	maxTime  int64
}

// BatchOptions say what Finish writes into the header. Start from DefaultBatchOptions: unused ids are -1, not 0.
type BatchOptions struct {
	Codec         Codec // of the records; None is written where compressing would not make them smaller
	Level         int   // of the codec: 0 its default, else gzip 1-9, lz4 1-9, zstd 1-22
	TimeType      TimeType
	AppendTime    int64 // ms since 1970; stands for every record if TimeType is LogAppendTime, else unused
	BaseOffset    int64 // 0 in intake segments, absolute in archive segments
	LeaderEpoch   int32
	ProducerID    int64
	ProducerEpoch int16
	BaseSequence  int32
}

// DefaultBatchOptions are no compression, the records' own timestamps, base offset 0 and no ids.
func DefaultBatchOptions() BatchOptions {
	return BatchOptions{LeaderEpoch: -1, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}
}

// BatchInfo describes a finished batch. The times are those a reader sees, in ms since 1970.
type BatchInfo struct {
	Count   int
	Length  int // bytes
	MinTime int64
	MaxTime int64
}

// Reset empties the batch and keeps its memory.
func (b *BatchBuilder) Reset() { *b = BatchBuilder{buf: b.buf[:0]} }

// Count is the number of records appended since Reset.
func (b *BatchBuilder) Count() int { return b.count }

// Size is the length of the batch in bytes if it were finished now, uncompressed.
func (b *BatchBuilder) Size() int { return max(recordsAt, len(b.buf)) }

// records is what is encoded.
func (b *BatchBuilder) records() []byte { return b.buf[recordsAt:] }

// Append encodes the record at the end of the open batch. It keeps nothing of r; r.Offset is not used. A
// record that DefaultLimits leave no room for is ErrFull where an empty batch would take it and ErrTooLarge
// where none would; the batch is then as before.
func (b *BatchBuilder) Append(r *Record) error {
	key, value, at := r.Key, r.Value, len(b.buf)
	size, elapsed := len(key)+len(value), zigzag(r.Timestamp-b.baseTime)
	if size < minPlain || size > maxPlain || cap(b.buf)-at < size+maxPlainFraming || at > defaultRecordBytes-maxPlain-maxPlainFraming ||
		b.count == 0 || b.count >= defaultRecords || len(r.Headers) != 0 || value == nil || elapsed > maxPlainDelta {
		return b.appendAny(r)
	}
	// As nearly all are: a plain record that there is room for. Its numbers, and a short key, lie within head. Masks of indices change none, and say so to
	// the compiler, which would look whether each is within.
	p := b.buf[at:cap(b.buf)]
	head := (*[minPlain + maxPlainFraming]byte)(p)
	head[2] = 0 // attributes: none are defined
	end := 4
	if elapsed < 1<<7 {
		head[3] = byte(elapsed)
	} else {
		head[3], head[4] = byte(elapsed)|0x80, byte(elapsed>>7)
		end = 5
	}
	delta := uint(b.count) << 1
	if delta < 1<<7 {
		head[end] = byte(delta)
		end++
	} else if delta < 1<<14 {
		head[end], head[end+1] = byte(delta)|0x80, byte(delta>>7)
		end += 2
	} else {
		head[end], head[end+1], head[end+2] = byte(delta)|0x80, byte(delta>>7)|0x80, byte(delta>>14)
		end += 3
	}
	if k := len(key); k >= 8 && k <= 16 { // most keys: without a call
		first, last := binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[k-8:])
		head[end&15] = byte(k) << 1
		binary.LittleEndian.PutUint64(head[end&15+1:], first)
		end += k + 1
		binary.LittleEndian.PutUint64(head[(end-8)&31:], last)
		end = putShort(head[:], end&31, uint64(len(value))<<1)
	} else {
		if key == nil {
			head[end&15] = 1 // -1
			end++
		} else {
			end = putShort(p, end, uint64(k)<<1)
			end += copy(p[end:], key)
		}
		end = putShort(p, end, uint64(len(value))<<1)
	}
	stop := end + len(value)
	length := stop - 1 // without itself, and with the number of headers
	head[0], head[1], p[stop] = byte(length)<<1|0x80, byte(length>>6), 0
	b.buf = b.buf[:at+stop+1] // its length alone is stored
	b.count++
	if r.Timestamp > b.maxTime {
		b.maxTime = r.Timestamp
	} else if r.Timestamp < b.minTime {
		b.minTime = r.Timestamp
	}
	_ = append(p[:end], value...) // in place, and last, so that nothing has to be kept over the call
	return nil
}

// appendAny is Append for every record, and makes the room.
func (b *BatchBuilder) appendAny(r *Record) error {
	size := RecordSize(r)
	at, room := b.Size(), size+maxRecordFraming+len(r.Headers)*maxHeaderFraming
	if at-recordsAt+room > defaultRecordBytes || b.count >= defaultRecords || b.headers+len(r.Headers) > defaultHeaders {
		return b.refuse(r, room)
	}
	if cap(b.buf)-at < room {
		b.buf = slices.Grow(b.buf, recordsAt+max(room, at)) // twice as large: append's own quarter would copy a batch five times
	}
	if b.count == 0 {
		b.baseTime, b.minTime, b.maxTime = r.Timestamp, r.Timestamp, r.Timestamp
	}
	p := b.buf[:cap(b.buf)]
	// The length comes first and is known last. How many bytes it takes is guessed from the payload, and where
	// the guess is wrong the rest is moved.
	start := at + uvarintLen(uint64(size+minRecordSize)<<1)
	p[start] = 0 // attributes: none are defined
	end := putUvarint(p, start+1, zigzag(r.Timestamp-b.baseTime))
	end = putUvarint(p, end, uint64(b.count)<<1)
	if r.Key != nil && r.Value != nil { // apart, as it costs nothing inline
		end = putUvarint(p, end, uint64(len(r.Key))<<1)
		end += copy(p[end:], r.Key)
		end = putUvarint(p, end, uint64(len(r.Value))<<1)
		end += copy(p[end:], r.Value)
	} else {
		end = putNullable(p, end, r.Key)
		end = putNullable(p, end, r.Value)
	}
	if len(r.Headers) == 0 { // likewise
		p[end] = 0
		end++
	} else {
		end = putHeaders(p, end, r.Headers)
		b.headers += len(r.Headers)
	}
	length := uint64(end-start) << 1
	if n := uvarintLen(length); at+n != start {
		copy(p[at+n:], p[start:end])
		end += at + n - start
	}
	putUvarint(p, at, length)
	b.buf = b.buf[:end]
	b.count++
	b.minTime, b.maxTime = min(b.minTime, r.Timestamp), max(b.maxTime, r.Timestamp)
	return nil
}

func (b *BatchBuilder) refuse(r *Record, room int) error {
	if room > defaultRecordBytes || len(r.Headers) > defaultHeaders {
		return fmt.Errorf("%w: record of up to %d bytes with %d headers, a batch holds %d and %d", ErrTooLarge, room, len(r.Headers), defaultRecordBytes, defaultHeaders)
	}
	return fmt.Errorf("%w: %d bytes, %d records, %d headers", ErrFull, b.Size(), b.count, b.headers)
}

// Lengths, counts and the offset delta are never negative, so their zigzag code is twice the number.

func putNullable(p []byte, at int, s []byte) int {
	if s == nil {
		p[at] = 1 // -1
		return at + 1
	}
	at = putUvarint(p, at, uint64(len(s))<<1)
	return at + copy(p[at:], s)
}

func putHeaders(p []byte, at int, headers []Header) int {
	at = putUvarint(p, at, uint64(len(headers))<<1)
	for i := range headers {
		at = putUvarint(p, at, uint64(len(headers[i].Key))<<1)
		at += copy(p[at:], headers[i].Key)
		at = putNullable(p, at, headers[i].Value)
	}
	return at
}

// Finish appends the finished batch to dst. The builder keeps its records until Reset. A batch without
// records is ErrEmpty, an unknown codec or level ErrBadCodec.
func (b *BatchBuilder) Finish(dst []byte, o BatchOptions) ([]byte, BatchInfo, error) {
	if err := b.finishable(&o); err != nil {
		return dst, BatchInfo{}, err
	}
	start := len(dst)
	records := start + recordsAt
	dst = slices.Grow(dst, len(b.buf))[:records]
	if o.Codec != None {
		dst = compress(dst, b.records(), o.Codec, o.Level)
		if len(dst)-start >= len(b.buf) {
			dst, o.Codec = dst[:records], None
		}
	}
	length := len(dst) - start
	if o.Codec == None {
		length = len(b.buf)
	}
	info := b.putHeader(dst[start:], &o, length)
	sum := crc32.Checksum(dst[start+attributesAt:], castagnoli)
	if o.Codec == None {
		dst, sum = appendSummed(dst, b.records(), sum)
	}
	binary.BigEndian.PutUint32(dst[start+crcAt:], sum)
	return dst, info, nil
}

// Seal finishes the batch in the builder's own memory, uncompressed whatever o says: it is overwritten by what comes after Reset. Errors are as from Finish.
func (b *BatchBuilder) Seal(o BatchOptions) ([]byte, BatchInfo, error) {
	o.Codec, o.Level = None, 0
	if err := b.finishable(&o); err != nil {
		return nil, BatchInfo{}, err
	}
	info := b.putHeader(b.buf, &o, len(b.buf))
	binary.BigEndian.PutUint32(b.buf[crcAt:], crc32.Checksum(b.buf[attributesAt:], castagnoli))
	return b.buf, info, nil
}

func (b *BatchBuilder) finishable(o *BatchOptions) error {
	if b.count == 0 {
		return ErrEmpty
	}
	return o.Codec.Validate(o.Level)
}

// appendSummed appends src and carries the checksum on over it, in pieces that the cache still holds when they
// are read the second time.
func appendSummed(dst, src []byte, sum uint32) ([]byte, uint32) {
	const piece = 16 << 10
	for len(src) > 0 {
		n := min(len(src), piece)
		sum = crc32.Update(sum, castagnoli, src[:n])
		dst = append(dst, src[:n]...)
		src = src[n:]
	}
	return dst, sum
}

// putHeader fills in all of the header of a batch of that length but its checksum.
func (b *BatchBuilder) putHeader(p []byte, o *BatchOptions, length int) BatchInfo {
	info := BatchInfo{Count: b.count, Length: length, MinTime: b.minTime, MaxTime: b.maxTime}
	if o.TimeType == LogAppendTime {
		info.MinTime, info.MaxTime = o.AppendTime, o.AppendTime
	}
	binary.BigEndian.PutUint64(p, uint64(o.BaseOffset))
	binary.BigEndian.PutUint32(p[lengthAt:], uint32(info.Length-lengthFieldsBytes))
	binary.BigEndian.PutUint32(p[leaderEpochAt:], uint32(o.LeaderEpoch))
	p[magicAt] = batchMagic
	attributes := uint16(o.Codec)
	if o.TimeType == LogAppendTime {
		attributes |= logAppendTimeBit
	}
	binary.BigEndian.PutUint16(p[attributesAt:], attributes)
	binary.BigEndian.PutUint32(p[lastDeltaAt:], uint32(b.count-1))
	binary.BigEndian.PutUint64(p[baseTimeAt:], uint64(b.baseTime))
	binary.BigEndian.PutUint64(p[maxTimeAt:], uint64(info.MaxTime))
	binary.BigEndian.PutUint64(p[producerIDAt:], uint64(o.ProducerID))
	binary.BigEndian.PutUint16(p[epochAt:], uint16(o.ProducerEpoch))
	binary.BigEndian.PutUint32(p[sequenceAt:], uint32(o.BaseSequence))
	binary.BigEndian.PutUint32(p[countAt:], uint32(b.count))
	return info
}
