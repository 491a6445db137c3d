package segment

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// A segment object:
//
//	header 16 · batches, grouped by lane, then slot · footer · trailer 12
//
// header: magic 4 · version 2 · flags 2 · required features 4 · optional features 4, big-endian. The footer
// begins with a copy of it, so that the end of an object is enough to know all about it, and so that the
// footer's checksum covers it.
const (
	segmentMagic   = "VSEG"
	segmentVersion = 1
	headerSize     = 16

	flagAbsolute  = 1 << 0 // base offsets in the batches are absolute
	knownFlags    = flagAbsolute
	knownRequired = 0 // no feature bit has been given out yet
)

// Kind says what a segment is.
type Kind uint8

const (
	// Intake is what one flush wrote. The base offsets in its batches are relative: they count from the
	// partition's first record in the segment.
	Intake Kind = 0
	// Archive was written by compaction. The base offsets in its batches are absolute.
	Archive Kind = 1
)

// String is the kind as object names spell it.
func (k Kind) String() string {
	if k == Archive {
		return "archive"
	}
	return "intake"
}

func appendHeader(dst []byte, kind Kind) []byte {
	var flags uint16
	if kind == Archive {
		flags |= flagAbsolute
	}
	dst = append(dst, segmentMagic...)
	dst = binary.BigEndian.AppendUint16(dst, segmentVersion)
	dst = binary.BigEndian.AppendUint16(dst, flags)
	dst = binary.BigEndian.AppendUint32(dst, 0)
	return binary.BigEndian.AppendUint32(dst, 0)
}

// parseHeader reads a segment header, of at least headerSize bytes; part and at say where it stands. Any
// optional feature may be set: this build passes over what belongs to it.
func parseHeader(b []byte, part string, at int64) (kind Kind, optional uint32, err error) {
	version, flags := binary.BigEndian.Uint16(b[4:]), binary.BigEndian.Uint16(b[6:])
	required, optional := binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])
	switch {
	case string(b[:4]) != segmentMagic:
		return 0, 0, malformed(ErrCorrupt, part, "magic", at, "%q, not a segment, which starts with %q", b[:4], segmentMagic)
	case version != segmentVersion:
		return 0, 0, malformed(ErrVersion, part, "version", at+4, "%d, known is %d", version, segmentVersion)
	case flags&^knownFlags != 0:
		return 0, 0, malformed(ErrVersion, part, "flags", at+6, "%#04x has unknown bits, known are %#04x", flags, knownFlags)
	case required&^knownRequired != 0:
		return 0, 0, malformed(ErrVersion, part, "required features", at+8, "%#08x has unknown bits, known are %#08x", required, knownRequired)
	}
	return Kind(flags & flagAbsolute), optional, nil
}

// ParseSegment reads the footer of a whole object and checks the header against it. It leaves the batches
// alone; Decoder.Verify reads them too.
func ParseSegment(object []byte) (Footer, error) {
	if len(object) < headerSize {
		return Footer{}, malformed(ErrCorrupt, "segment", "header", 0, "object of %d bytes, a header has %d", len(object), headerSize)
	}
	if _, _, err := parseHeader(object, "segment", 0); err != nil {
		return Footer{}, err
	}
	size := int64(len(object))
	f, err := ParseFooter(object, size)
	if err != nil {
		return Footer{}, err
	}
	n, _ := FooterSize(object, size) // ParseFooter has accepted it
	if copied := object[size-n:][:headerSize]; string(copied) != string(object[:headerSize]) {
		return Footer{}, malformed(ErrCorrupt, "segment", "header", 0, "%x, its copy in the footer is %x", object[:headerSize], copied)
	}
	return f, nil
}

// Builder builds one segment in memory. NewBuilder or Reset starts it. Not for concurrent use.
//
// Extents come lane by lane, lanes in any order but each only once, and by ascending slot within a lane. What
// comes again for the same slot continues its extent, or starts another if it is of another producer's request.
type Builder struct {
	buf     []byte   // all but adopted batches
	pieces  [][]byte // up to the last adopted batch: it and those before it, and what of buf comes before each
	cut     int      // of buf, what is in pieces
	adopted int      // bytes
	taken   int64    // bytes that Take has handed out
	kind    Kind
	log     LogID
	extents []Extent
	orders  []LaneOrders
	next    int64 // of the last extent's slot: base offset of the next batch (intake), least offset of it (archive)
}

// NewBuilder is a builder of an empty segment.
func NewBuilder(kind Kind, log LogID) *Builder {
	b := new(Builder)
	b.Reset(kind, log)
	return b
}

// Reset starts another segment in the memory of the last one, whose bytes are overwritten.
func (b *Builder) Reset(kind Kind, log LogID) {
	clear(b.pieces)
	*b = Builder{buf: appendHeader(b.buf[:0], kind), pieces: b.pieces[:0], kind: kind, log: log, extents: b.extents[:0], orders: b.orders[:0]}
}

// Size is the length of the segment so far in bytes, without its footer.
func (b *Builder) Size() int { return int(b.taken) + b.Held() }

// Held is how much of that is in memory.
func (b *Builder) Held() int { return len(b.buf) + b.adopted }

// Take hands out the bytes so far that it has not handed out before, in one piece, which is the caller's from then on. So a segment is written as a stream of
// parts of which one at a time is in memory: Finish then returns only what comes after the last one.
func (b *Builder) Take() []byte {
	part := b.buf
	if len(b.pieces) > 0 {
		part = slices.Concat(b.tail(b.buf)...)
	}
	b.taken += int64(len(part))
	clear(b.pieces)
	b.buf, b.pieces, b.cut, b.adopted = make([]byte, 0, cap(b.buf)), b.pieces[:0], 0, 0
	return part
}

// AddOpen finishes an open batch straight into the segment. In an intake segment the builder sets its base
// offset, whatever o says. On error the segment is as before.
func (b *Builder) AddOpen(e ExtentMeta, open *BatchBuilder, o BatchOptions) (BatchInfo, error) {
	next, err := b.admit(&e)
	if err != nil {
		return BatchInfo{}, err
	}
	if b.kind == Intake {
		o.BaseOffset = next
	}
	buf, info, err := open.Finish(b.buf, o)
	if err != nil {
		return BatchInfo{}, err
	}
	return info, b.addFinished(e, buf, &info, next, o.BaseOffset)
}

// Adopt finishes an open batch, uncompressed, where it is, and makes it a part of the segment without a copy. Until the segment is done with,
// the open batch is the builder's and must not be reset. Otherwise it is as AddOpen.
func (b *Builder) Adopt(e ExtentMeta, open *BatchBuilder, o BatchOptions) (BatchInfo, error) {
	next, err := b.admit(&e)
	if err != nil {
		return BatchInfo{}, err
	}
	if b.kind == Intake {
		o.BaseOffset = next
	}
	batch, info, err := open.Seal(o)
	if err != nil {
		return BatchInfo{}, err
	}
	if err := b.addFinished(e, b.buf, &info, next, o.BaseOffset); err != nil {
		return BatchInfo{}, err
	}
	b.pieces = append(b.tail(b.buf), batch)
	b.cut, b.adopted = len(b.buf), b.adopted+len(batch)
	return info, nil
}

// tail is the pieces, and what buf has after them.
func (b *Builder) tail(buf []byte) [][]byte {
	if len(buf) == b.cut {
		return b.pieces
	}
	return append(b.pieces, buf[b.cut:len(buf):len(buf)])
}

// addFinished notes that a batch with a base offset was added, in buf unless it was adopted.
func (b *Builder) addFinished(e ExtentMeta, buf []byte, info *BatchInfo, next, base int64) error {
	added := Extent{ExtentMeta: e, Offset: int64(b.Size()), Length: int64(info.Length), Count: int64(info.Count), MinTime: info.MinTime, MaxTime: info.MaxTime}
	next, err := b.after(&added, next, base, int64(info.Count-1))
	if err != nil {
		return err
	}
	return b.extend(buf, &added, next)
}

// Add copies finished batches into the segment; minTime is a lower bound of their records' timestamps, which
// batches do not say themselves (BatchInfo.MinTime, or the extent's that they come from). In an intake
// segment the builder sets the base offsets of the copies. It checks the batches' headers, not their checksums
// and records. On error the segment is as before.
func (b *Builder) Add(e ExtentMeta, minTime int64, batches ...[]byte) error {
	next, err := b.admit(&e)
	if err != nil {
		return err
	}
	buf := b.buf
	added := Extent{ExtentMeta: e, Offset: int64(b.Size()), MinTime: minTime, MaxTime: math.MinInt64}
	for _, batch := range batches {
		h, err := ParseBatchHeader(batch)
		if err == nil {
			err = b.acceptable(&h, len(batch))
		}
		if err != nil {
			return err
		}
		start := len(buf)
		buf = append(buf, batch...)
		if b.kind == Intake {
			h.BaseOffset = next
			SetBaseOffset(buf[start:], next)
		}
		if next, err = b.after(&added, next, h.BaseOffset, int64(h.LastOffsetDelta)); err != nil {
			return err
		}
		added.Length += int64(len(batch))
		added.Count += int64(h.Count)
		added.MaxTime = max(added.MaxTime, h.MaxTimestamp)
	}
	if added.Count == 0 {
		return ErrEmpty
	}
	return b.extend(buf, &added, next)
}

// admit tells whether an extent may come next, and the least base offset of its first batch.
func (b *Builder) admit(e *ExtentMeta) (next int64, err error) {
	if err := e.validate(b.kind); err != nil {
		return 0, err
	}
	if len(b.extents) >= MaxExtents {
		return 0, fmt.Errorf("%w: segment has %d extents, limit %d", ErrTooLarge, len(b.extents), MaxExtents)
	}
	if len(b.extents) == 0 {
		return e.BaseOffset, nil
	}
	last := &b.extents[len(b.extents)-1]
	if last.Lane != e.Lane {
		if slices.ContainsFunc(b.extents, func(x Extent) bool { return x.Lane == e.Lane }) {
			return 0, fmt.Errorf("%w: lane %q again after lane %q", ErrOrder, e.Lane, last.Lane)
		}
		return e.BaseOffset, nil
	}
	if err := e.follows(&last.ExtentMeta); err != nil {
		return 0, err
	}
	// A reader knows a slot's bytes of an intake segment as one range. So base offsets count on across the
	// extents of several producers.
	if last.Slot == e.Slot {
		return max(b.next, e.BaseOffset), nil
	}
	return e.BaseOffset, nil
}

// acceptable tells whether a finished batch may be part of the segment. A commit gives one offset to each
// record, so a batch with gaps has no place in intake.
func (b *Builder) acceptable(h *BatchHeader, length int) error {
	switch {
	case h.Length != length:
		return malformed(ErrCorrupt, "batch", "length", lengthAt, "batch of %d bytes in %d", h.Length, length)
	case h.Transactional() || h.Control():
		return errTransactional(h)
	case b.kind == Intake && h.LastOffsetDelta != h.Count-1:
		return fmt.Errorf("%w: batch of %d records with last offset delta %d, intake needs %d", ErrOrder, h.Count, h.LastOffsetDelta, h.Count-1)
	}
	return nil
}

// after is the least base offset of the batch after one that has offsets [base, base+lastDelta].
func (b *Builder) after(e *Extent, next, base, lastDelta int64) (int64, error) {
	if b.kind == Archive && (base < next || base+lastDelta >= e.EndOffset) {
		return 0, fmt.Errorf("%w: batch with offsets %d to %d, possible are %d to %d", ErrOrder, base, base+lastDelta, next, e.EndOffset-1)
	}
	return base + lastDelta + 1, nil
}

// extend makes the added bytes part of the last extent or a new one.
func (b *Builder) extend(buf []byte, added *Extent, next int64) error {
	n := len(b.extents)
	joins := n > 0 && b.extents[n-1].ExtentMeta == added.ExtentMeta
	if joins {
		last := b.extents[n-1]
		added.Offset = last.Offset
		added.Length += last.Length
		added.Count += last.Count
		added.MinTime, added.MaxTime = min(added.MinTime, last.MinTime), max(added.MaxTime, last.MaxTime)
	}
	if added.Count > maxExtentCount {
		return fmt.Errorf("%w: %d records in an extent, limit %d", ErrTooLarge, added.Count, maxExtentCount)
	}
	if added.MinTime > added.MaxTime {
		return fmt.Errorf("%w: smallest timestamp %d above the largest, %d", ErrOrder, added.MinTime, added.MaxTime)
	}
	if joins {
		b.extents = b.extents[:n-1]
	}
	b.extents = append(b.extents, *added)
	b.buf, b.next = buf, next
	return nil
}

// SetOrders records which commits of a lane an archive segment holds. The lane must have extents.
func (b *Builder) SetOrders(o LaneOrders) error {
	switch {
	case b.kind != Archive:
		return fmt.Errorf("%w: orders of lane %q in an intake segment, which only its commit assigns", ErrOrder, o.Lane)
	case o.First < 0 || o.End <= o.First:
		return fmt.Errorf("%w: orders [%d, %d) of lane %q", ErrOrder, o.First, o.End, o.Lane)
	case !slices.ContainsFunc(b.extents, func(x Extent) bool { return x.Lane == o.Lane }):
		return fmt.Errorf("%w: orders of lane %q, which has no extent", ErrOrder, o.Lane)
	case slices.ContainsFunc(b.orders, func(x LaneOrders) bool { return x.Lane == o.Lane }):
		return fmt.Errorf("%w: orders of lane %q a second time", ErrOrder, o.Lane)
	}
	b.orders = append(b.orders, o)
	return nil
}

// Finish is FinishPieces with the object in one piece.
func (b *Builder) Finish() ([]byte, Footer, error) {
	pieces, f, err := b.FinishPieces()
	if len(pieces) == 1 {
		return pieces[0], f, nil
	}
	return slices.Concat(pieces...), f, err
}

// FinishPieces appends the footer and returns the object, in pieces one after another, and what its footer says. All lies in the builder's memory, and
// in that of batches that it has adopted, until Reset, and nothing more can be added. A segment without extents is ErrEmpty.
func (b *Builder) FinishPieces() ([][]byte, Footer, error) {
	if len(b.extents) == 0 {
		return nil, Footer{}, ErrEmpty
	}
	f := Footer{Kind: b.kind, Log: b.log, Extents: b.extents, Orders: b.orders}
	object := f.append(b.buf)
	if n := len(object) - len(b.buf); n > MaxFooterBytes {
		return nil, Footer{}, fmt.Errorf("%w: footer of %d bytes, limit %d", ErrTooLarge, n, MaxFooterBytes)
	}
	b.buf = object[:len(b.buf)]
	return b.tail(object), f, nil
}
