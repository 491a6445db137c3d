package main

import (
	"strings"
	"testing"
	"time"
)

// Ten hours in four seconds.
func TestSoak(t *testing.T) {
	// It is over before anything may be deleted, so what has grown is not judged.
	if _, err := run(t.Context(), options{playFor: 4 * time.Second, rate: 1, speed: 9600, dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
}

func TestGrownIn(t *testing.T) {
	var samples []sample
	for i := range 40 {
		samples = append(samples, sample{heap: 50 << 20, goroutines: 20, objects: 100, objectBytes: 200 << 20, tableBytes: int64(i+40) << 20})
	}
	samples[5].heap = 500 << 20 // the beginning tells nothing
	samples[35].goroutines = 200
	got := grownIn(samples)
	if len(got) != 2 || !strings.HasPrefix(got[0], "goroutines: 20, then 200") || !strings.HasPrefix(got[1], "bytes of the table") {
		t.Errorf("%q", got)
	}
	if got := grownIn(samples[:7]); len(got) != 1 {
		t.Errorf("too few: %q", got)
	}
}
