package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varvelog/varve/functions/erase"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/sdk"
)

// Keys are compacted, then one is erased, and a header: what is left reads as it should, and the proof says so.
func TestCompactKeysAndErase(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "state", "--partitions", "2", "--config", "cleanup.policy=compact")
	var in strings.Builder
	for i := range 100 {
		fmt.Fprintf(&in, `{"key":"k%d","value":"v%d","headers":[{"name":"customer","value":"c%d"}]}`+"\n", i%10, i, i%3)
	}
	must(t, url, in.String(), "produce", "state", "--format", "record")
	out := must(t, url, "", "compact", "--all")
	if !strings.Contains(out, "state, partition ") || !strings.Contains(out, "kept") {
		t.Errorf("%s", out)
	}
	if n := len(lines(must(t, url, "", "consume", "state"))); n != 10 {
		t.Errorf("%d records are left of ten keys", n)
	}
	if out := must(t, url, "", "erase", "state", "--key", "k3", "--dry-run"); !strings.Contains(out, "1 record would be erased") {
		t.Errorf("%s", out)
	}
	out = must(t, url, "", "erase", "state", "--key", "k3")
	for _, want := range []string{"1 record erased", "0 to be erased among them", "still to be deleted by 'varve sweep'", "gone from the bucket with the first sweep after"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	must(t, url, `{"key":"new","value":"v","headers":[{"name":"customer","value":"c1"}]}`+"\n", "produce", "state", "--format", "record")
	var report erase.Report
	if err := json.Unmarshal([]byte(must(t, url, "", "erase", "state", "--header", "customer=c1", "--json")), &report); err != nil {
		t.Fatal(err)
	}
	if report.Erased < 2 || report.Verified == nil || report.Verified.Found != 0 || report.Gone == nil {
		t.Errorf("%+v", report)
	}
	if left := must(t, url, "", "consume", "state", "--json"); strings.Contains(left, `"c1"`) || strings.Contains(left, `"k3"`) || len(lines(left)) != 10-int(report.Erased) {
		t.Errorf("%s", left)
	}
	must(t, url, "", "erase", "state", "--key-prefix", "k")
	if left := must(t, url, "", "consume", "state"); left != "" {
		t.Errorf("%q", left)
	}
	must(t, url, "last\n", "produce", "state")
	if left := must(t, url, "", "consume", "state"); left != "last\n" {
		t.Errorf("%q", left)
	}
	for _, args := range [][]string{{"erase", "state"}, {"erase", "state", "--key", "a", "--header", "b=c"}, {"erase", "state", "--header", "b"}, {"erase", "state", "--key-prefix", ""}, {"erase", "state", "--key", "a", "--versions", "-1h"}} {
		if _, errs, code := varve(t, url, "", args...); code != exitUsage {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
	}
	if out, errs, code := varve(t, url, "", "erase", "none", "--key", "a"); code != exitFailed || !strings.Contains(errs, "unknown topic") || out != "" {
		t.Errorf("exit %d, %s", code, errs)
	}
}

// A producer's object has records of two topics. It is kept for the other one as long as that is not archived: so erasing sees to that, or the dates in the report would be wrong.
func TestEraseLetsGoOfSharedObjects(t *testing.T) {
	url := newURL(t)
	log, err := sdk.Open(t.Context(), url, sdk.WithDriver(embedded.Driver()), sdk.WithCreateTable())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for _, name := range []string{"orders", "orders2"} {
		if _, err := log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	p, err := log.NewProducer()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AppendAtomic(t.Context(), &sdk.Record{Topic: "orders", Key: []byte("gone")}, &sdk.Record{Topic: "orders2", Key: []byte("stays")}); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if objects, err := filepath.Glob(filepath.Join(strings.TrimPrefix(url, "file://"), "objects", "*", "intake", "*", "*")); err != nil || len(objects) != 1 {
		t.Fatalf("objects of both topics: %v %v", objects, err)
	}
	must(t, url, "", "erase", "orders", "--key", "gone")
	if out := must(t, url, "", "verify"); !strings.Contains(out, "superseded, until the sweep: 2 objects ") {
		t.Errorf("of it and the segment that was written again, one is still needed:\n%s", out)
	}
	if out := must(t, url, "", "consume", "orders2", "--json"); len(lines(out)) != 1 {
		t.Errorf("%s", out)
	}
}
