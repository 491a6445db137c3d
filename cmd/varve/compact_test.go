package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/functions/clean"
	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/verify"
	"github.com/varvelog/varve/segment"
)

// What is young and small waits, unless it is told not to, and reads the same when it is in the archive.
func TestCompact(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "2")
	for range 9 {
		must(t, url, "a\nb\nc\n", "produce", "t")
	}
	want := sorted(must(t, url, "", "consume", "t", "--json"))
	for _, args := range [][]string{{"compact"}, {"compact", "--dry-run"}, {"compact", "--topic", "t", "--deadline", "1m"}} {
		if out := must(t, url, "", args...); !strings.HasPrefix(out, "1 topic, 1 lane: 0 segments of 0 records ") || !strings.Contains(out, "\nused: ") {
			t.Errorf("%s:\n%s", args, out)
		}
	}
	var report compact.Report
	if err := json.Unmarshal([]byte(must(t, url, "", "compact", "--json")), &report); err != nil || report.Lanes != 1 || report.Jobs == nil || report.Failures == nil {
		t.Errorf("%+v, %v", report, err)
	}
	if out := must(t, url, "", "compact", "--all", "--dry-run"); !strings.Contains(out, " would be published\n") {
		t.Error(out)
	}
	out := must(t, url, "", "compact", "--all")
	if !strings.HasPrefix(out, "t, lane ") || !strings.Contains(out, ": 1 segment of 27 records published\n") {
		t.Error(out)
	}
	if got := sorted(must(t, url, "", "consume", "t", "--json")); got != want {
		t.Error("it reads otherwise than before")
	}
	if out := must(t, url, "", "verify"); !strings.Contains(out, "\nsound: 0 damage, 0 suspicious") {
		t.Error(out)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"compact", "t"}, exitUsage, "takes no arguments"},
		{[]string{"compact", "--deadline", "2h"}, exitUsage, "want above 0, at most 45m0s"},
		{[]string{"compact", "--deadline", "0s"}, exitUsage, "not above 0"},
		{[]string{"compact", "--topic", "other"}, exitFailed, "unknown topic"},
	} {
		if _, errs, code := varve(t, url, "", c.args...); code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("%s: exit %d, %s", c.args, code, errs)
		}
	}
}

// An archive segment does not say how old its oldest record is.
func TestInspectArchive(t *testing.T) {
	open := new(segment.BatchBuilder)
	if err := open.Append(&segment.Record{Timestamp: 1_000_000_000_000}); err != nil {
		t.Fatal(err)
	}
	batch, _, err := open.Finish(nil, segment.DefaultBatchOptions())
	if err != nil {
		t.Fatal(err)
	}
	b := segment.NewBuilder(segment.Archive, segment.LogID{})
	if err := b.Add(segment.ExtentMeta{Lane: "l", Topic: "0123456789ab", EndOffset: 1}, segment.UnknownTime, batch); err != nil {
		t.Fatal(err)
	}
	body, _, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "segment")
	write(t, path, body)
	if out := must(t, newURL(t), "", "segment", "inspect", path); !strings.Contains(out, "unknown  2001-09-09T01:46:40Z") {
		t.Error(out)
	}
	if out := must(t, newURL(t), "", "segment", "inspect", path, "--json"); strings.Contains(out, "min_time") || !strings.Contains(out, `"max_time":"2001-09-09T01:46:40Z"`) {
		t.Error(out)
	}
}

// sorted are the lines of several partitions in one order.
func sorted(out string) string {
	lines := strings.Split(out, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestPrintCompaction(t *testing.T) {
	a, out, _ := newApp("", "")
	at := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	err := a.printCompaction(&compact.Report{Topics: 2, Lanes: 3, Segments: 3, Records: 7, Idle: 1, Lost: 2, Gone: 1, Left: 1, LeftSince: at,
		Jobs: []compact.JobReport{
			{Topic: "t", Lane: "l", From: 8, To: 16, Oldest: at, Rows: 2, Records: 6, Bytes: 3 << 20},
			{Topic: "t", Lane: "l", From: 16, To: 16, Rows: 1, Replaced: 8, Records: 1},
		},
		Failures: []compact.Failure{{Topic: "u", Lane: "m", What: "it is broken"}}}, &clean.Report{}, &verify.Spent{TableRequests: 4, StoreRequests: 5})
	want := `t, lane l: commits 8 to 15, since 2001-02-03T04:05:06Z: 6 records of 2 partitions, 3.0 MiB
t, lane l: 8 runs of the archive merged into 1: 1 record of 1 partition, 0.0 MiB
and 1 segment more
2 topics, 3 lanes: 3 segments of 7 records published
heads emptied: those of 1 lane
done by another compactor first: 2 segments
deleted meanwhile: the topic of 1 lane
left for the next run: 1 lane, with commits since 2001-02-03T04:05:06Z
failed: u, lane m: it is broken
used: 4 requests to the table, 5 to the store, 0.0 s; `
	if err != nil || !strings.HasPrefix(out.String(), want) {
		t.Errorf("%v\n%s", err, out)
	}
}
