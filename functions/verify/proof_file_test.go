package verify

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/varvelog/varve/segment"
)

func madeProof(t testing.TB) (path string, partitions []*provenPartition) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "proof")
	w, err := newProofWriter(path, proofHead{proofVersion, "000102", 3, time.UnixMilli(1_790_000_000_000).UTC()})
	check(t, err)
	gone := segment.Sum{Records: 2, Plain: 3, Weighted: 4}
	partitions = []*provenPartition{{Topic: "0123456789ab", From: 5, Pieces: []provenPiece{}},
		{Topic: "0123456789ab", Partition: 1, Pieces: []provenPiece{{End: 8, Row: "0123456789abcdef", Kept: segment.Sum{Records: 6, Plain: 1, Weighted: 2}, Gone: &gone}, {End: 9, Kept: segment.Sum{Records: 1}}}}}
	for _, p := range partitions {
		check(t, w.prove(p))
	}
	check(t, w.replace(path))
	return path, partitions
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What was written is read, partition by partition; with any byte of it changed, missing or more it is refused.
func TestProofFile(t *testing.T) {
	path, partitions := madeProof(t)
	body, err := os.ReadFile(path)
	check(t, err)
	r, err := readProof(path, bytes.NewReader(body))
	check(t, err)
	for _, want := range partitions {
		line, err := r.line(provenKey{want.Topic, want.Partition})
		check(t, err)
		if got, err := decodeProven(line); err != nil || got.From != want.From || got.end() != want.end() || len(got.bounds()) != len(want.bounds()) || got.bounds()[len(got.Pieces)] != want.bounds()[len(want.Pieces)] {
			t.Errorf("%+v, want %+v, %v", got, want, err)
		}
	}
	p := partitions[1]
	for base, want := range map[int64]int64{0: 8, 8: 9, 9: 0, 1: 0} {
		if got, ok := p.row(base); got.End != want || ok != (want > 0) {
			t.Errorf("row at %d: %+v, %t", base, got, ok)
		}
	}
	refused := func(what string, i int, b []byte) {
		t.Helper()
		if _, err := readProof(path, bytes.NewReader(b)); !errors.As(err, new(*ProofError)) {
			t.Errorf("%s at byte %d: %v", what, i, err)
		}
	}
	refused("behind the end", len(body), append(bytes.Clone(body), `{"topic":"0123456789ab","partition":7,"from":0,"pieces":[]}`...))
	for i := range body {
		for _, flip := range []byte{1, 0x80} {
			bent := bytes.Clone(body)
			bent[i] ^= flip
			refused("changed", i, bent)
		}
		if i < len(body)-1 { // the last line may end without its end
			refused("cut off", i, body[:i])
			refused("missing", i, append(bytes.Clone(body[:i]), body[i+1:]...))
		}
		refused("more", i, append(append(bytes.Clone(body[:i]), '7'), body[i:]...))
	}
}

// On any bytes: a proof whose partitions can be read, or a typed error.
func FuzzReadProof(f *testing.F) {
	path, _ := madeProof(f)
	body, err := os.ReadFile(path)
	check(f, err)
	f.Add(body)
	for _, line := range bytes.SplitAfter(body, []byte("\n")) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := decodeProven(b); err == nil {
			bounds := p.bounds()
			if n := len(bounds); bounds[n-1].offset != p.end() || bounds[n-1].appended.Records > p.end()-p.From {
				t.Fatalf("%+v", p)
			}
		}
		r, err := readProof("file", bytes.NewReader(b))
		if err != nil {
			if !errors.As(err, new(*ProofError)) {
				t.Fatal(err)
			}
			return
		}
		for key := range r.where {
			line, err := r.line(key)
			if err == nil {
				_, err = decodeProven(line)
			}
			check(t, err)
		}
	})
}
