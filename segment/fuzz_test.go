package segment

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

// fuzzLimits keep the fuzz targets fast; they are also what no input may exceed.
var fuzzLimits = Limits{RecordBytes: 1 << 20, Records: 1 << 12, Headers: 1 << 12}

// FuzzDecode decodes any bytes, as they are and with length and checksum made right, so that what lies behind
// the checksum is reached. What is accepted must come out the same after it has been written again.
func FuzzDecode(f *testing.F) {
	for c := range Codec(codecs) {
		f.Add(encode(f, withCodec(c), Record{Key: []byte("key"), Value: bytes.Repeat([]byte("value"), 40), Headers: []Header{{"h", nil}, {"h", []byte{}}}}, Record{Timestamp: -5}))
	}
	for _, fr := range framers() {
		f.Add(sealed(f, fr.codec, 1, fr.frame(f, recordOf(1000))))
	}
	f.Fuzz(func(t *testing.T, batch []byte) {
		checkDecode(t, batch)
		if len(batch) >= recordsAt {
			checkDecode(t, reseal(batch))
		}
	})
}

func checkDecode(t *testing.T, batch []byte) {
	d, reusing := Decoder{Limits: fuzzLimits}, Decoder{Limits: fuzzLimits, Reuse: true}
	got, err := d.Decode(batch, 0, nil)
	again, errAgain := reusing.Decode(batch, 0, nil)
	if (err == nil) != (errAgain == nil) || !reflect.DeepEqual(got, again) {
		t.Fatalf("Reuse makes a difference: %v %+v, %v %+v", err, got, errAgain, again)
	}
	checkPlainly(t, batch, got, err)
	if err != nil || len(got) == 0 {
		return
	}
	checkFilter(t, batch, got)
	var b BatchBuilder
	for i := range got {
		if err := b.Append(&got[i]); err != nil {
			t.Fatal(err)
		}
	}
	o := DefaultBatchOptions()
	o.Codec = Snappy
	written, _, err := b.Finish(nil, o)
	if err != nil {
		t.Fatal(err)
	}
	read, err := new(Decoder).Decode(written, 0, nil)
	if err != nil || len(read) != len(got) {
		t.Fatalf("written again: %v, %d records of %d", err, len(read), len(got))
	}
	for i := range read {
		read[i].Offset = got[i].Offset // gaps are closed by writing again
	}
	if !reflect.DeepEqual(read, got) {
		t.Fatalf("written again: %+v\nwas %+v", read, got)
	}
}

// checkFilter filters a batch that was accepted.
func checkFilter(t *testing.T, batch []byte, records []Record) {
	var want []Record
	for i := range records {
		if records[i].Offset%2 == 0 {
			want = append(want, records[i])
		}
	}
	d := Decoder{Limits: fuzzLimits, Reuse: true}
	out, info, err := d.Filter(batch, 0, nil, func(r *Record) bool { return r.Offset%2 == 0 })
	if err != nil || info.Count != len(want) {
		t.Fatalf("filtered: %d records, want %d: %v", info.Count, len(want), err)
	}
	if len(want) == 0 {
		return
	}
	if left, err := (&Decoder{Limits: fuzzLimits}).Decode(out, 0, nil); err != nil || !reflect.DeepEqual(left, want) {
		t.Fatalf("filtered: %v %+v\nwant %+v", err, left, want)
	}
}

// checkPlainly reads an uncompressed batch without readPlain, whose only use is to be faster.
func checkPlainly(t *testing.T, batch []byte, want []Record, wantErr error) {
	h, err := ParseBatchHeader(batch)
	limits := fuzzLimits
	if err != nil || h.Codec() != None || checkBatch(&h, batch, 0, &limits) != nil || checkSum(&h, batch) != nil {
		return
	}
	var d Decoder
	d.headers.reset(limits.Headers, false)
	r := reader{b: batch[recordsAt:], part: "record"}
	records := make([]Record, h.Count)
	next := int64(0)
	for i := range records {
		r.record = i
		d.readRecord(&r, &records[i], h.BaseTimestamp, next, int64(h.LastOffsetDelta))
		next = records[i].Offset + 1
		records[i].Offset += h.BaseOffset
		if h.TimeType() == LogAppendTime {
			records[i].Timestamp = h.MaxTimestamp
		}
	}
	if ok := r.err == nil && r.left() == 0; ok != (wantErr == nil) || ok && len(want) > 0 && !reflect.DeepEqual(records, want) {
		t.Fatalf("slowly %v %+v\nfast %v %+v", r.err, records, wantErr, want)
	}
}

// FuzzSegment parses any bytes as an object, as they are and with the footer's checksum made right. Whatever is
// accepted has extents that lie one after another within the object.
func FuzzSegment(f *testing.F) {
	object, _ := sample(f)
	f.Add(object)
	f.Fuzz(func(t *testing.T, object []byte) {
		checkSegment(t, object)
		if n, err := FooterSize(object, int64(len(object))); err == nil && n <= int64(len(object)) {
			checkSegment(t, resealFooter(object))
		}
	})
}

func checkSegment(t *testing.T, object []byte) {
	footer, err := ParseSegment(object)
	if err != nil {
		return
	}
	at := int64(headerSize)
	for _, e := range footer.Extents {
		if e.Offset != at || e.Length < recordsAt || e.Count < 1 || e.validate(footer.Kind) != nil {
			t.Fatalf("accepted extent %+v, expected at %d", e, at)
		}
		at += e.Length
	}
	if at != int64(footerStart(object)) {
		t.Fatalf("extents end at %d, the footer starts at %d", at, footerStart(object))
	}
	rewritten := footer.append(bytes.Clone(object[:at]))
	if again, err := ParseSegment(rewritten); err != nil || !reflect.DeepEqual(again, footer) {
		t.Fatalf("written again: %v %+v\nwas %+v", err, again, footer)
	}
	d := Decoder{Limits: fuzzLimits}
	_, _ = d.Verify(object) // only that it returns
}

// FuzzNames parses any string as an id, a class and an object name. What is accepted must print as it was.
func FuzzNames(f *testing.F) {
	f.Add(strings.Repeat("0", 20))
	f.Add("r7d/intake/9a/0000000000000000009a")
	f.Add("keep/archive/0123456789av/" + strings.Repeat("0", 20))
	f.Add("r16000d")
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := ParseID(s); err == nil && id.String() != s {
			t.Fatalf("id %q prints as %q", s, id)
		}
		if class, err := ParseClass(s); err == nil && class.String() != s {
			t.Fatalf("class %q prints as %q", s, class)
		}
		if name, err := ParseName(s); err == nil && name.ID.String() != s[len(s)-20:] {
			t.Fatalf("name %q has id %v", s, name.ID)
		}
	})
}
