package wire

import (
	"encoding/json"
	"strconv"
)

// Expected is the committed offset that a commit expects, if it expects one (Given). JSON has a number, or null where nothing is to be committed yet (-1); the zero
// Expected is left out.
type Expected struct {
	Given  bool
	Offset int64
}

// MarshalJSON implements json.Marshaler.
func (e Expected) MarshalJSON() ([]byte, error) {
	if e.Offset < 0 {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, e.Offset, 10), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *Expected) UnmarshalJSON(b []byte) error {
	*e = Expected{Given: true, Offset: -1}
	if string(b) == "null" {
		return nil
	}
	return json.Unmarshal(b, &e.Offset)
}
