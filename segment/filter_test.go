package segment

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"
)

// Filter leaves exactly what keep says yes to, as it was, for every codec and kind of record; and what it has filtered it filters again.
func TestFilter(t *testing.T) {
	var records []Record
	for i := range 40 {
		r := Record{Offset: int64(i), Timestamp: 1000 + int64(i*i%7), Key: fmt.Appendf(nil, "key%d", i), Value: bytes.Repeat([]byte{byte(i)}, 300)}
		switch i % 5 {
		case 0:
			r.Key = nil
		case 1:
			r.Value = nil
		case 2:
			r.Key, r.Value = []byte{}, []byte{}
		case 3:
			r.Headers = []Header{{"h", nil}, {"h", []byte{}}, {"", []byte("v")}}
		}
		records = append(records, r)
	}
	for codec := range Codec(codecs) {
		o := withCodec(codec)
		o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.LeaderEpoch = 7, 3, 11, 5
		batch := encode(t, o, records...)
		SetBaseOffset(batch, 5000)
		for name, keep := range map[string]func(i int) bool{
			"all":   func(int) bool { return true },
			"none":  func(int) bool { return false },
			"first": func(i int) bool { return i == 0 },
			"last":  func(i int) bool { return i == 39 },
			"odd":   func(i int) bool { return i%2 == 1 },
		} {
			var want []Record
			for i, r := range records {
				if keep(i) {
					r.Offset += 5000
					want = append(want, r)
				}
			}
			d := Decoder{Reuse: true}
			out, info, err := d.Filter(batch, 0, nil, func(r *Record) bool { return keep(int(r.Offset - 5000)) })
			if err != nil || info.Count != len(want) {
				t.Fatalf("%s %s: %d records, %v", codec, name, info.Count, err)
			}
			switch name {
			case "none":
				if out != nil {
					t.Errorf("%s: %d bytes of nothing", codec, len(out))
				}
				continue
			case "all":
				if &out[0] != &batch[0] {
					t.Errorf("%s: a copy of a whole batch", codec)
				}
			}
			got, err := new(Decoder).Decode(out, 0, nil)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s %s: %v\n got %+v\nwant %+v", codec, name, err, got, want)
			}
			h, _ := ParseBatchHeader(out)
			was, _ := ParseBatchHeader(batch)
			if h.LastOffsetDelta != was.LastOffsetDelta || h.ProducerID != 7 || h.ProducerEpoch != 3 || h.BaseSequence != 11 || h.LeaderEpoch != 5 || h.BaseOffset != 5000 || info.Length != len(out) {
				t.Errorf("%s %s: %+v, %+v", codec, name, h, info)
			}
			for _, r := range want {
				if r.Timestamp < info.MinTime || r.Timestamp > info.MaxTime || info.MaxTime != h.MaxTimestamp {
					t.Errorf("%s %s: times %d to %d, record has %d", codec, name, info.MinTime, info.MaxTime, r.Timestamp)
				}
			}
			again, info, err := d.Filter(out, 0, nil, func(r *Record) bool { return r.Offset == want[0].Offset })
			if got, err2 := new(Decoder).Decode(again, 0, nil); err != nil || err2 != nil || info.Count != 1 || !reflect.DeepEqual(got, want[:1]) {
				t.Errorf("%s %s, again: %v %v %+v", codec, name, err, err2, got)
			}
		}
	}
}

func TestFilterKeepsAppendTime(t *testing.T) {
	o := DefaultBatchOptions()
	o.TimeType, o.AppendTime = LogAppendTime, 777
	batch := encode(t, o, Record{Timestamp: 1, Value: []byte("a")}, Record{Timestamp: 9, Value: []byte("b")})
	out, info, err := new(Decoder).Filter(batch, 0, nil, func(r *Record) bool { return r.Offset == 0 })
	if err != nil || info.MaxTime != 777 {
		t.Fatal(info, err)
	}
	if got, err := new(Decoder).Decode(out, 0, nil); err != nil || len(got) != 1 || got[0].Timestamp != 777 {
		t.Fatal(got, err)
	}
}

func TestFilterRefusesDamage(t *testing.T) {
	batch := encode(t, DefaultBatchOptions(), Record{Value: []byte("a")}, Record{Value: []byte("b")})
	batch[len(batch)-1] ^= 1
	if _, _, err := new(Decoder).Filter(batch, 0, nil, func(*Record) bool { return false }); err == nil {
		t.Fatal("damage passed")
	}
}
