package embedded

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/sdk"
)

func TestDirectoryOfURL(t *testing.T) {
	for raw, want := range map[string]string{
		"file:///var/lib/varve":  "/var/lib/varve",
		"file:///a/../b/":        "/b",
		"file:///with%20space":   "/with space",
		"file://./.varve":        ".varve",
		"file://./a/b":           "a/b",
		"file://../sibling":      "../sibling",
		"file://./../../cousins": "../../cousins",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := directory(u); err != nil || got != filepath.FromSlash(want) {
			t.Errorf("%s: %q, %v, want %q", raw, got, err, want)
		}
	}
	for raw, want := range map[string]string{
		"file://":              "without a directory",
		"file:///":             "without a directory",
		"file:///a/..":         "without a directory",
		"file://.":             "without a directory",
		"file://./":            "without a directory",
		"file://..":            "without a directory",
		"file://localhost/x":   "with a host",
		"file://varve/x":       "with a host",
		"file://.varve":        "with a host",
		"file:///x?sync=false": "parameters",
		"mem://name":           "without a name",
		"mem:///path":          "without a name",
		"mem://?x=y":           "without a name",
	} {
		_, err := sdk.Open(t.Context(), raw, sdk.WithDriver(Driver()))
		var f *sdk.FieldError
		if !errors.As(err, &f) || !strings.Contains(err.Error(), want) || f.Valid == "" {
			t.Errorf("%s: %v, want a FieldError that contains %q", raw, err, want)
		}
	}
}

// A log's directory may be moved, and what is not a directory is refused.
func TestFileLog(t *testing.T) {
	dir := newDir(t)
	again(t, "file://"+dir, 10)
	moved := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	if n := check(t, "file://"+moved, nil); n != 10 {
		t.Errorf("%d records", n)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sdk.Open(t.Context(), "file://"+file, sdk.WithDriver(Driver())); err == nil {
		t.Error("a file was opened as a directory")
	}
}

// A directory without a log is one only by leave: a mistyped name leaves no trace.
func TestFileLogThatIsNotThere(t *testing.T) {
	parent := t.TempDir()
	empty := t.TempDir()
	for _, dir := range []string{filepath.Join(parent, "typo", "x"), empty} {
		_, err := sdk.Open(t.Context(), "file://"+dir, sdk.WithDriver(Driver()))
		if !errors.Is(err, sdk.ErrNoLog) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "WithCreateTable") {
			t.Errorf("%s: %v", dir, err)
		}
	}
	for _, dir := range []string{parent, empty} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("opening left %v, %v", left, err)
		}
	}
	openLog(t, "file://"+empty, sdk.WithCreateTable())
	if n := topics(t, openLog(t, "file://"+empty)); n != 0 {
		t.Errorf("%d topics in a new log", n)
	}
}

// The objects of one log and the table of another, put into one directory, are refused.
func TestFileLogsMixed(t *testing.T) {
	a, b := newDir(t), newDir(t)
	if err := errors.Join(os.RemoveAll(filepath.Join(a, objectsFolder)), os.Rename(filepath.Join(b, objectsFolder), filepath.Join(a, objectsFolder))); err != nil {
		t.Fatal(err)
	}
	if _, err := sdk.Open(t.Context(), "file://"+a, sdk.WithDriver(Driver())); !errors.Is(err, sdk.ErrWrongLog) {
		t.Error(err)
	}
}

func topics(t *testing.T, log *sdk.Log) int {
	t.Helper()
	list, err := log.Admin().ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func open(t *testing.T, d sdk.Driver) *sdk.Log {
	t.Helper()
	log, err := sdk.Open(t.Context(), "mem://", sdk.WithDriver(d))
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func create(t *testing.T, log *sdk.Log) {
	t.Helper()
	if _, err := log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: topicName}); err != nil {
		t.Fatal(err)
	}
}

// Every mem:// of Driver is a log of its own; those of one Memory are views of one log.
func TestMemoryLogs(t *testing.T) {
	d := Driver()
	a, b := open(t, d), open(t, d)
	create(t, a)
	if topics(t, a) != 1 || topics(t, b) != 0 {
		t.Error("two logs in memory share topics")
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}

	m, err := NewMemory(MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	a, b = open(t, m), open(t, m)
	create(t, a)
	if topics(t, b) != 1 {
		t.Error("two views of one log in memory do not share topics")
	}
	if err := a.Close(); err != nil || topics(t, b) != 1 {
		t.Errorf("closing one view: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// A user's test in a bubble: nothing waits for real time, and no goroutine is left.
func TestMemoryInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := open(t, Driver())
		create(t, log)
		p, err := log.NewProducer(sdk.WithLinger(time.Minute, time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := p.ProduceSync(t.Context(), &sdk.Record{Topic: topicName, Value: []byte("v")}).Err(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != time.Minute {
			t.Errorf("acknowledged after %v, the linger is a minute", took)
		}
		r, err := log.NewReader(t.Context(), topicName, sdk.To(sdk.Latest))
		if err != nil {
			t.Fatal(err)
		}
		if f, err := r.Poll(t.Context()); err != nil || string(f[0].Records[0].Value) != "v" {
			t.Errorf("%v, %v", f, err)
		}
		if err := errors.Join(p.Close(t.Context()), r.Close(), log.Close()); err != nil {
			t.Error(err)
		}
	})
}
