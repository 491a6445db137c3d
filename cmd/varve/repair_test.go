package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varvelog/varve/functions/repair"
)

// A table that is lost comes back from the bucket: what is archived at its offsets. Segments that producers may still commit wait.
func TestRepair(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "2")
	must(t, url, "a\nb\nc\n", "produce", "t")
	must(t, url, "", "compact", "--all")
	want := sorted(must(t, url, "", "consume", "t", "--json"))
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"repair"}, exitUsage, "--restored-to MOMENT or --lost"},
		{[]string{"repair", "--lost", "--restored-to", "2026-01-01T00:00:00Z"}, exitUsage, "--restored-to MOMENT or --lost"},
		{[]string{"repair", "--lost"}, exitUsage, "give --yes"},
		{[]string{"repair", "--restored-to", "yesterday", "--yes"}, exitUsage, "is not a moment such as"},
		{[]string{"repair", "--lost", "--yes", "--name", "t"}, exitUsage, "is not ID=NAME"},
		{[]string{"repair", "--lost", "--yes"}, exitDone, "nothing to repair"},
		{[]string{"repair", "--restored-to", "2200-01-01T00:00:00Z", "--yes"}, exitUsage, "a moment before now"},
	} {
		if out, errs, code := varve(t, url, "", c.args...); code != c.code || !strings.Contains(errs, c.says) || strings.Contains(out, "not finished") {
			t.Errorf("%s: exit %d, %s%s", c.args, code, out, errs)
		}
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimPrefix(url, "file://"), "table.sqlite*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	if _, errs, code := varve(t, url, "", "consume", "t", "--create-table"); code != exitFailed || !strings.Contains(errs, "belong to different logs") {
		t.Errorf("exit %d, %s", code, errs)
	}
	out := must(t, url, "", "repair", "--lost", "--dry-run", "--create-table")
	if !strings.Contains(out, "known from the bucket only, 2 partitions") && !strings.Contains(out, "known from the bucket only, 1 partition") || !strings.Contains(out, "era 1: nothing was done") {
		t.Error(out)
	}
	var plan repair.Report
	if err := json.Unmarshal([]byte(must(t, url, "", "repair", "--lost", "--dry-run", "--json")), &plan); err != nil || len(plan.Topics) != 1 {
		t.Fatalf("%+v, %v", plan, err)
	}
	out = must(t, url, "", "repair", "--lost", "--yes", "--name", plan.Topics[0].ID+"=t")
	if !strings.Contains(out, "era 1: finished") || !strings.Contains(out, "then 17592186044416; 0 records appended again") {
		t.Error(out)
	}
	if got := sorted(must(t, url, "", "consume", "t", "--json")); got != want {
		t.Errorf("it reads otherwise than before:\n%s\n%s", got, want)
	}
	must(t, url, "d\n", "produce", "t")
	if out := must(t, url, "", "verify"); !strings.Contains(out, "\nsound: 0 damage, ") {
		t.Error(out)
	}
}
