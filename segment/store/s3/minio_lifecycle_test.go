package s3

import (
	"testing"

	"github.com/varvelog/varve/localdev/minio/miniotest"
	"github.com/varvelog/varve/segment/store"
)

// TestMinIO_Rules: requests of signed URLs are taken; rules come back as they were set, but for what MinIO keeps no rules for.
func TestMinIO_Rules(t *testing.T) {
	s := mustOpen(t, onMinIO(miniotest.Start(t)))
	if rules, err := s.Rules(t.Context()); err != nil || len(rules.List) != 0 {
		t.Fatal(rules, err)
	}
	set := &store.Rules{List: []store.Rule{
		{ID: "one", Prefix: "a/", Enabled: true, Days: 8, Abort: 1},
		{ID: "two", Prefix: "b/", Days: 31},
	}}
	if err := s.SetRules(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	got, err := s.Rules(t.Context())
	if err != nil || len(got.List) != 2 {
		t.Fatal(got, err)
	}
	for i, r := range got.List {
		want := set.List[i]
		if want.Abort = 0; r.ID != want.ID || r.Prefix != want.Prefix || r.Enabled != want.Enabled || r.Days != want.Days || r.Abort != want.Abort || r.More {
			t.Errorf("%+v, want %+v", r, want)
		}
	}
	got.List = append(got.List, store.Rule{ID: "uploads", Prefix: "c/", Enabled: true, Abort: 1})
	if err := s.SetRules(t.Context(), got); err == nil {
		t.Error("MinIO takes a rule that only ends uploads by now: say so in the docs")
	}
	got.List = got.List[:1]
	if err := s.SetRules(t.Context(), got); err != nil { // as MinIO wrote it
		t.Fatal(err)
	}
	if got, err = s.Rules(t.Context()); err != nil || len(got.List) != 1 || got.List[0].Days != 8 {
		t.Error(got, err)
	}
	if err := s.SetRules(t.Context(), &store.Rules{}); err != nil {
		t.Fatal(err)
	}
	if got, err = s.Rules(t.Context()); err != nil || len(got.List) != 0 {
		t.Error(got, err)
	}
}
