package metadata

import (
	"errors"
	"testing"

	"github.com/varvelog/varve/segment"
)

func TestIdentityRoundTrip(t *testing.T) {
	want := Identity{Log: segment.LogID{1, 2, 15: 255}, Version: 1, Bucket: "bucket", Prefix: "a/b"}
	b, err := EncodeIdentity(want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeIdentity(b); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "{", "[]", `{"log":"zz"}`, `{"log":"0102"}`, `{"log":1}`, `{"log":"` + string(make([]byte, 1000)) + `"}`} {
		if _, err := DecodeIdentity([]byte(bad)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// What is read is as it was written again; all else is ErrCorrupt.
func FuzzDecodeIdentity(f *testing.F) {
	b, err := EncodeIdentity(Identity{Log: segment.LogID{1, 2, 15: 255}, Version: 1, Bucket: "bucket", Prefix: "a/b"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	for _, s := range []string{"", "null", "{}", "[]", `{"log":"0102"}`, `{"LOG":"0102000000000000000000000000FFFF","version":-1,"bucket":"\ud800"}`, `{"log":"0102000000000000000000000000ffff","version":1e3}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		id, err := DecodeIdentity(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		written, err := EncodeIdentity(id)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := DecodeIdentity(written); err != nil || again != id {
			t.Fatalf("%+v is %+v, %v after it was written", id, again, err)
		}
	})
}
