package sdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func roundTrip(t *testing.T, r Record) Record {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.ContainsRune(b, '\n') {
		t.Fatalf("more than one line: %s", b)
	}
	var back Record
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	if !reflect.DeepEqual(r, back) {
		t.Fatalf("%s\nwrote %#v\nread  %#v", b, r, back)
	}
	return back
}

func TestBR05_RecordJSON(t *testing.T) {
	kinds := map[string][]byte{"null": nil, "empty": {}, "text": []byte("größe <&>\u2028\x00\"\\ud800"), "binary": {0xff, 0xfe, 0, '\n'}, "cut": []byte("\xe2\x82")}
	for kn, k := range kinds {
		for vn, v := range kinds {
			t.Run(kn+"/"+vn, func(t *testing.T) {
				roundTrip(t, Record{Topic: "t", Partition: 3, Offset: 1 << 60, Timestamp: time.UnixMilli(978310020123).UTC(), Key: k, Value: v,
					Headers: []Header{{Key: "", Value: k}, {Key: "h", Value: v}, {Key: "h", Value: v}, {Key: "\xff", Value: k}}})
			})
		}
	}
	many := Record{}
	for i := range 1000 {
		many.Headers = append(many.Headers, Header{Key: fmt.Sprint("h", i%7), Value: kinds["binary"]})
	}
	roundTrip(t, many)
}

func TestRecordJSONTimes(t *testing.T) {
	for _, ms := range []int64{0, -1, 978310020000, -62167219200001, -62167219200000, 253402300799999, 253402300800000, 1 << 52, -(1 << 52)} {
		roundTrip(t, Record{Timestamp: time.UnixMilli(ms).UTC()})
	}
	for in, want := range map[string]int64{`"2001-01-01T01:47:00+01:00"`: 978310020000, `978310020000`: 978310020000, `"978310020000"`: 978310020000, `"2001-01-01T00:47:00.0009Z"`: 978310020000} {
		var r Record
		if err := json.Unmarshal([]byte(`{"timestamp":`+in+`}`), &r); err != nil || r.Timestamp.UnixMilli() != want {
			t.Errorf("%s: %v, %v", in, r.Timestamp, err)
		}
	}
}

func TestRecordJSONRefuses(t *testing.T) {
	for in, want := range map[string]string{
		`{"key":"a","key_base64":"YQ=="}`:        "not both",
		`{"value_base64":"YQ"}`:                  "with padding",
		`{"value_base64":"YR=="}`:                "with padding",
		`{"headers":[{"value":"x"}]}`:            "headers[0].name",
		`{"headers":[{"name":null}]}`:            "headers[0].name",
		`{"value_b64":"YQ=="}`:                   "value_b64",
		`{"Key":"a"}`:                            `field "Key" is not valid: want topic, partition`,
		`{"key":"a","KEY":"b"}`:                  `field "KEY" is not valid`,
		`{"key":"a","key":"b"}`:                  `field "key" is not valid: want it once`,
		`{"key":null,"key":"b"}`:                 `field "key" is not valid: want it once`,
		`{"headers":[{"name":"h","name":"i"}]}`:  `field "name" is not valid: want it once`,
		`{"headers":[{"name":"h","Value":"i"}]}`: `field "Value" is not valid`,
		`{"headers":[{"name":"h","key":"i"}]}`:   "key",
		`{"timestamp":"yesterday"}`:              "RFC 3339",
		`{"timestamp":1.5}`:                      "RFC 3339",
		`{"partition":"1"}`:                      "partition",
		`{"value":7}`:                            `value "number" is not valid: want a string, or null`,
		`{"key":{}}`:                             `key "object" is not valid: want a string, or null`,
		`{"headers":{}}`:                         "want an array",
		`{"headers":[7]}`:                        "want a JSON object",
		`{"offset":0.5}`:                         "want a whole number",
		`{"key":"` + "\xff" + `"}`:               "UTF-8",
		`{"key":"\ud800"}`:                       "surrogate",
		`{"key":"\ud800\u0041"}`:                 "surrogate",
		`{"key":"\udc00"}`:                       "surrogate",
		`{"offset":99999999999999999999}`:        "offset",
		`[]`:                                     `record "array" is not valid: want a JSON object`,
		`null`:                                   `record "null" is not valid: want a JSON object`,
		`"x"`:                                    "record",
	} {
		r := Record{Topic: "untouched"}
		err := json.Unmarshal([]byte(in), &r)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an ErrInvalid that contains %q", in, err, want)
		}
		if !reflect.DeepEqual(r, Record{Topic: "untouched"}) {
			t.Errorf("%s: the record was changed: %+v", in, r)
		}
	}
	for in, want := range map[string]string{`{"key":"\\ud800"}`: `\ud800`, `{"key":"\ud83d\ude00"}`: "😀", `{"key":"\ufffd"}`: "\ufffd", `{"key":"�"}`: "\ufffd"} {
		var r Record
		if err := json.Unmarshal([]byte(in), &r); err != nil || string(r.Key) != want {
			t.Errorf("%s: %q, %v", in, r.Key, err)
		}
	}
}

func FuzzRecordJSON(f *testing.F) {
	f.Add([]byte(`{"topic":"t","partition":3,"offset":17,"timestamp":"2001-01-01T00:47:00.000Z","key":"k","value_base64":"/w==","headers":[{"name":"","value":null}]}`))
	f.Add([]byte(`{"key":"\ud83d\ude00\\ud800"}`))
	f.Add([]byte(`{"timestamp":-62167219200001}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var r Record
		if json.Unmarshal(in, &r) != nil {
			return
		}
		roundTrip(t, r)
	})
}
