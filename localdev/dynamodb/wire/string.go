package wire

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// String reads a string. It is valid UTF-8.
func (r *Reader) String() (string, error) {
	if !r.accept('"') {
		return "", r.Fail("expected a string")
	}
	start := r.pos
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; {
		case c == '"':
			text := r.data[start:r.pos]
			if !utf8.Valid(text) {
				return "", r.Fail("string is not valid UTF-8")
			}
			r.pos++
			return string(text), nil
		case c == '\\':
			return r.escaped(start)
		case c < ' ':
			return "", r.Fail("control character in a string")
		}
		r.pos++
	}
	return "", r.Fail("string without end")
}

// escaped goes on with a string that has an escape at the reader's position.
func (r *Reader) escaped(start int) (string, error) {
	text := append([]byte(nil), r.data[start:r.pos]...)
	for r.pos < len(r.data) {
		c := r.data[r.pos]
		r.pos++
		switch {
		case c == '"':
			if !utf8.Valid(text) {
				return "", r.Fail("string is not valid UTF-8")
			}
			return string(text), nil
		case c < ' ':
			return "", r.Fail("control character in a string")
		case c != '\\':
			text = append(text, c)
		default:
			var err error
			if text, err = r.escape(text); err != nil {
				return "", err
			}
		}
	}
	return "", r.Fail("string without end")
}

func (r *Reader) escape(text []byte) ([]byte, error) {
	if r.pos >= len(r.data) {
		return nil, r.Fail("string without end")
	}
	c := r.data[r.pos]
	r.pos++
	switch c {
	case '"', '\\', '/':
		return append(text, c), nil
	case 'b':
		return append(text, '\b'), nil
	case 'f':
		return append(text, '\f'), nil
	case 'n':
		return append(text, '\n'), nil
	case 'r':
		return append(text, '\r'), nil
	case 't':
		return append(text, '\t'), nil
	case 'u':
		return r.unicode(text)
	}
	return nil, r.Fail("unknown escape \\%c", c)
}

// unicode reads the digits after \u, and the second half of a surrogate pair. A lone half is refused: it has no
// UTF-8.
func (r *Reader) unicode(text []byte) ([]byte, error) {
	char, ok := r.hex4()
	if !ok {
		return nil, r.Fail("expected four hexadecimal digits")
	}
	if utf16.IsSurrogate(char) {
		second := rune(utf8.RuneError)
		if r.pos+1 < len(r.data) && r.data[r.pos] == '\\' && r.data[r.pos+1] == 'u' {
			r.pos += 2
			second, _ = r.hex4()
		}
		if char = utf16.DecodeRune(char, second); char == utf8.RuneError {
			return nil, r.Fail("half of a surrogate pair")
		}
	}
	return utf8.AppendRune(text, char), nil
}

func (r *Reader) hex4() (rune, bool) {
	if len(r.data)-r.pos < 4 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(r.data[r.pos:r.pos+4]), 16, 32)
	r.pos += 4
	return rune(n), err == nil
}
