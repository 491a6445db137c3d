package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const testTopic TopicID = "0123456789av"

func open(t testing.TB, records ...Record) *BatchBuilder {
	t.Helper()
	b := new(BatchBuilder)
	for i := range records {
		if err := b.Append(&records[i]); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func intakeExtent(lane string, slot uint8) ExtentMeta {
	return ExtentMeta{Lane: lane, Slot: slot, Topic: testTopic, Partition: int32(slot)}
}

// sample is a small intake segment: two lanes, three slots, one of them with two batches.
func sample(t testing.TB) ([]byte, Footer) {
	t.Helper()
	b := NewBuilder(Intake, LogID{1, 2, 3})
	add := func(e ExtentMeta, records ...Record) {
		if _, err := b.AddOpen(e, open(t, records...), DefaultBatchOptions()); err != nil {
			t.Fatal(err)
		}
	}
	add(intakeExtent("b", 0), Record{Timestamp: 10, Value: []byte("one")})
	add(intakeExtent("b", 63), Record{Timestamp: 30, Value: []byte("two")}, Record{Timestamp: 20})
	add(intakeExtent("b", 63), Record{Timestamp: 40, Value: []byte("three")})
	add(intakeExtent("a", 5), Record{Timestamp: -1, Key: []byte("four")})
	object, footer, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return object, footer
}

// TestAdoptedBatches: a segment is the same whether its batches were copied into it or adopted, or some of them.
func TestAdoptedBatches(t *testing.T) {
	build := func(adopts func(i int) bool) [][]byte {
		b := NewBuilder(Intake, LogID{1, 2, 3})
		for i, slot := range []uint8{0, 63, 63, 63} {
			add := b.AddOpen
			if adopts(i) {
				add = b.Adopt
			}
			o := DefaultBatchOptions()
			o.AppendTime, o.TimeType = 77, TimeType(i%2)
			info, err := add(intakeExtent("b", slot), open(t, Record{Timestamp: int64(i), Key: []byte{byte(i)}, Value: make([]byte, 1000)}, Record{}), o)
			if err != nil || info.Count != 2 || info.Length < 1000 {
				t.Fatalf("%+v, %v", info, err)
			}
		}
		if _, err := b.Adopt(intakeExtent("b", 1), open(t, Record{}), DefaultBatchOptions()); !errors.Is(err, ErrOrder) {
			t.Fatal(err)
		}
		if _, err := b.Adopt(intakeExtent("c", 1), new(BatchBuilder), DefaultBatchOptions()); !errors.Is(err, ErrEmpty) {
			t.Fatal(err)
		}
		pieces, _, err := b.FinishPieces()
		whole, _, err2 := b.Finish()
		if err != nil || err2 != nil || !bytes.Equal(whole, bytes.Join(pieces, nil)) {
			t.Fatal(err, err2, "or pieces that are not the whole")
		}
		return pieces
	}
	copied := build(func(int) bool { return false })
	if len(copied) != 1 {
		t.Fatalf("%d pieces of copied batches", len(copied))
	}
	var d Decoder
	if _, err := d.Verify(copied[0]); err != nil {
		t.Fatal(err)
	}
	for bits := range 16 {
		if got := build(func(i int) bool { return bits>>i&1 == 1 }); !bytes.Equal(bytes.Join(got, nil), copied[0]) {
			t.Errorf("batches %04b adopted: other bytes", bits)
		}
	}
}

func TestSegmentRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := NewBuilder(Kind(rapid.IntRange(0, 1).Draw(t, "kind")), LogID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "log")))
		want := map[string][]Record{} // by lane and slot
		for lane := range rapid.IntRange(1, 3).Draw(t, "lanes") {
			name := strings.Repeat("l", rapid.SampledFrom([]int{1, 12, MaxLaneBytes - 1}).Draw(t, "lane")) + fmt.Sprint(lane)
			for _, slot := range slices.Sorted(slices.Values(rapid.SliceOfNDistinct(rapid.Uint8Range(0, SlotsPerLane-1), 1, 4, rapid.ID).Draw(t, "slots"))) {
				e := ExtentMeta{Lane: name, Slot: slot, Partition: int32(slot) * 1000}
				e.Topic = TopicID(rapid.SampledFrom([]string{"aaaaaaaaaaaa", "bbbbbbbbbbbb"}).Draw(t, "topic"))
				want[fmt.Sprint(name, slot)] = addExtents(t, b, e)
			}
			if b.kind == Archive && rapid.Bool().Draw(t, "orders") {
				if err := b.SetOrders(LaneOrders{name, 8, 16 + int64(lane)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		object, footer, err := b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		read, err := new(Decoder).Verify(object)
		if err != nil {
			t.Fatal(err)
		}
		if len(footer.Orders) == 0 {
			footer.Orders = nil
		}
		if !reflect.DeepEqual(read, footer) {
			t.Fatalf("footer read: %+v\nwritten: %+v", read, footer)
		}
		if got := readExtents(t, object, read); !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v\nwant %+v", got, want)
		}
	})
}

// addExtents adds some extents of one slot, each of one batch, and returns their records as they should be read.
func addExtents(t *rapid.T, b *Builder, e ExtentMeta) (all []Record) {
	next := int64(0)
	for range rapid.IntRange(1, 3).Draw(t, "extents") {
		e.ProducerID, e.Sequence = 0, 0
		if rapid.Bool().Draw(t, "producer") {
			e.ProducerID, e.Sequence = rapid.Int64Range(1, math.MaxInt64).Draw(t, "producer id"), rapid.Int64Range(0, 9).Draw(t, "sequence")
		}
		records := drawRecords(t, rapid.IntRange(1, 4).Draw(t, "records"))
		if b.kind == Archive {
			next += rapid.Int64Range(0, 1<<44).Draw(t, "gap")
			e.BaseOffset, e.EndOffset = next, next+int64(len(records))+rapid.Int64Range(0, 3).Draw(t, "tail")
		}
		o := DefaultBatchOptions()
		o.Codec, o.BaseOffset = Codec(rapid.IntRange(0, codecs-1).Draw(t, "codec")), next
		var open BatchBuilder
		for i := range records {
			if err := open.Append(&records[i]); err != nil {
				t.Fatal(err)
			}
			records[i].Offset = next + int64(i)
		}
		var err error
		if rapid.Bool().Draw(t, "open") {
			_, err = b.AddOpen(e, &open, o)
		} else if batch, info, finishErr := open.Finish(nil, o); finishErr == nil {
			err = b.Add(e, info.MinTime, batch)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, records...)
		next = max(next+int64(len(records)), e.EndOffset)
	}
	return all
}

// readExtents reads all records by lane and slot.
func readExtents(t *rapid.T, object []byte, footer Footer) map[string][]Record {
	var d Decoder
	got := map[string][]Record{}
	for _, e := range footer.Extents {
		slot := fmt.Sprint(e.Lane, e.Slot)
		before := len(got[slot])
		for rest := object[e.Offset : e.Offset+e.Length]; len(rest) > 0; {
			var batch []byte
			var err error
			if batch, rest, err = SplitBatch(rest); err != nil {
				t.Fatal(err)
			}
			if got[slot], err = d.Decode(batch, 0, got[slot]); err != nil {
				t.Fatal(err)
			}
		}
		if int64(len(got[slot])-before) != e.Count {
			t.Fatalf("extent %+v has %d records", e, len(got[slot])-before)
		}
	}
	return got
}

// TestSegmentBytesRepeat builds the same segment twice: it has no id and no time in it, so it can be put again
// under another id.
func TestSegmentBytesRepeat(t *testing.T) {
	a, _ := sample(t)
	b, _ := sample(t)
	if !bytes.Equal(a, b) {
		t.Fatal("the same records gave different bytes")
	}
}

func TestFooterOfSample(t *testing.T) {
	object, footer := sample(t)
	want := []Extent{
		{intakeExtent("b", 0), 16, 71, 1, 10, 10},
		{intakeExtent("b", 63), 87, 151, 3, 20, 40},
		{intakeExtent("a", 5), 238, 72, 1, -1, -1},
	}
	if !reflect.DeepEqual(footer.Extents, want) {
		t.Fatalf("%+v", footer.Extents)
	}
	// The two batches of slot 63 are one range, and count on within it.
	batch, rest, _ := SplitBatch(object[87 : 87+151])
	if got := decode(t, rest, 1000); got[0].Offset != 1002 {
		t.Fatalf("second batch starts at %d, the first is %d bytes", got[0].Offset, len(batch))
	}
}

func TestFooterInTwoSteps(t *testing.T) {
	object, want := sample(t)
	size := int64(len(object))
	n, err := FooterSize(object[size-12:], size)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseFooter(object[size-n:], size)
	if err != nil || !reflect.DeepEqual(got.Extents, want.Extents) || got.Log != want.Log {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := ParseFooter(object[size-n+1:], size); !errors.Is(err, ErrShortTail) || errors.Is(err, ErrCorrupt) {
		t.Fatalf("one byte too few: %v", err)
	}
}

// TestFlippedFooterBytes flips every bit of header, footer and trailer.
func TestFlippedFooterBytes(t *testing.T) {
	object, _ := sample(t)
	n, _ := FooterSize(object, int64(len(object)))
	for at := range object {
		if at >= headerSize && at < len(object)-int(n) {
			continue
		}
		for bit := range 8 {
			object[at] ^= 1 << bit
			if _, err := ParseSegment(object); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrTooLarge) {
				t.Fatalf("byte %d bit %d: %v", at, bit, err)
			}
			object[at] ^= 1 << bit
		}
	}
	if _, err := ParseSegment(object); err != nil {
		t.Fatalf("unharmed: %v", err)
	}
}

// TestTruncatedObject cuts the object at every length.
func TestTruncatedObject(t *testing.T) {
	object, _ := sample(t)
	for n := range object {
		if _, err := ParseSegment(object[:n]); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrTooLarge) {
			t.Fatalf("%d of %d bytes: %v", n, len(object), err)
		}
	}
}

// TestHeaderFieldsHaveOwnErrors sets one field at a time in the header and its copy.
func TestHeaderFieldsHaveOwnErrors(t *testing.T) {
	for _, c := range []struct {
		at    int
		value byte
		field string
		want  error
	}{
		{0, 'X', "magic", ErrCorrupt},
		{5, 2, "version", ErrVersion},
		{5, 0, "version", ErrVersion},
		{7, 2, "flags", ErrVersion},
		{6, 0x80, "flags", ErrVersion},
		{11, 1, "required features", ErrVersion},
		{8, 0x80, "required features", ErrVersion},
		{15, 1, "", nil},
		{12, 0x80, "", nil},
	} {
		object, _ := sample(t)
		start := footerStart(object)
		object[c.at], object[start+c.at] = c.value, c.value
		resealFooter(object)
		for name, err := range map[string]error{"whole": second(ParseSegment(object)), "tail": second(ParseFooter(object[start:], int64(len(object))))} {
			var format *FormatError
			if !errors.Is(err, c.want) || err != nil && (!errors.As(err, &format) || format.Field != c.field) {
				t.Errorf("byte %d = %d, %s: %v, want %v of %q", c.at, c.value, name, err, c.want, c.field)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

func footerStart(object []byte) int {
	return len(object) - trailerSize - int(binary.BigEndian.Uint32(object[len(object)-trailerSize:]))
}

// resealFooter makes the checksum of an edited footer right again.
func resealFooter(object []byte) []byte {
	end := len(object) - trailerSize
	binary.BigEndian.PutUint32(object[end+4:], crc32.Checksum(object[footerStart(object):end], castagnoli))
	return object
}

// TestOptionalFeatureMayAddToTheFooter appends bytes to the footer, with and without the bit that explains them.
func TestOptionalFeatureMayAddToTheFooter(t *testing.T) {
	for _, bit := range []byte{0, 1} {
		object, _ := sample(t)
		object[15], object[footerStart(object)+15] = bit, bit
		footer := append(bytes.Clone(object[footerStart(object):len(object)-trailerSize]), "added"...)
		object = withFooter(object[:footerStart(object)], footer)
		if _, err := ParseSegment(object); (err == nil) != (bit == 1) {
			t.Errorf("optional feature %d: %v", bit, err)
		}
	}
}

// withFooter is an object of these bytes before, and with this footer.
func withFooter(before, footer []byte) []byte {
	object := append(bytes.Clone(before), footer...)
	object = binary.BigEndian.AppendUint32(object, uint32(len(footer)))
	object = append(object, 0, 0, 0, 0)
	return resealFooter(append(object, footerMagic...))
}

// footerOf is a footer with these fields behind the log id. A string is bytes, a number an unsigned varint.
func footerOf(kind Kind, fields ...any) []byte {
	b := append(appendHeader(nil, kind), make([]byte, logIDSize)...)
	for _, f := range fields {
		switch f := f.(type) {
		case string:
			b = append(b, f...)
		case int:
			b = binary.AppendUvarint(b, uint64(f))
		}
	}
	return b
}

// badObjects are objects whose footers are well sealed and lie; the text is the field that must be named.
func badObjects(t testing.TB) map[string]struct {
	object []byte
	field  string
	err    error
} {
	type bad = struct {
		object []byte
		field  string
		err    error
	}
	batch := encode(t, DefaultBatchOptions(), Record{})
	body := append(appendHeader(nil, Intake), batch...)
	archived := append(appendHeader(nil, Archive), batch...)
	lane := func(extent ...any) []any {
		return append([]any{1, string(testTopic), 1, 1, "a", 1}, extent...)
	}
	intake := func(fields ...any) []byte { return withFooter(body, footerOf(Intake, fields...)) }
	archive := func(fields ...any) []byte { return withFooter(archived, footerOf(Archive, fields...)) }
	n := len(batch)
	outside := withFooter(body, footerOf(Intake, lane(0, 0, 0, 0, n, 1, 0, 0)...))
	edited := func(at int, length uint32) []byte {
		b := bytes.Clone(outside)
		binary.BigEndian.PutUint32(b[len(b)-at:], length)
		return b
	}
	return map[string]bad{
		"no_bytes":           {nil, "header", ErrCorrupt},
		"header_only":        {appendHeader(nil, Intake), "trailer", ErrCorrupt},
		"foreign":            {[]byte(strings.Repeat("some other object ", 10)), "magic", ErrCorrupt},
		"footer_outside":     {edited(trailerSize, uint32(len(outside))), "footer length", ErrCorrupt},
		"footer_over_header": {edited(trailerSize, uint32(len(outside)-trailerSize-headerSize+1)), "footer length", ErrCorrupt},
		"footer_huge":        {edited(trailerSize, math.MaxUint32), "footer length", ErrTooLarge},
		"footer_empty":       {edited(trailerSize, 0), "footer length", ErrCorrupt},
		"kind_differs":       {withFooter(archived, footerOf(Intake, lane(0, 0, 0, 0, n, 1, 0, 0)...)), "header", ErrCorrupt},
		"extent_past_footer": {intake(lane(0, 0, 0, 0, n+1, 1, 0, 0)...), "extent length", ErrCorrupt},
		"extent_short":       {intake(lane(0, 0, 0, 0, n-1, 1, 0, 0)...), "extent length", ErrCorrupt},
		"extent_max":         {intake(lane(0, 0, 0, 0, math.MaxInt64, 1, 0, 0)...), "extent length", ErrCorrupt},
		"extent_tiny":        {intake(lane(0, 0, 0, 0, recordsAt-1, 1, 0, 0)...), "extent length", ErrCorrupt},
		"records_zero":       {intake(lane(0, 0, 0, 0, n, 0, 0, 0)...), "extent length", ErrCorrupt},
		"records_max":        {intake(lane(0, 0, 0, 0, n, math.MaxInt32+1, 0, 0)...), "record count", ErrCorrupt},
		"slot_64":            {intake(lane(64, 0, 0, 0, n, 1, 0, 0)...), "slot", ErrCorrupt},
		"topic_index":        {intake(lane(0, 1, 0, 0, n, 1, 0, 0)...), "topic index", ErrCorrupt},
		"partition_max":      {intake(lane(0, 0, math.MaxInt32+1, 0, n, 1, 0, 0)...), "partition", ErrCorrupt},
		"extent_flags":       {intake(lane(0, 0, 0, 2, n, 1, 0, 0)...), "extent flags", ErrVersion},
		"producer_zero":      {intake(lane(0, 0, 0, 1, n, 1, 0, 0, 0, 0)...), "producer id", ErrCorrupt},
		"time_overflow":      {intake(lane(0, 0, 0, 0, n, 1, 2, math.MaxInt64)...), "largest time", ErrCorrupt},
		"cut_off":            {intake(lane(0, 0, 0, 0, n, 1)...), "lane count", ErrCorrupt},
		"cut_in_extent":      {archive(1, string(testTopic), 1, 1, "a", 0, 0, 1, 0, 0, 0, 0, n, 1, 0, 0), "base offset", ErrCorrupt},
		"left_over":          {intake(lane(0, 0, 0, 0, n, 1, 0, 0, "x")...), "length", ErrCorrupt},
		"topics_none":        {intake(0, 1, 1, "a", 1, 0, 0, 0, 0, n, 1, 0, 0), "topic count", ErrCorrupt},
		"topics_max":         {intake(math.MaxInt64), "topic count", ErrCorrupt},
		"topic_malformed":    {intake(1, "0123456789AV", 1, 1, "a", 1, 0, 0, 0, 0, n, 1, 0, 0), "extent", ErrCorrupt},
		"lanes_none":         {intake(1, string(testTopic), 0), "lane count", ErrCorrupt},
		"lanes_max":          {intake(1, string(testTopic), math.MaxInt64), "lane count", ErrCorrupt},
		"lane_long":          {intake(1, string(testTopic), 1, 65, strings.Repeat("a", 65), 1, 0, 0, 0, 0, n, 1, 0, 0), "lane id length", ErrCorrupt},
		"lane_empty":         {intake(1, string(testTopic), 1, 0, 1, 0, 0, 0, 0, n, 1, 0, 0, "padding"), "extent", ErrCorrupt},
		"extents_none":       {intake(1, string(testTopic), 1, 1, "a", 0, "padding padding"), "extent count", ErrCorrupt},
		"extents_max":        {intake(1, string(testTopic), 1, 1, "a", math.MaxInt64, "padding padding"), "extent count", ErrCorrupt},
		"lane_twice":         {withFooter(append(body, batch...), footerOf(Intake, 1, string(testTopic), 2, 1, "a", 1, 0, 0, 0, 0, n, 1, 0, 0, 1, "a", 1, 1, 0, 0, 0, n, 1, 0, 0)), "lane id", ErrCorrupt},
		"slots_descend":      {withFooter(append(body, batch...), footerOf(Intake, 1, string(testTopic), 1, 1, "a", 2, 1, 0, 0, 0, n, 1, 0, 0, 0, 0, 0, 0, n, 1, 0, 0)), "extent", ErrCorrupt},
		"slot_of_two":        {withFooter(append(body, batch...), footerOf(Intake, 1, string(testTopic), 1, 1, "a", 2, 0, 0, 0, 0, n, 1, 0, 0, 0, 0, 1, 0, n, 1, 0, 0)), "extent", ErrCorrupt},
		"orders_overflow":    {archive(1, string(testTopic), 1, 1, "a", 1, math.MaxInt64, 1, 0, 0, 0, 0, n, 1, 0, 0, 0, 1), "orders", ErrCorrupt},
		"offsets_empty":      {archive(1, string(testTopic), 1, 1, "a", 0, 0, 1, 0, 0, 0, 0, n, 1, 0, 0, 7, 0), "extent", ErrCorrupt},
		"offsets_overlap":    {withFooter(append(archived, batch...), footerOf(Archive, 1, string(testTopic), 1, 1, "a", 0, 0, 2, 0, 0, 0, 0, n, 1, 0, 0, 0, 5, 0, 0, 0, 0, n, 1, 0, 0, 4, 5)), "extent", ErrCorrupt},
		"offsets_overflow":   {archive(1, string(testTopic), 1, 1, "a", 0, 0, 1, 0, 0, 0, 0, n, 1, 0, 0, math.MaxInt64, 1), "end offset", ErrCorrupt},
	}
}

// TestBR22_BadFooters parses objects that are not segments, are cut, or whose footer lies about what it holds.
func TestBR22_BadFooters(t *testing.T) {
	for name, c := range badObjects(t) {
		t.Run(name, func(t *testing.T) {
			limit := uint64(len(c.object) + 4096) // the error, and one extent
			n := allocated(limit, func() {
				_, err := ParseSegment(c.object)
				var format *FormatError
				if !errors.As(err, &format) || !errors.Is(err, c.err) || format.Field != c.field {
					t.Errorf("error %v, want %v of %q", err, c.err, c.field)
				}
			})
			if n > limit {
				t.Errorf("allocated %d bytes for an object of %d", n, len(c.object))
			}
		})
	}
}

// TestBuilderRefusals adds what does not belong; the segment must be as before.
func TestBuilderRefusals(t *testing.T) {
	record := open(t, Record{Timestamp: 5})
	batch := encode(t, DefaultBatchOptions(), Record{Timestamp: 5}, Record{Timestamp: 6})
	edit := func(at int, value byte) []byte {
		b := bytes.Clone(batch)
		b[at] = value
		return b
	}
	archived := intakeExtent("a", 9)
	archived.BaseOffset, archived.EndOffset = 100, 103
	with := func(e ExtentMeta, change func(*ExtentMeta)) ExtentMeta { change(&e); return e }
	good := intakeExtent("a", 9)
	for name, c := range map[string]struct {
		kind    Kind
		e       ExtentMeta
		minTime int64
		batches [][]byte // nil: the open batch
		want    error
	}{
		"lane again":           {Intake, intakeExtent("b", 1), 5, nil, ErrOrder},
		"slot below":           {Intake, intakeExtent("a", 4), 5, nil, ErrOrder},
		"slot of another":      {Intake, with(intakeExtent("a", 5), func(e *ExtentMeta) { e.Partition = 8 }), 5, nil, ErrOrder},
		"lane without name":    {Intake, with(good, func(e *ExtentMeta) { e.Lane = "" }), 5, nil, ErrBadID},
		"lane too long":        {Intake, with(good, func(e *ExtentMeta) { e.Lane = strings.Repeat("l", 65) }), 5, nil, ErrBadID},
		"slot 64":              {Intake, with(good, func(e *ExtentMeta) { e.Slot = 64 }), 5, nil, ErrBadID},
		"topic":                {Intake, with(good, func(e *ExtentMeta) { e.Topic = "flights" }), 5, nil, ErrBadID},
		"partition":            {Intake, with(good, func(e *ExtentMeta) { e.Partition = -1 }), 5, nil, ErrBadID},
		"producer":             {Intake, with(good, func(e *ExtentMeta) { e.ProducerID = -1 }), 5, nil, ErrBadID},
		"sequence of nobody":   {Intake, with(good, func(e *ExtentMeta) { e.Sequence = 1 }), 5, nil, ErrBadID},
		"offsets in intake":    {Intake, archived, 5, nil, ErrOrder},
		"no offsets":           {Archive, good, 5, nil, ErrOrder},
		"batch below":          {Archive, archived, 5, [][]byte{edit(7, 99)}, ErrOrder},
		"batch above":          {Archive, archived, 5, [][]byte{edit(7, 102)}, ErrOrder},
		"batches overlap":      {Archive, archived, 5, [][]byte{edit(7, 100), edit(7, 101)}, ErrOrder},
		"open batch below":     {Archive, archived, 5, nil, ErrOrder},
		"gaps in intake":       {Intake, good, 5, [][]byte{edit(lastDeltaAt+3, 7)}, ErrOrder},
		"no batch":             {Intake, good, 5, [][]byte{}, ErrEmpty},
		"transaction":          {Intake, good, 5, [][]byte{edit(attributesAt+1, transactionalBit)}, ErrTransactional},
		"two batches in one":   {Intake, good, 5, [][]byte{append(bytes.Clone(batch), batch...)}, ErrCorrupt},
		"second batch corrupt": {Intake, good, 5, [][]byte{batch, batch[:30]}, ErrCorrupt},
		"time above":           {Intake, good, 7, [][]byte{batch}, ErrOrder},
	} {
		b := NewBuilder(c.kind, LogID{})
		for _, lane := range []string{"b", "a"} {
			e := intakeExtent(lane, 5)
			if c.kind == Archive {
				e.EndOffset = 1
			}
			if _, err := b.AddOpen(e, record, DefaultBatchOptions()); err != nil {
				t.Fatal(err)
			}
		}
		before, _, _ := b.Finish()
		before = bytes.Clone(before)
		var err error
		if c.batches == nil {
			_, err = b.AddOpen(c.e, record, DefaultBatchOptions())
		} else {
			err = b.Add(c.e, c.minTime, c.batches...)
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if after, _, err := b.Finish(); err != nil || !bytes.Equal(before, after) {
			t.Errorf("%s: the segment has changed (%v)", name, err)
		}
	}
}

// TestExtentLimits adds as many extents, and as many records to one, as a footer may state, and then more.
func TestExtentLimits(t *testing.T) {
	b := NewBuilder(Intake, LogID{})
	one := open(t, Record{})
	e := intakeExtent("a", 0)
	for e.ProducerID = 1; e.ProducerID <= MaxExtents; e.ProducerID++ {
		if _, err := b.AddOpen(e, one, DefaultBatchOptions()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.AddOpen(e, one, DefaultBatchOptions()); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an extent more: %v", err)
	}
	object, footer, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseSegment(object); err != nil {
		t.Error(err)
	}
	footer.Extents = append(footer.Extents, footer.Extents[0])
	if _, err := ParseSegment(footer.append(append(b.buf, b.buf[16:16+footer.Extents[0].Length]...))); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an extent more: %v", err)
	}

	b.Reset(Intake, LogID{})
	batch := sealed(t, None, maxExtentCount, nil) // whose records are not looked at
	if err := b.Add(intakeExtent("a", 0), 0, batch); err != nil {
		t.Fatal(err)
	}
	if err := b.Add(intakeExtent("a", 0), 0, encode(t, DefaultBatchOptions(), Record{})); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a record more: %v", err)
	}
}

// TestFooterLimit adds lanes with long names until the footer would be too large to be read.
func TestFooterLimit(t *testing.T) {
	b := NewBuilder(Intake, LogID{})
	b.buf = append(b.buf, make([]byte, recordsAt)...)
	for i := range MaxFooterBytes / (MaxLaneBytes + 10) {
		b.extents = append(b.extents, Extent{ExtentMeta: ExtentMeta{Lane: fmt.Sprintf("%0*d", MaxLaneBytes, i), Topic: testTopic}})
	}
	if _, _, err := b.Finish(); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
}

func TestOrdersRefusals(t *testing.T) {
	if _, _, err := NewBuilder(Intake, LogID{}).Finish(); !errors.Is(err, ErrEmpty) {
		t.Errorf("empty segment: %v", err)
	}
	for kind, want := range map[Kind]error{Intake: ErrOrder, Archive: nil} {
		b := NewBuilder(kind, LogID{})
		e := intakeExtent("a", 0)
		e.EndOffset = int64(kind)
		if _, err := b.AddOpen(e, open(t, Record{}), DefaultBatchOptions()); err != nil {
			t.Fatal(err)
		}
		if err := b.SetOrders(LaneOrders{"a", 3, 4}); !errors.Is(err, want) {
			t.Errorf("%v: %v", kind, err)
		}
		for _, o := range []LaneOrders{{"a", 3, 4}, {"b", 3, 4}, {"a", 4, 4}, {"a", -1, 4}} {
			if err := b.SetOrders(o); !errors.Is(err, ErrOrder) {
				t.Errorf("%v %+v: %v", kind, o, err)
			}
		}
	}
}

// TestVerifyFindsWhatTheFooterHides seals footers and batches that do not agree.
func TestVerifyFindsWhatTheFooterHides(t *testing.T) {
	at := func(times ...int64) []byte {
		var records []Record
		for _, ms := range times {
			records = append(records, Record{Timestamp: ms})
		}
		return encode(t, DefaultBatchOptions(), records...)
	}
	object := func(kind Kind, batch []byte, count, minTime, span int, offsets ...any) []byte {
		fields := []any{1, string(testTopic), 1, 1, "a"}
		if kind == Archive {
			fields = append(fields, 0, 0)
		}
		fields = append(fields, 1, 0, 0, 0, 0, len(batch), count, minTime*2, span)
		return withFooter(append(appendHeader(nil, kind), batch...), footerOf(kind, append(fields, offsets...)...))
	}
	edit := func(batch []byte, at int, value byte) []byte { batch[at] = value; return reseal(batch) }
	for name, c := range map[string]struct {
		object []byte
		ok     bool
	}{
		"right":         {object(Intake, at(5, 6), 2, 5, 1), true},
		"wide times":    {object(Intake, at(5, 6), 2, 4, 9), true},
		"count":         {object(Intake, at(5, 6), 3, 5, 1), false},
		"smallest time": {object(Intake, at(5, 6), 2, 6, 1), false},
		"largest time":  {object(Intake, at(5, 6), 2, 5, 0), false},
		"batch's max":   {object(Intake, edit(at(5, 6), maxTimeAt+7, 5), 2, 5, 1), false},
		"base offset":   {object(Intake, edit(at(5, 6), 7, 1), 2, 5, 1), false},
		"gaps":          {object(Intake, edit(at(5, 6), lastDeltaAt+3, 2), 2, 5, 1), false},
		"batch":         {object(Intake, append(at(5, 6), make([]byte, 20)...), 2, 5, 1), false},
		"checksum":      {object(Intake, func() []byte { b := at(5, 6); b[crcAt]++; return b }(), 2, 5, 1), false},
		"archive":       {object(Archive, edit(at(5, 6), 7, 9), 2, 5, 1, 9, 2), true},
		"archive gaps":  {object(Archive, edit(edit(at(5, 6), 7, 9), lastDeltaAt+3, 2), 2, 5, 1, 9, 3), true},
		"archive too low 2": {func() []byte { // below its extent's range, above that of the extent before
			first, second := edit(at(5, 6), 7, 9), edit(at(5, 6), 7, 12)
			extents := []any{0, 0, 0, 0, len(first), 2, 10, 1, 9, 2, 0, 0, 0, 0, len(second), 2, 10, 1, 20, 5}
			footer := footerOf(Archive, append([]any{1, string(testTopic), 1, 1, "a", 0, 0, 2}, extents...)...)
			return withFooter(slices.Concat(appendHeader(nil, Archive), first, second), footer)
		}(), false},
		"archive too low":  {object(Archive, edit(at(5, 6), 7, 8), 2, 5, 1, 9, 2), false},
		"archive too high": {object(Archive, edit(at(5, 6), 7, 10), 2, 5, 1, 9, 2), false},
	} {
		_, err := new(Decoder).Verify(c.object)
		if _, parse := ParseSegment(c.object); parse != nil {
			t.Errorf("%s: refused before its records are read: %v", name, parse)
		}
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A segment taken in parts, wherever it is cut, is the same object as one built in memory.
func TestSegmentInParts(t *testing.T) {
	for _, kind := range []Kind{Intake, Archive} {
		whole, parts := NewBuilder(kind, LogID{1}), NewBuilder(kind, LogID{1})
		var taken []byte
		for i := range 40 {
			e := ExtentMeta{Lane: "lane", Slot: uint8(i / 4), Topic: "0123456789ab", Partition: int32(i / 4)}
			o := DefaultBatchOptions()
			if kind == Archive {
				e.BaseOffset, e.EndOffset, o.BaseOffset = 10, 1000, int64(10+i%4*7)
			}
			for _, b := range []*Builder{whole, parts} {
				open := new(BatchBuilder)
				if err := open.Append(&Record{Timestamp: int64(i), Value: bytes.Repeat([]byte{byte(i)}, 100*i)}); err != nil {
					t.Fatal(err)
				}
				add := b.AddOpen
				if i%3 == 0 {
					add = b.Adopt
				}
				if _, err := add(e, open, o); err != nil {
					t.Fatal(err)
				}
			}
			if whole.Size() != parts.Size() {
				t.Fatalf("size %d and %d", whole.Size(), parts.Size())
			}
			if i%5 == 2 {
				taken = append(taken, parts.Take()...)
				if parts.Held() != 0 {
					t.Fatalf("%d bytes are held after they were taken", parts.Held())
				}
			}
		}
		want, footer, err := whole.Finish()
		if err != nil {
			t.Fatal(err)
		}
		rest, same, err := parts.Finish()
		if err != nil {
			t.Fatal(err)
		}
		if got := append(taken, rest...); !bytes.Equal(got, want) || !reflect.DeepEqual(footer, same) {
			t.Fatalf("%s in parts is another: %d bytes, %d in memory", kind, len(got), len(want))
		}
		if _, err := new(Decoder).Verify(want); err != nil {
			t.Fatal(err)
		}
	}
}
