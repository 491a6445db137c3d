package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/functions/verify"
	"github.com/varvelog/varve/segment"
)

// anySegment is the file of one of the log's segments.
func anySegment(t *testing.T, url string) (path string) {
	t.Helper()
	err := filepath.WalkDir(strings.TrimPrefix(url, "file://"), func(p string, d fs.DirEntry, err error) error {
		if _, bad := segment.ParseID(filepath.Base(p)); bad == nil {
			path = p
		}
		return err
	})
	if err != nil || path == "" {
		t.Fatal(path, err)
	}
	return path
}

// A log on a disk whose files change: what a person and a program are told, and the exit status.
func TestVerify(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "2")
	must(t, url, strings.Repeat("a line of some length\n", 100), "produce", "t")
	must(t, url, "", "topic", "create", "other")
	out := must(t, url, "", "verify")
	for _, want := range []string{": 2 topics, 10 partitions, ", " 100 records, ", "superseded, until the sweep: 0 objects", "named by nothing: 0 objects", " read units), ", "sound: 0 damage, 0 suspicious, 0 information\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if out := must(t, url, "", "verify", "t", "--index-only"); !strings.Contains(out, ": 1 topic, 2 partitions, ") || strings.Contains(out, "named by nothing") || !strings.Contains(out, "the index is sound: 0 damage") {
		t.Error(out)
	}

	path := anySegment(t, url)
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bent := append([]byte{}, body...)
	bent[100] ^= 1
	write(t, path, bent)
	out, errs, code := varve(t, url, "", "verify")
	if code != exitFailed || errs != "varve: 1 finding of damage\n" || !strings.HasPrefix(out, "damage: batch-corrupt: ") || !strings.Contains(out, "\n  where: topic t partition ") ||
		!strings.Contains(out, "\n  do:    Bring the object back") || !strings.Contains(out, "\nDAMAGED: 1 damage, ") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	if _, _, code := varve(t, url, "", "verify", "other"); code != exitDone {
		t.Errorf("a topic that is sound: exit %d", code)
	}

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	out, _, code = varve(t, url, "", "verify", "--json")
	var r verify.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitFailed || r.Damage != 1 || len(r.Findings) != 1 || r.Findings[0].Kind != verify.ObjectMissing ||
		r.Findings[0].Ranges[0].Topic != "t" || r.Spent == nil || r.Spent.TableRequests == 0 || r.Spent.StoreRequests == 0 || r.Spent.Dollars == 0 || r.Log == "" {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
	write(t, path, body)
	must(t, url, "", "verify")

	must(t, url, "", "compact", "--all")
	out = must(t, url, "", "verify")
	for _, want := range []string{" 100 records, ", "named by nothing: 0 objects", "sound: 0 damage, 0 suspicious, 0 information\n"} {
		if !strings.Contains(out, want) || strings.Contains(out, " 0 archive rows") || strings.Contains(out, "until the sweep: 0 objects") {
			t.Errorf("archived: no %q in\n%s", want, out)
		}
	}

	for line, want := range map[string]int{"verify nope": exitFailed, "verify --nope": exitUsage} {
		if _, _, code := varve(t, url, "", strings.Fields(line)...); code != want {
			t.Errorf("%s: exit %d, want %d", line, code, want)
		}
	}
	if out, errs, code := varve(t, newURL(t), "", "verify"); code != exitFailed || out != "" || !strings.Contains(errs, "no such log") {
		t.Errorf("no log: exit %d\n%s%s", code, out, errs)
	}
}

func write(t *testing.T, path string, body []byte) {
	t.Helper()
	if err := os.WriteFile(path, body, 0o644); err != nil {
		t.Fatal(err)
	}
}

// A proof file, from the first check on: what was compared, what was not read, and a file that is another log's.
func TestVerifyProof(t *testing.T) {
	url, file := newURL(t), filepath.Join(t.TempDir(), "proof")
	must(t, url, "", "topic", "create", "t", "--partitions", "1")
	must(t, url, strings.Repeat("a line of some length\n", 100), "produce", "t")
	must(t, url, "", "compact", "--all")
	for _, c := range []struct{ flags, want string }{
		{"", "\nproof " + file + ": new\n"},
		{"", " Z, 0 that cannot be, 1 archive row known and not read\n"},
		{" --all", ": 100 records compared with 20"},
		{" --all", ", 0 archive rows known and not read\n"},
	} {
		out := must(t, url, "", strings.Fields("verify --proof "+file+c.flags)...)
		if c.want = strings.ReplaceAll(c.want, " Z", "Z"); !strings.Contains(out, c.want) || strings.Contains(out, "without a sum") || !strings.Contains(out, "\nsound: ") {
			t.Errorf("verify --proof%s: no %q in\n%s", c.flags, c.want, out)
		}
	}
	var r verify.Report
	out := must(t, url, "", "verify", "--json", "--proof", file)
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Partitions) != 1 || r.Partitions[0].To != 100 || r.Partitions[0].Sum.Records != 100 || r.Totals.Known != 1 || !r.Proof.Replaced {
		t.Errorf("%v\n%s", err, out)
	}
	other := newURL(t)
	must(t, other, "", "topic", "create", "t")
	if out, errs, code := varve(t, other, "", "verify", "--proof", file); code != exitFailed || !strings.Contains(errs, "name the file of this log") || !strings.Contains(out, "not finished") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}

// Who watches sees how far it is, and nothing of it is left.
func TestVerifyProgress(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t")
	must(t, url, strings.Repeat("a\n", 50), "produce", "t")
	errs := onTerminal(t, url, "", 100*time.Millisecond, true, "verify")
	for _, want := range []string{" of 1 lane, ", " listed"} {
		if !strings.Contains(errs, want) {
			t.Errorf("no %q in %q", want, errs)
		}
	}
	if left := screen(errs); left != "" {
		t.Errorf("left on the terminal: %q", left)
	}
	if errs := onTerminal(t, url, "", 0, true, "verify"); errs != "" {
		t.Errorf("what is over at once shows %q", errs)
	}
}
