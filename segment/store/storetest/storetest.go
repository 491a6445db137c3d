// Package storetest is the suite that every adapter of package store must pass. It knows the contract only.
//
// What it cannot see from outside is tested elsewhere: that dir syncs before it answers and what a crash
// leaves (package dir); what an S3 server in the process lets pass unchecked, such as signatures, checksums,
// a condition on the completion of a multipart upload, throttling, redirects and broken answers (package s3,
// against scripted answers, and on a real MinIO).
package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/segment/store"
)

// Run runs the suite. open returns an empty store, each time another one, and cleans up by t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s store.Store)
	}{
		{"PutThenRead", putThenRead},
		{"PutKeepsItsOwnCopy", putKeepsItsOwnCopy},
		{"PutAgain", putAgain},
		{"Pieces", pieces},
		{"EmptyObject", emptyObject},
		{"LargeObject", largeObject},
		{"ConcurrentPutsOfOtherBytes", concurrentPutsOfOtherBytes},
		{"ConcurrentPutsOfSameBytes", concurrentPutsOfSameBytes},
		{"GetWhilePut", getWhilePut},
		{"PartSizes", partSizes},
		{"EmptyParts", emptyParts},
		{"PartsOfAnExistingName", partsOfAnExistingName},
		{"PartsThatFail", partsThatFail},
		{"ConcurrentParts", concurrentParts},
		{"PartsOfBadNames", partsOfBadNames},
		{"Ranges", ranges},
		{"GetReusesDst", getReusesDst},
		{"GetStream", getStream},
		{"GetStreamOfNothing", getStreamOfNothing},
		{"ListInOrder", listInOrder},
		{"BR35_Paging", paging},
		{"BR35_FromAGoneName", fromAGoneName},
		{"BR46_PrefixesOfOthers", prefixesOfOthers},
		{"BR46_BadNames", badNames},
		{"Delete", deleteObjects},
		{"DeleteMany", deleteMany},
		{"NotThere", notThere},
		{"ContextDone", contextDone},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

// data is n bytes that no other seed gives, without a repetition that a misplaced range could hide in.
func data(seed uint64, n int) []byte {
	var block [512]byte
	for i, r := 0, env.NewRand(seed); i < len(block); i += 8 {
		binary.LittleEndian.PutUint64(block[i:], r.Uint64())
	}
	b := make([]byte, 0, n+len(block))
	for len(b) < n {
		binary.BigEndian.PutUint64(block[:], seed<<32+uint64(len(b)))
		b = append(b, block[:]...)
	}
	return b[:n]
}

func mustPut(t *testing.T, s store.Putter, name string, body []byte) {
	t.Helper()
	if err := s.Put(t.Context(), name, body); err != nil {
		t.Fatalf("put %s: %v", name, err)
	}
}

// holds fails unless the whole object is these bytes.
func holds(t *testing.T, s store.Getter, name string, want []byte) {
	t.Helper()
	got, err := s.Get(t.Context(), name, 0, -1, nil)
	if err != nil {
		t.Fatalf("get %s: %v", name, err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("get %s: %d bytes %.20x, want %d bytes %.20x", name, len(got), got, len(want), want)
	}
}

// fails fails unless err is a *store.Error of that operation and name that wraps want.
func fails(t *testing.T, err error, op store.Op, name string, want error) {
	t.Helper()
	if problem := differs(err, op, name, want); problem != "" {
		t.Error(problem)
	}
}

func differs(err error, op store.Op, name string, want error) string {
	var e *store.Error
	switch {
	case !errors.Is(err, want):
		return fmt.Sprintf("%s %q: error is %v, want one that wraps %q", op, name, err, want)
	case !errors.As(err, &e):
		return fmt.Sprintf("%s %q: error %v is a %T, not a *store.Error", op, name, err, err)
	case e.Op != op || e.Name != name:
		return fmt.Sprintf("error %v names %s %q, want %s %q", err, e.Op, e.Name, op, name)
	}
	return ""
}

// call makes one call of each method with a good name, and returns what it failed with.
func call(ctx context.Context, s store.Store, op store.Op, name string) error {
	var err error
	switch op {
	case store.OpPut:
		err = s.Put(ctx, name, []byte("x"))
	case store.OpGet:
		_, err = s.Get(ctx, name, 0, 1, nil)
	case store.OpStat:
		_, err = s.Stat(ctx, name)
	case store.OpList:
		_, err = s.List(ctx, name, "", 0)
	case store.OpDelete:
		err = s.Delete(ctx, name)
	}
	return err
}

var ops = []store.Op{store.OpPut, store.OpGet, store.OpStat, store.OpList, store.OpDelete}
