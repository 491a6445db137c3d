// Package wire reads and writes the API's JSON: a pull reader that never recurses deeper than MaxDepth nor allocates
// more than its input, and the one escape function that answers need.
package wire

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// MaxDepth is how deeply JSON may nest. Attribute values are limited to 32 levels of two JSON levels each.
const MaxDepth = 128

// Error is JSON that is malformed or of another shape than expected.
type Error struct {
	Message string
	Offset  int
}

func (e *Error) Error() string { return fmt.Sprintf("%s (at byte %d)", e.Message, e.Offset) }

// Reader reads one JSON document from front to back. After an error it is of no further use.
type Reader struct {
	data  []byte
	pos   int
	depth int
}

// NewReader reads data, which must not change meanwhile.
func NewReader(data []byte) *Reader { return &Reader{data: data} }

// Fail makes an error at the place where the reader stands.
func (r *Reader) Fail(format string, args ...any) error {
	return &Error{Message: fmt.Sprintf(format, args...), Offset: r.pos}
}

func (r *Reader) space() {
	for r.pos < len(r.data) {
		switch r.data[r.pos] {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return
		}
	}
}

// next skips space and is the byte that follows, 0 at the end.
func (r *Reader) next() byte {
	r.space()
	if r.pos < len(r.data) {
		return r.data[r.pos]
	}
	return 0
}

func (r *Reader) accept(c byte) bool {
	if r.next() != c {
		return false
	}
	r.pos++
	return true
}

func (r *Reader) literal(word string) bool {
	r.space()
	if len(r.data)-r.pos >= len(word) && string(r.data[r.pos:r.pos+len(word)]) == word {
		r.pos += len(word)
		return true
	}
	return false
}

func (r *Reader) descend() error {
	if r.depth++; r.depth > MaxDepth {
		return r.Fail("JSON nests deeper than %d levels", MaxDepth)
	}
	return nil
}

// Object calls each for every member; each must read the member's value.
func (r *Reader) Object(each func(name string) error) error {
	if !r.accept('{') {
		return r.Fail("expected an object")
	}
	if err := r.descend(); err != nil {
		return err
	}
	for first := true; !r.accept('}'); first = false {
		if !first && !r.accept(',') {
			return r.Fail("expected , or }")
		}
		name, err := r.String()
		if err != nil {
			return err
		}
		if !r.accept(':') {
			return r.Fail("expected :")
		}
		if err := each(name); err != nil {
			return err
		}
	}
	r.depth--
	return nil
}

// Array calls each for every element; each must read it.
func (r *Reader) Array(each func() error) error {
	if !r.accept('[') {
		return r.Fail("expected a list")
	}
	if err := r.descend(); err != nil {
		return err
	}
	for first := true; !r.accept(']'); first = false {
		if !first && !r.accept(',') {
			return r.Fail("expected , or ]")
		}
		if err := each(); err != nil {
			return err
		}
	}
	r.depth--
	return nil
}

// AtArray reports whether a list comes next.
func (r *Reader) AtArray() bool { return r.next() == '[' }

// Null reads null if it comes next.
func (r *Reader) Null() bool { return r.next() == 'n' && r.literal("null") }

// Bool reads true or false.
func (r *Reader) Bool() (bool, error) {
	switch {
	case r.literal("true"):
		return true, nil
	case r.literal("false"):
		return false, nil
	}
	return false, r.Fail("expected a Boolean")
}

// Int reads an integer.
func (r *Reader) Int() (int64, error) {
	text, err := r.number()
	if err != nil {
		return 0, err
	}
	i, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, r.Fail("expected an integer, not %.40s", text)
	}
	return i, nil
}

func (r *Reader) number() (string, error) {
	r.space()
	start := r.pos
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; {
		case c >= '0' && c <= '9', c == '-', c == '+', c == '.', c == 'e', c == 'E':
			r.pos++
			continue
		}
		break
	}
	if !json.Valid(r.data[start:r.pos]) {
		return "", r.Fail("expected a number")
	}
	return string(r.data[start:r.pos]), nil
}

// Skip reads any value and forgets it.
func (r *Reader) Skip() error {
	switch c := r.next(); {
	case c == '{':
		return r.Object(func(string) error { return r.Skip() })
	case c == '[':
		return r.Array(r.Skip)
	case c == '"':
		_, err := r.String()
		return err
	case c == 't' || c == 'f':
		_, err := r.Bool()
		return err
	case r.Null():
		return nil
	}
	_, err := r.number()
	return err
}

// End fails if anything but space is left.
func (r *Reader) End() error {
	if r.next() != 0 || r.pos < len(r.data) {
		return r.Fail("unexpected data after the end")
	}
	return nil
}
