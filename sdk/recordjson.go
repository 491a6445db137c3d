package sdk

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/varvelog/varve/internal/wire"
)

// recordJSON is the one JSON form of a record, for the command line and for HTTP; docs/record-json.md describes it. Of each pair of fields, text and base64,
// at most one is set; neither means null. A pointer or a non-nil slice tells empty from absent.
type recordJSON struct {
	Topic       string         `json:"topic,omitempty"`
	Partition   *int           `json:"partition,omitempty"`
	Offset      *int64         `json:"offset,omitempty"`
	Timestamp   *timestampJSON `json:"timestamp,omitempty"`
	Key         *string        `json:"key,omitempty"`
	KeyBase64   *string        `json:"key_base64,omitempty"`
	Value       *string        `json:"value,omitempty"`
	ValueBase64 *string        `json:"value_base64,omitempty"`
	Headers     []headerJSON   `json:"headers,omitempty"`
}

type headerJSON struct {
	Name        *string `json:"name,omitempty"`
	NameBase64  *string `json:"name_base64,omitempty"`
	Value       *string `json:"value,omitempty"`
	ValueBase64 *string `json:"value_base64,omitempty"`
}

// recordNames are the names in a record's JSON, of its headers too.
var recordNames = []string{"topic", "partition", "offset", "timestamp", "key", "key_base64", "value", "value_base64", "headers", "name", "name_base64"}

// MarshalJSON writes the record as one JSON object, as docs/record-json.md has it. What UnmarshalJSON makes of it equals the record, its timestamp to the millisecond.
func (r Record) MarshalJSON() ([]byte, error) {
	j := recordJSON{Topic: r.Topic, Partition: &r.Partition, Offset: &r.Offset}
	if !r.Timestamp.IsZero() {
		t := timestampJSON(r.Timestamp.UnixMilli())
		j.Timestamp = &t
	}
	j.Key, j.KeyBase64 = bytesJSON(r.Key)
	j.Value, j.ValueBase64 = bytesJSON(r.Value)
	for _, h := range r.Headers {
		var x headerJSON
		x.Name, x.NameBase64 = bytesJSON([]byte(h.Key))
		x.Value, x.ValueBase64 = bytesJSON(h.Value)
		j.Headers = append(j.Headers, x)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(j)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// UnmarshalJSON reads what MarshalJSON writes. Everything but the shape may be left out: a key or value that is not there is null, a timestamp zero. A field that is
// not known, to the letter, or given twice, also as text and as base64, or text that JSON cannot carry unchanged is a *FieldError.
func (r *Record) UnmarshalJSON(b []byte) error {
	if err := checkText(b); err != nil {
		return err
	}
	var name *wire.NameError
	if errors.As(wire.Names(b, recordNames...), &name) {
		return &FieldError{Field: "field", Value: name.Name, Valid: name.Valid}
	}
	var j recordJSON
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&j); err != nil {
		return badJSON(err)
	}
	if bytes.Equal(bytes.TrimSpace(b), []byte("null")) { // which Decode passes over
		return &FieldError{Field: "record", Value: "null", Valid: "a JSON object"}
	}
	if _, err := dec.Token(); err != io.EOF {
		return &FieldError{Field: "record", Value: string(b), Valid: "one JSON object"}
	}
	return j.to(r)
}

// badJSON says what is wrong with a record's JSON in the words of docs/record-json.md, where encoding/json speaks of Go's types.
func badJSON(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return fmt.Errorf("%w: record: %w", ErrInvalid, err)
	}
	want := "a whole number"
	switch wrong.Type.Kind() {
	case reflect.Struct:
		want = "a JSON object"
	case reflect.String:
		want = "a string, or null"
	case reflect.Slice:
		want = "an array"
	}
	return &FieldError{Field: cmp.Or(wrong.Field, "record"), Value: wrong.Value, Valid: want}
}

func (j *recordJSON) to(r *Record) (err error) {
	n := Record{Topic: j.Topic}
	if j.Partition != nil {
		n.Partition = *j.Partition
	}
	if j.Offset != nil {
		n.Offset = *j.Offset
	}
	if j.Timestamp != nil {
		n.Timestamp = time.UnixMilli(int64(*j.Timestamp)).UTC()
	}
	if n.Key, err = bytesOf("key", j.Key, j.KeyBase64); err != nil {
		return err
	}
	if n.Value, err = bytesOf("value", j.Value, j.ValueBase64); err != nil {
		return err
	}
	for i, h := range j.Headers {
		at := fmt.Sprintf("headers[%d].", i)
		name, err := bytesOf(at+"name", h.Name, h.NameBase64)
		if err == nil && name == nil {
			err = &FieldError{Field: at + "name", Value: "null", Valid: "a string, which may be empty"}
		}
		if err != nil {
			return err
		}
		value, err := bytesOf(at+"value", h.Value, h.ValueBase64)
		if err != nil {
			return err
		}
		n.Headers = append(n.Headers, Header{Key: string(name), Value: value})
	}
	*r = n
	return nil
}

// bytesJSON is b as text if it is UTF-8, as base64 if it is not, and neither if it is null.
func bytesJSON(b []byte) (text, encoded *string) {
	if b == nil {
		return nil, nil
	}
	if utf8.Valid(b) {
		s := string(b)
		return &s, nil
	}
	s := base64.StdEncoding.EncodeToString(b)
	return nil, &s
}

// bytesOf is the inverse of bytesJSON.
func bytesOf(field string, text, encoded *string) ([]byte, error) {
	switch {
	case text != nil && encoded != nil:
		return nil, &FieldError{Field: field, Value: *text, Valid: field + " or " + field + "_base64, not both"}
	case text != nil:
		return []byte(*text), nil
	case encoded != nil:
		b, err := base64.StdEncoding.Strict().DecodeString(*encoded)
		if err != nil {
			return nil, &FieldError{Field: field + "_base64", Value: *encoded, Valid: "standard base64 with padding"}
		}
		return b, nil // not nil, also of ""
	}
	return nil, nil
}

// timestampJSON is milliseconds since 1970: written as RFC 3339 in UTC where that has a year of four digits, as a number otherwise, and read from both.
type timestampJSON int64

const timestampLayout = "2006-01-02T15:04:05.000Z"

func (t timestampJSON) MarshalJSON() ([]byte, error) {
	at := time.UnixMilli(int64(t)).UTC()
	if y := at.Year(); y < 0 || y > 9999 {
		return strconv.AppendInt(nil, int64(t), 10), nil
	}
	return at.AppendFormat(nil, `"`+timestampLayout+`"`), nil
}

func (t *timestampJSON) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		at, err := ParseTimestamp(s)
		*t = timestampJSON(at.UnixMilli())
		return err
	}
	ms, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return badTimestamp(string(b))
	}
	*t = timestampJSON(ms)
	return nil
}

// ParseTimestamp reads a time as the JSON form and the command line take it: RFC 3339, or whole milliseconds since 1970.
func ParseTimestamp(s string) (time.Time, error) {
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil {
		return time.UnixMilli(ms).UTC(), nil
	}
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, badTimestamp(s)
	}
	return at.UTC(), nil
}

func badTimestamp(s string) error {
	return &FieldError{Field: "timestamp", Value: s, Valid: "RFC 3339, such as 2001-01-31T08:00:00Z, or milliseconds since 1970"}
}
