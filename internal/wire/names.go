package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// NameError is a name in an object that is not to be there.
type NameError struct {
	Name  string
	Valid string // what would be
}

func (e *NameError) Error() string { return fmt.Sprintf("field %q: want %s", e.Name, e.Valid) }

// Names checks the names in all objects of b, which is JSON: each has to be one of the known, to the letter, and to be in its object once. encoding/json takes names that
// differ in case for the same, and of several the last, so that two readers of one body could see two different requests in it.
func Names(b []byte, known ...string) error {
	var open [][]string // the names so far of each object that is open, from the outermost in
	for at := 0; at < len(b); at++ {
		switch b[at] {
		case '{':
			open = append(open, nil)
		case '}':
			open = open[:max(0, len(open)-1)]
		case '"':
			end := stringEnd(b, at)
			if isName(b[end:]) && len(open) > 0 {
				name := unquoted(b[at:end])
				seen := &open[len(open)-1]
				switch {
				case !slices.Contains(known, name):
					return &NameError{name, strings.Join(known, ", ")}
				case slices.Contains(*seen, name):
					return &NameError{name, "it once"}
				}
				*seen = append(*seen, name)
			}
			at = end - 1
		}
	}
	return nil
}

// stringEnd is behind the closing quote of the string that begins at b[at].
func stringEnd(b []byte, at int) int {
	for at++; at < len(b); at++ {
		switch b[at] {
		case '\\':
			at++
		case '"':
			return at + 1
		}
	}
	return len(b)
}

// isName tells whether what comes before rest is a name, and not a value.
func isName(rest []byte) bool {
	rest = bytes.TrimLeft(rest, " \t\r\n")
	return len(rest) > 0 && rest[0] == ':'
}

func unquoted(quoted []byte) string {
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return string(quoted)
	}
	return s
}
