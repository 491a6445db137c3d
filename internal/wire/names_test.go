package wire_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/wire"
)

func TestNames(t *testing.T) {
	for body, bad := range map[string]string{
		`{}`:                             "",
		`{"a":1,"b":{"a":2},"c":[]}`:     "",
		`{"a":"\"b\":","b":"{\"a\":1}"}`: "",
		`[{"a":1},{"a":1}]`:              "",
		`"d"`:                            "",
		`{"a":["d","e"]}`:                "",
		`{"\u0061" : 1}`:                 "",
		`{"a":1,"a":2}`:                  "a",
		`{"a":1,"\u0061":2}`:             "a",
		`{"a":1,"b":{"c":1, "c" :2}}`:    "c",
		`{"b":{"a":1},"a":1,"b":2}`:      "b",
		`{"A":1}`:                        "A",
		`{"b":[{"B":1}]}`:                "B",
		`{"d":1}`:                        "d",
		"{\"\u212aey\":1}":               "\u212aey", // the Kelvin sign, which encoding/json takes for a k
	} {
		err := wire.Names([]byte(body), "a", "b", "c", "key")
		var name *wire.NameError
		if bad == "" && err != nil || bad != "" && (!errors.As(err, &name) || name.Name != bad) {
			t.Errorf("%s: %v, want %q", body, err, bad)
		}
	}
}

// FuzzNames: what passes is read the same by who takes the first of several names and by who takes the last.
func FuzzNames(f *testing.F) {
	for _, s := range []string{`{"a":1,"A":2}`, `{"a":{"b":[{"a":"\\"}]},"b":"\""}`, `{"a":1,"\u0061":2}`, `}`, `{"`, `"a":`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := wire.Names(b, "a", "b")
		if !json.Valid(b) {
			return
		}
		if twice, names := walked(json.NewDecoder(strings.NewReader(string(b)))); (err != nil) != (twice || names) {
			t.Fatalf("%s: %v, twice %t, unknown %t", b, err, twice, names)
		}
	})
}

// walked reads one value by its tokens, and tells whether an object in it has a name twice, or one that is neither a nor b.
func walked(d *json.Decoder) (twice, unknown bool) {
	token, err := d.Token()
	if err != nil {
		return false, false
	}
	seen := map[string]bool{}
	object := reflect.DeepEqual(token, json.Delim('{'))
	if !object && !reflect.DeepEqual(token, json.Delim('[')) {
		return false, false
	}
	for d.More() {
		if object {
			name, _ := d.Token()
			s := name.(string)
			twice, unknown = twice || seen[s], unknown || s != "a" && s != "b"
			seen[s] = true
		}
		t, u := walked(d)
		twice, unknown = twice || t, unknown || u
	}
	d.Token()
	return twice, unknown
}
