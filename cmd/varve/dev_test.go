package main

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/varvelog/varve/localdev/housekeep"
)

// watching is a standard output of JSON lines that ends it all when every job has run, and the server serves.
type watching struct {
	mu   sync.Mutex
	end  context.CancelFunc
	seen map[string]bool
	bad  string
}

func (w *watching) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var e housekeep.Event
	if err := json.Unmarshal(p, &e); err != nil || e.Error != "" {
		w.bad = string(p)
	}
	if w.seen[e.Job] = true; len(w.seen) == 5 || w.bad != "" {
		w.end()
	}
	return len(p), nil
}

func TestDev(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t")
	must(t, url, "a\nb\n", "produce", "t")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a, _, errs := newApp(url, "")
	w := &watching{end: cancel, seen: map[string]bool{}}
	a.out = w
	if code := a.run(ctx, []string{"dev", "--json", "--compact-every", "5ms", "--retain-every", "5ms", "--sweep-every", "5ms"}); code != exitDone || w.bad != "" {
		t.Fatalf("exit %d: %s%s", code, errs, w.bad)
	}
	if got := must(t, url, "", "consume", "t"); len(lines(got)) != 2 {
		t.Errorf("%q", got)
	}
	if _, errs, code := varve(t, url, "", "dev", "--sweep-every", "0s"); code != exitUsage || !strings.Contains(errs, "not above 0") {
		t.Errorf("exit %d: %s", code, errs)
	}
}
