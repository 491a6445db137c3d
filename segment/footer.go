package segment

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
)

// The footer, numbers as varints (signed where a time stands alone):
//
//	copy of the segment header 16 · log id 16 · topics: count, 12 bytes each
//	lanes: count, then each: id length, id · [archive: first order, orders] · extents: count, then each:
//	  slot · topic's index · partition · flags · length · records · smallest time (signed) · largest - smallest
//	  [archive: base offset, end - base] · [flag 1: producer id, sequence]
//
// and the trailer, fixed: footer length 4 · CRC-32C of the footer 4 · magic 4. An extent's offset is not
// stored: extents lie one after another from the segment header to the footer, so they cannot overlap,
// leave a gap or reach outside, and their lengths must add up.
const (
	// MaxExtents, MaxFooterBytes (trailer included) and MaxLaneBytes bound a footer.
	MaxExtents     = 1 << 16
	MaxFooterBytes = 8 << 20
	MaxLaneBytes   = 64

	footerMagic    = "GESV"
	trailerSize    = 12
	logIDSize      = 16
	topicIDSize    = 12
	minFooterSize  = headerSize + logIDSize + 2 // without topics and lanes
	minLaneBytes   = 3 + minExtentBytes
	minExtentBytes = 8

	extentHasProducer = 1 << 0
)

// Footer is what a segment says about itself.
type Footer struct {
	Kind    Kind
	Log     LogID
	Extents []Extent     // in the order of their bytes
	Orders  []LaneOrders // of an archive segment: at most one for each lane
}

// append writes footer and trailer behind the batches.
func (f *Footer) append(dst []byte) []byte {
	start := len(dst)
	dst = appendHeader(dst, f.Kind)
	dst = append(dst, f.Log[:]...)

	var ids []byte
	topics := make(map[TopicID]int) // topic to its index
	lanes := 0
	for i, e := range f.Extents {
		if _, ok := topics[e.Topic]; !ok {
			topics[e.Topic] = len(topics)
			ids = append(ids, e.Topic...)
		}
		if i == 0 || e.Lane != f.Extents[i-1].Lane {
			lanes++
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(topics)))
	dst = append(dst, ids...)
	dst = binary.AppendUvarint(dst, uint64(lanes))
	for rest := f.Extents; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Lane == rest[0].Lane {
			n++
		}
		dst = f.appendLane(dst, rest[:n], topics)
		rest = rest[n:]
	}

	sum := crc32.Checksum(dst[start:], castagnoli)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(dst)-start))
	dst = binary.BigEndian.AppendUint32(dst, sum)
	return append(dst, footerMagic...)
}

func (f *Footer) appendLane(dst []byte, extents []Extent, topics map[TopicID]int) []byte {
	lane := extents[0].Lane
	dst = binary.AppendUvarint(dst, uint64(len(lane)))
	dst = append(dst, lane...)
	if f.Kind == Archive {
		var o LaneOrders
		if i := slices.IndexFunc(f.Orders, func(o LaneOrders) bool { return o.Lane == lane }); i >= 0 {
			o = f.Orders[i]
		}
		dst = binary.AppendUvarint(dst, uint64(o.First))
		dst = binary.AppendUvarint(dst, uint64(o.End-o.First))
	}
	dst = binary.AppendUvarint(dst, uint64(len(extents)))
	for i := range extents {
		dst = f.appendExtent(dst, &extents[i], topics[extents[i].Topic])
	}
	return dst
}

func (f *Footer) appendExtent(dst []byte, e *Extent, topic int) []byte {
	var flags uint64
	if e.ProducerID != 0 {
		flags |= extentHasProducer
	}
	for _, v := range [...]uint64{uint64(e.Slot), uint64(topic), uint64(e.Partition), flags, uint64(e.Length), uint64(e.Count)} {
		dst = binary.AppendUvarint(dst, v)
	}
	dst = binary.AppendVarint(dst, e.MinTime)
	dst = binary.AppendUvarint(dst, uint64(e.MaxTime)-uint64(e.MinTime))
	if f.Kind == Archive {
		dst = binary.AppendUvarint(dst, uint64(e.BaseOffset))
		dst = binary.AppendUvarint(dst, uint64(e.EndOffset-e.BaseOffset))
	}
	if e.ProducerID != 0 {
		dst = binary.AppendUvarint(dst, uint64(e.ProducerID))
		dst = binary.AppendUvarint(dst, uint64(e.Sequence))
	}
	return dst
}

// FooterSize reads the trailer at the end of tail, the last bytes of an object of the given size (12 are
// enough), and returns how many of the object's last bytes ParseFooter needs.
func FooterSize(tail []byte, size int64) (int64, error) {
	if size < headerSize+minFooterSize+trailerSize || len(tail) < trailerSize {
		return 0, malformed(ErrCorrupt, "segment", "trailer", 0, "%d of %d bytes given, a segment has at least %d", len(tail), size, headerSize+minFooterSize+trailerSize)
	}
	trailer := tail[len(tail)-trailerSize:]
	at := size - trailerSize
	if string(trailer[8:]) != footerMagic {
		return 0, malformed(ErrCorrupt, "trailer", "magic", at+8, "%q, not the end of a segment, which is %q", trailer[8:], footerMagic)
	}
	length := int64(binary.BigEndian.Uint32(trailer))
	switch {
	case length+trailerSize > MaxFooterBytes:
		return 0, malformed(ErrTooLarge, "trailer", "footer length", at, "%d, limit %d", length, MaxFooterBytes-trailerSize)
	case length < minFooterSize || length > at-headerSize:
		return 0, malformed(ErrCorrupt, "trailer", "footer length", at, "%d, %d to %d are possible", length, minFooterSize, at-headerSize)
	}
	return length + trailerSize, nil
}

// ParseFooter reads the footer from the last bytes of an object of the given size; FooterSize says how many
// it takes, and fewer are ErrShortTail.
func ParseFooter(tail []byte, size int64) (Footer, error) {
	n, err := FooterSize(tail, size)
	if err != nil {
		return Footer{}, err
	}
	if int64(len(tail)) < n {
		return Footer{}, malformed(ErrShortTail, "footer", "length", size-n, "%d bytes given, it takes %d", len(tail), n)
	}
	tail = tail[int64(len(tail))-n:]
	body, trailer := tail[:n-trailerSize], tail[n-trailerSize:]
	if want, got := binary.BigEndian.Uint32(trailer[4:]), crc32.Checksum(body, castagnoli); want != got {
		return Footer{}, malformed(ErrCorrupt, "trailer", "checksum", size-8, "%08x, the footer has %08x", want, got)
	}
	return parseFooterBody(body, size-n)
}

// parseFooterBody reads a footer whose checksum is right and whose first byte is at the given position.
func parseFooterBody(body []byte, start int64) (Footer, error) {
	kind, optional, err := parseHeader(body, "footer", start)
	if err != nil {
		return Footer{}, err
	}
	r := footerReader{
		reader: reader{b: body, at: headerSize + logIDSize, part: "footer", origin: start, record: -1},
		start:  start, end: headerSize, lanes: make(map[string]bool),
	}
	r.footer = Footer{Kind: kind, Log: LogID(body[headerSize:])}
	r.readTopics()
	lanes := r.count("lane count", minLaneBytes)
	for i := 0; i < lanes && r.err == nil; i++ {
		r.readLane()
	}
	if r.end != start {
		r.fail(ErrCorrupt, "extent length", "extents end at byte %d, the footer starts at %d", r.end, start)
	}
	if r.left() > 0 && optional == 0 {
		r.fail(ErrCorrupt, "length", "%d bytes after the last lane", r.left())
	}
	if r.err != nil {
		return Footer{}, r.err
	}
	return r.footer, nil
}

// footerReader reads a footer field by field.
type footerReader struct {
	reader
	start  int64 // of the footer in the object
	end    int64 // of the extents read so far, in the object
	topics []TopicID
	lanes  map[string]bool // read so far
	footer Footer
}

// count reads how many things of at least size bytes follow; there is always one.
func (r *footerReader) count(field string, size int) int {
	n := int(r.unsigned(field, uint64(r.left()/size)))
	if n == 0 {
		r.fail(ErrCorrupt, field, "0, at least 1")
	}
	return n
}

func (r *footerReader) readTopics() {
	r.topics = make([]TopicID, r.count("topic count", topicIDSize))
	for i := range r.topics {
		r.topics[i] = TopicID(r.bytes("topic id", topicIDSize))
	}
}

func (r *footerReader) readLane() {
	lane := string(r.bytes("lane id", int(r.unsigned("lane id length", MaxLaneBytes))))
	if r.footer.Kind == Archive {
		o := LaneOrders{Lane: lane, First: int64(r.unsigned("first order", math.MaxInt64))}
		if n := r.unsigned("orders", uint64(math.MaxInt64-o.First)); n > 0 {
			o.End = o.First + int64(n)
			r.footer.Orders = append(r.footer.Orders, o)
		}
	}
	n := r.count("extent count", minExtentBytes)
	if len(r.footer.Extents)+n > MaxExtents {
		r.fail(ErrTooLarge, "extent count", "%d in all, limit %d", len(r.footer.Extents)+n, MaxExtents)
	}
	first := len(r.footer.Extents)
	if r.lanes[lane] {
		r.fail(ErrCorrupt, "lane id", "%q comes twice", lane)
	}
	r.lanes[lane] = true
	for i := 0; i < n && r.err == nil; i++ {
		r.readExtent(lane, first)
	}
}

// readExtent reads the next extent of a lane, whose first is number first.
func (r *footerReader) readExtent(lane string, first int) {
	e := Extent{Offset: r.end}
	e.Lane = lane
	e.Slot = uint8(r.unsigned("slot", SlotsPerLane-1))
	topic := r.unsigned("topic index", uint64(len(r.topics)-1))
	e.Partition = int32(r.unsigned("partition", math.MaxInt32))
	flags := r.unsigned("extent flags", math.MaxUint64)
	if flags&^extentHasProducer != 0 {
		r.fail(ErrVersion, "extent flags", "%#x has unknown bits, known are %#x", flags, extentHasProducer)
	}
	e.Length = int64(r.unsigned("extent length", uint64(r.start-r.end)))
	e.Count = int64(r.unsigned("record count", maxExtentCount))
	if e.Length < recordsAt || e.Count < 1 {
		r.fail(ErrCorrupt, "extent length", "%d bytes with %d records, at least %d with 1", e.Length, e.Count, recordsAt)
	}
	e.MinTime = r.signed("smallest time", math.MinInt64, math.MaxInt64)
	e.MaxTime = e.MinTime + int64(r.unsigned("largest time", math.MaxInt64-uint64(e.MinTime)))
	if r.footer.Kind == Archive {
		e.BaseOffset = int64(r.unsigned("base offset", math.MaxInt64))
		e.EndOffset = e.BaseOffset + int64(r.unsigned("end offset", uint64(math.MaxInt64-e.BaseOffset)))
	}
	if flags&extentHasProducer != 0 {
		e.ProducerID = int64(r.unsigned("producer id", math.MaxInt64))
		e.Sequence = int64(r.unsigned("sequence", math.MaxInt64))
		if e.ProducerID == 0 {
			r.fail(ErrCorrupt, "producer id", "0, at least 1")
		}
	}
	if r.err != nil {
		return
	}
	e.Topic = r.topics[topic]
	err := e.validate(r.footer.Kind)
	if n := len(r.footer.Extents); err == nil && n > first {
		err = e.follows(&r.footer.Extents[n-1].ExtentMeta)
	}
	if err != nil {
		r.fail(ErrCorrupt, "extent", "%v", err)
		return
	}
	r.end += e.Length
	r.footer.Extents = append(r.footer.Extents, e)
}
