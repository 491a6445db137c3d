package wire

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzReader judges the reader by encoding/json: what it takes is JSON and, apart from what it refuses on purpose,
// it takes all JSON. Strings read and written are the same to both.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,-2.5e3,true,false,null,"x"],"b":{}}`, `"\u0041\ud83d\ude00\n\/"`, `"\ud800"`, "\"\xff\"", `[1-2]`, `01`, `{"a":1,}`, `[,]`, `tru`, `"`, `{"a"}`, ` [ ] `, "\"\x01\"", `-`,
		strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth), strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := NewReader(data)
		err := r.Skip()
		if err == nil {
			err = r.End()
		}
		var malformed *Error
		switch valid := json.Valid(data); {
		case err == nil && !valid:
			t.Fatalf("took %q, which is no JSON", data)
		case err != nil && valid && utf8.Valid(data) && !strings.Contains(err.Error(), "surrogate") && !strings.Contains(err.Error(), "nests deeper"):
			t.Fatalf("refused %q: %v", data, err)
		case err != nil && !errors.As(err, &malformed):
			t.Fatalf("%T", err)
		}
		text, err := NewReader(data).String()
		if err != nil {
			return
		}
		var want string
		if json.NewDecoder(strings.NewReader(string(data))).Decode(&want) == nil && text != want {
			t.Fatalf("%q reads as %q, want %q", data, text, want)
		}
		var again string
		if err := json.Unmarshal(AppendString(nil, text), &again); err != nil || again != text {
			t.Fatalf("%q is written as %s (%v)", text, AppendString(nil, text), err)
		}
	})
}
