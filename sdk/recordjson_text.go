package sdk

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// checkText refuses JSON whose strings encoding/json would change in silence, by putting U+FFFD in the place of what is not Unicode: bytes that are not
// UTF-8, and \u escapes of half a surrogate pair. b need not be well-formed; the decoder finds that.
func checkText(b []byte) error {
	if !utf8.Valid(b) {
		return &FieldError{Field: "record", Value: strconv.QuoteToASCII(string(b)), Valid: "UTF-8; other bytes go into key_base64, value_base64, name_base64"}
	}
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		unit, ok := escapedUnit(b[i:])
		switch {
		case !ok:
			i++ // whatever is escaped, a backslash too
		case !utf16.IsSurrogate(unit):
			i += 5
		default:
			low, _ := escapedUnit(b[min(i+6, len(b)):])
			if utf16.DecodeRune(unit, low) == utf8.RuneError {
				return &FieldError{Field: "record", Value: string(b[i : i+6]), Valid: "escapes of whole characters: a high surrogate, then a low one"}
			}
			i += 11
		}
	}
	return nil
}

// escapedUnit is the UTF-16 unit of an escape \uXXXX at the beginning of b.
func escapedUnit(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(n), err == nil
}
