package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// counted is a log with 3,000 records, from 0 on, in a topic of 3 partitions.
func counted(t *testing.T) (url string) {
	url = newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "3")
	var in strings.Builder
	for i := range 3000 {
		fmt.Fprintln(&in, i)
	}
	must(t, url, in.String(), "produce", "t")
	return url
}

func lines(s string) []string {
	l := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	slices.Sort(l)
	return l
}

func TestReplay(t *testing.T) {
	url := counted(t)
	want := must(t, url, "", "consume", "t", "--json")
	if got := must(t, url, "", "replay", "t", "--json", "--parallel", "2"); !slices.Equal(lines(got), lines(want)) {
		t.Errorf("%d lines, consume prints %d", len(lines(got)), len(lines(want)))
	}
	must(t, url, `{"key":"k","value":"one"}`+"\n"+`{"key":null,"value":"two"}`+"\n", "produce", "t", "--format", "record")
	if got := must(t, url, "", "replay", "t", "--key", "k"); got != "one\n" {
		t.Errorf("%q", got)
	}
}

// Followed, a replay goes on with what is appended once it has read what was there, and an interrupt is its good end.
func TestReplayFollow(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "1")
	must(t, url, "before\n", "produce", "t")
	a, _, errs := newApp(url, "")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, w := io.Pipe()
	a.out = w
	code := make(chan int, 1)
	go func() {
		code <- a.run(ctx, []string{"replay", "t", "--follow"})
		w.Close()
	}()
	var got []string
	for s := bufio.NewScanner(r); s.Scan(); {
		switch got = append(got, s.Text()); s.Text() {
		case "before":
			must(t, url, "after\n", "produce", "t")
		case "after":
			cancel()
		}
	}
	if c := <-code; c != exitDone || !slices.Equal(got, []string{"before", "after"}) || errs.String() != "" {
		t.Errorf("exit %d: %q, %s", c, got, errs)
	}
}

// interrupting is a standard output that somebody watches, who interrupts after so many lines.
type interrupting struct {
	lines     int
	interrupt func()
	got       strings.Builder
}

func (i *interrupting) Write(p []byte) (int, error) {
	if i.lines -= strings.Count(string(p), "\n"); i.lines < 0 {
		i.interrupt()
	}
	return i.got.Write(p)
}

// A replay that was interrupted goes on from its checkpoint, up to where the first one was to end.
func TestReplayFromACheckpoint(t *testing.T) {
	url, file := counted(t), filepath.Join(t.TempDir(), "checkpoint")
	args := []string{"replay", "t", "--checkpoint", file, "--parallel", "1", "--buffer", "1000"}
	ctx, cancel := context.WithCancel(t.Context())
	a, _, errs := newApp(url, "")
	out := &interrupting{lines: 1000, interrupt: cancel}
	a.out = out
	if code := a.run(ctx, args); code != exitFailed || !strings.Contains(errs.String(), "interrupted") {
		t.Fatal(code, errs)
	}
	if n := len(lines(out.got.String())); n < 1000 || n >= 3000 {
		t.Fatalf("%d lines before the interruption", n)
	}
	must(t, url, "later\n", "produce", "t")
	rest := must(t, url, "", args...)
	seen := map[string]int{}
	for _, l := range append(lines(out.got.String()), lines(rest)...) {
		seen[l]++
	}
	if len(seen) != 3000 || seen["later"] != 0 {
		t.Errorf("%d records of 3000, %d of them later", len(seen), seen["later"])
	}
	if again := must(t, url, "", args...); again != "" {
		t.Errorf("a replay that is done prints %q", again)
	}
	if _, errs, code := varve(t, url, "", "replay", "u", "--checkpoint", file); code != exitFailed {
		t.Errorf("of another topic: %d %s", code, errs)
	}
	if out, errs, code := varve(t, url, "", "replay", "t", "--checkpoint", filepath.Join(file, "nowhere")); code != exitFailed || out != "" {
		t.Errorf("a checkpoint that cannot be written: %d, %q %s", code, out, errs)
	}
	if err := os.WriteFile(file, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := varve(t, url, "", args...); code != exitUsage || !strings.Contains(errs, "remove it to begin anew") {
		t.Errorf("%d %s", code, errs)
	}
}

// A file that is no checkpoint is refused with what is wrong with it.
func TestReplayFromAnotherFile(t *testing.T) {
	url := counted(t)
	name := filepath.Join(t.TempDir(), "checkpoint")
	for body, why := range map[string]string{"": "(unexpected end of JSON input)", "{}": "(it names no topic)", "null": "(it names no topic)", "[]": "(json: cannot unmarshal array"} {
		if err := os.WriteFile(name, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, errs, code := varve(t, url, "", "replay", "t", "--checkpoint", name); code != exitUsage || out != "" || !strings.Contains(errs, why) {
			t.Errorf("%q: exit %d, %q, %q", body, code, out, errs)
		}
	}
}
