package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/varvelog/varve/functions/retain"
)

// The preview says what the run does and does nothing; when all has expired the end stays, and what is produced next goes on from there.
func TestRetain(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "1", "--config", "retention.bytes=0")
	must(t, url, "", "topic", "create", "u", "--partitions", "1")
	must(t, url, "a\nb\nc\n", "produce", "t")
	must(t, url, "a\n", "produce", "u")
	moved := "\n  partition 0: 0 to 3, end 3, by retention.bytes\n"
	for _, line := range []string{"retain --dry-run", "retain --dry-run --topic t"} {
		if out := must(t, url, "", strings.Fields(line)...); !strings.Contains(out, "topic t, kept 7d, 0 bytes a partition: would be 1 log start moved"+moved) || strings.Contains(out, "topic u") != (line == "retain --dry-run") {
			t.Error(out)
		}
	}
	if out := must(t, url, "", "consume", "t", "--to", "end"); out != "a\nb\nc\n" {
		t.Errorf("after the preview: %q", out)
	}
	out := must(t, url, "", "retain")
	if !strings.Contains(out, "bytes a partition: 1 log start moved"+moved) || !strings.Contains(out, "topic u, kept 7d: 0 log starts moved\n") || !strings.Contains(out, "\nlifecycle rules: ") {
		t.Error(out)
	}
	must(t, url, "d\n", "produce", "t")
	if out := must(t, url, "", "consume", "t", "--from", "3", "--to", "end"); out != "d\n" {
		t.Errorf("after the run: %q", out)
	}
	if out := must(t, url, "", "consume", "u", "--to", "end"); out != "a\n" {
		t.Errorf("of the other topic: %q", out)
	}
	must(t, url, "", "topic", "alter", "u", "--config", "retention.ms=-1")
	if out := must(t, url, "", "topic", "describe", "u"); !strings.Contains(out, "in effect: retention 7d, until nothing is stored under another class than keep any more; stored may be r7d, keep") {
		t.Error(out)
	}
	var r retain.Report
	if out := must(t, url, "", "retain", "--json"); json.Unmarshal([]byte(out), &r) != nil || len(r.Topics) != 2 || r.Topics[1].RetentionMs != 7*24*3600*1000 || r.Rules == nil {
		t.Error(out)
	}
	for line, want := range map[string]int{
		"retain --topic nope": exitFailed, "retain x": exitUsage, "retain --transition soon": exitUsage, "retain --transition 5:DEEP_ARCHIVE": exitUsage,
		"retain --transition 30:STANDARD_IA --topic t": exitUsage, "retain --transition none --dry-run": exitDone,
	} {
		if _, errs, code := varve(t, url, "", strings.Fields(line)...); code != want {
			t.Errorf("%s: exit %d, want %d: %s", line, code, want, errs)
		}
	}
}
