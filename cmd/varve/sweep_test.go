package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/segment"
)

// A segment that was uploaded two hours ago and never committed: what a person and a program are told, and what is left.
func TestSweep(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t")
	must(t, url, "a\nb\n", "produce", "t")
	if out := must(t, url, "", "sweep", "--dry-run"); !strings.HasPrefix(out, "would delete: nothing\nlooked at ") || !strings.Contains(out, " requests to the table, ") {
		t.Error(out)
	}
	path := anySegment(t, url)
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	id := segment.NewID(time.Now().Add(-2*time.Hour), 7, segment.InBucket, 0xabcdef, segment.ID{})
	dead := filepath.Join(path[:strings.Index(path, "r7d")], filepath.FromSlash(segment.IntakeName(id)))
	if err := os.MkdirAll(filepath.Dir(dead), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dead, body)
	out := must(t, url, "", "sweep", "--dry-run")
	if !strings.HasPrefix(out, "object "+segment.IntakeName(id)+": named by nothing\nwould delete: 1 x object, ") {
		t.Error(out)
	}
	var report sweepReport
	if err := json.Unmarshal([]byte(must(t, url, "", "sweep", "--dry-run", "--full", "--json")), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Deletions) != 1 || report.Deletions[0].Name != segment.IntakeName(id) || !report.Full || !report.DryRun || !report.Finished || report.Spent.TableRequests == 0 {
		t.Errorf("%+v", report)
	}
	if out := must(t, url, "", "sweep"); !strings.HasPrefix(out, "deleted: 1 x object, ") {
		t.Error(out)
	}
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Error(err)
	}
	must(t, url, "", "verify")

	if err := os.Remove(filepath.Join(path[:strings.Index(path, "r7d")], segment.IdentityName)); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := varve(t, url, "", "sweep"); code != exitFailed {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	for _, args := range [][]string{{"sweep", "t"}, {"sweep", "--deadline", "0s"}} {
		if _, errs, code := varve(t, url, "", args...); code != exitUsage {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
	}
}
