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
