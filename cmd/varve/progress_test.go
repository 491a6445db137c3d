package main

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
)

// hasty is a clock on which time passes with every look at it, so that little work takes long. With a step of zero it stands still.
type hasty struct {
	env.Clock
	step  time.Duration
	looks atomic.Int64
}

func (c *hasty) Mono() time.Duration {
	if c.step == 0 {
		return 0
	}
	return c.Clock.Mono() + time.Duration(c.looks.Add(1))*c.step
}

// onTerminal runs one command line with stderr on a terminal, and stdout too if both.
func onTerminal(t *testing.T, url, stdin string, step time.Duration, both bool, args ...string) (errs string) {
	t.Helper()
	a, _, e := newApp(url, stdin)
	a.interactive, a.outTerminal = true, both
	a.env.Clock = &hasty{Clock: a.env.Clock, step: step}
	if code := a.run(t.Context(), args); code != exitDone {
		t.Fatalf("varve %s: exit %d: %s", strings.Join(args, " "), code, e)
	}
	return e.String()
}

// screen is what a terminal shows in the end.
func screen(s string) string {
	var lines []string
	for line := range strings.SplitSeq(s, "\n") {
		var shown []byte
		for part := range strings.SplitSeq(line, "\r") {
			shown = append([]byte(part), shown[min(len(part), len(shown)):]...)
		}
		lines = append(lines, strings.TrimRight(string(shown), " "))
	}
	return strings.Join(lines, "\n")
}

// Long work shows a running count to somebody who watches, and in the end only the outcome is left of it.
func TestProgress(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t")
	stdin := strings.Repeat("a\n", 1000)
	for _, c := range []struct {
		line    string
		step    time.Duration
		running []string
		left    string
	}{
		{"produce t", time.Millisecond, []string{" records acknowledged, "}, "1000 records are in t\n"},
		{"consume t", progressEvery, []string{" records read, "}, "1000 records\n"},
		{"demo --log mem://", time.Millisecond, []string{" records acknowledged, ", " records read, "}, "20000 records acknowledged\n20000 records read\n"},
	} {
		errs := onTerminal(t, url, stdin, c.step, false, strings.Fields(c.line)...)
		for _, want := range c.running {
			if !strings.Contains(errs, want) || !strings.Contains(errs, "/s") {
				t.Errorf("%s: no %q in %q", c.line, want, errs)
			}
		}
		if got := screen(errs); got != c.left {
			t.Errorf("%s leaves %q, want %q, of %q", c.line, got, c.left, errs)
		}
	}
	if errs := onTerminal(t, url, "", progressEvery, true, "consume", "t"); errs != "1000 records\n" {
		t.Errorf("between the records on a terminal: %q", errs)
	}
	a, _, errs := newApp(url, stdin)
	a.env.Clock = &hasty{Clock: a.env.Clock, step: time.Millisecond}
	if code := a.run(t.Context(), []string{"produce", "t"}); code != exitDone || errs.Len() > 0 {
		t.Errorf("nobody watches: exit %d, %q", code, errs)
	}
}

func TestCounter(t *testing.T) {
	var out bytes.Buffer
	clock := &still{}
	a := &app{err: &out, interactive: true, env: env.Env{Clock: clock}}
	c := a.count("read")
	c.add(1)
	c.clear()
	if out.Len() > 0 {
		t.Errorf("at once: %q", out.String())
	}
	for _, step := range []struct {
		after time.Duration
		add   int
		want  string
	}{
		{time.Second, 999, "\r1000 records read, 1000/s"},
		{progressEvery - 1, 500, ""},
		{1, 1500, "\r3000 records read, 2500/s"},
		{8800 * time.Millisecond, 0, "\r3000 records read, 300/s "}, // the longer text is written over
	} {
		out.Reset()
		clock.now += step.after
		if c.add(step.add); out.String() != step.want {
			t.Errorf("%q, want %q", out.String(), step.want)
		}
	}
	out.Reset()
	c.clear()
	c.clear()
	if got := out.String(); got != "\r"+strings.Repeat(" ", len("3000 records read, 300/s"))+"\r" {
		t.Errorf("cleared by %q", got)
	}
}

// still is a clock that a test moves.
type still struct {
	env.Clock
	now time.Duration
}

func (c *still) Mono() time.Duration { return c.now }
