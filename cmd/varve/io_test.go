package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/sdk"
)

// JSON out is JSON in: null, empty and binary keys, values, header names and header values come back as they were.
func TestBR05_CLI(t *testing.T) {
	kinds := map[string]*string{"null": nil, "empty": new(string), "text": ptr("tëxt <&> \u2028"), "binary": ptr("\xff\x00\n\xfe")}
	var in strings.Builder
	var want []sdk.Record
	for _, k := range []string{"null", "empty", "text", "binary"} {
		for _, v := range []string{"null", "empty", "text", "binary"} {
			r := sdk.Record{Partition: len(want) % 3, Timestamp: time.UnixMilli(int64(1_000_000 + len(want))).UTC(), Key: bytesOf(kinds[k]), Value: bytesOf(kinds[v])}
			for _, h := range []string{"", "h", "h", "\xff"} {
				r.Headers = append(r.Headers, sdk.Header{Key: h, Value: bytesOf(kinds[v])}, sdk.Header{Key: h, Value: bytesOf(kinds[k])})
			}
			want = append(want, r)
		}
	}
	many := sdk.Record{Timestamp: time.UnixMilli(0).UTC()}
	for i := range 1000 {
		many.Headers = append(many.Headers, sdk.Header{Key: fmt.Sprint(i % 5), Value: []byte{byte(i)}})
	}
	for _, r := range append(want, many) {
		line, err := r.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&in, "%s\n", line)
	}

	url := newURL(t)
	must(t, url, "", "topic", "create", "a", "--partitions", "3")
	must(t, url, "", "topic", "create", "b", "--partitions", "3")
	must(t, url, in.String(), "produce", "a", "--format", "record", "--keep-partitions")
	first := must(t, url, "", "consume", "a", "--json")
	must(t, url, first, "produce", "b", "--format", "record", "--keep-partitions")
	second := must(t, url, "", "consume", "b", "--json")

	a, b := parse(t, first), parse(t, second)
	for i := range b {
		if b[i].Topic != "b" {
			t.Fatalf("%+v", b[i])
		}
		b[i].Topic = "a"
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("what came out is not what went in:\n%s\n%s", first, second)
	}
	for i := range want {
		at := slices.IndexFunc(a, func(r sdk.Record) bool { return r.Timestamp.Equal(want[i].Timestamp) })
		if at < 0 {
			t.Errorf("record %d is missing", i)
			continue
		}
		got := a[at]
		got.Topic, got.Offset = "", 0
		if !reflect.DeepEqual(got, want[i]) {
			t.Errorf("record %d came out as\n%#v, want\n%#v", i, got, want[i])
		}
	}
	if len(a) != len(want)+1 {
		t.Errorf("%d records", len(a))
	}
}

func ptr(s string) *string { return &s }

func bytesOf(s *string) []byte {
	if s == nil {
		return nil
	}
	return []byte(*s)
}

// parse reads JSON lines and sorts them by partition and offset.
func parse(t *testing.T, lines string) (rs []sdk.Record) {
	t.Helper()
	for line := range strings.Lines(lines) {
		var r sdk.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		rs = append(rs, r)
	}
	slices.SortFunc(rs, func(x, y sdk.Record) int {
		if x.Partition != y.Partition {
			return x.Partition - y.Partition
		}
		return int(x.Offset - y.Offset)
	})
	return rs
}

func TestBR46_NamesThroughTheCLI(t *testing.T) {
	url := newURL(t)
	for _, name := range []string{".", "..", "a/b", "/a", "a/", "%2e%2e", "a b", "a\nb", "a\x00b", "", "é", "e\u0301", strings.Repeat("n", 300)} {
		for _, line := range [][]string{{"topic", "create"}, {"topic", "describe"}, {"topic", "alter", "--partitions", "9"}, {"topic", "delete"}, {"produce"}, {"consume"}} {
			if out, errs, code := varve(t, url, "x\n", append(line, "--", name)...); code != exitUsage || out != "" || !strings.Contains(errs, "topic name") {
				t.Errorf("%v %q: exit %d, %s%s", line, name, code, out, errs)
			}
		}
	}
	for _, name := range []string{"HEAD", "TOPIC", "varve.json", "orders", "orders-archive", "orders2"} {
		must(t, url, "", "topic", "create", "--", name)
		must(t, url, name+"\n", "produce", "--", name)
	}
	must(t, url, "", "topic", "delete", "orders")
	for _, name := range []string{"HEAD", "TOPIC", "varve.json", "orders-archive", "orders2"} {
		if out := must(t, url, "", "consume", "--", name); out != name+"\n" {
			t.Errorf("%s has %q", name, out)
		}
	}
	if _, errs, code := varve(t, url, "", "consume", "orders"); code != exitFailed || !strings.Contains(errs, "topic list") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

// Values are lines as they are: empty ones, carriage returns, bytes that are not UTF-8, a last one without its newline.
func TestProduceLines(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "1")
	must(t, url, "a\n\nb\r\n\xff\nlast", "produce", "t")
	if out := must(t, url, "", "consume", "t"); out != "a\n\nb\r\n\xff\nlast\n" {
		t.Errorf("%q", out)
	}
	if rs := parse(t, must(t, url, "", "consume", "t", "--json")); rs[1].Value == nil || rs[0].Key != nil || rs[0].Timestamp.IsZero() {
		t.Errorf("%+v", rs[:2])
	}
}

func TestProduceJSONLines(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "1")
	lines := []string{`{"k":"a\"b","at":"2001-01-01T00:47:00+01:00"}`, `{ "k": 17.50, "at": 5 }`, `{"at":0}`, `{"k":null,"at":"7"}`, `{"k":{"x":[1]},"at":1}`, `{"k":"","at":1}`}
	must(t, url, strings.Join(lines, "\n")+"\n\n", "produce", "t", "--key-field", "k", "--time-field", "at")
	rs := parse(t, must(t, url, "", "consume", "t", "--json"))
	keys := [][]byte{[]byte(`a"b`), []byte("17.50"), nil, nil, []byte(`{"x":[1]}`), {}}
	times := []int64{978306420000, 5, 0, 7, 1, 1}
	if len(rs) != len(lines) {
		t.Fatalf("%d records", len(rs))
	}
	for i, r := range rs {
		if !reflect.DeepEqual(r.Key, keys[i]) || r.Timestamp.UnixMilli() != times[i] || string(r.Value) != lines[i] {
			t.Errorf("%s: key %q, time %v, value %s", lines[i], r.Key, r.Timestamp, r.Value)
		}
	}
}

// A bad line ends it; what came before is in the log, and stderr says how many and where.
func TestProduceStopsAtABadLine(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "1", "--config", "max.message.bytes=100")
	for name, c := range map[string]struct {
		stdin string
		args  []string
		want  string
	}{
		"no JSON":      {"{\"a\":1}\n{\"a\":2}\nx\n{\"a\":3}\n", []string{"--format", "json"}, "line 3"},
		"null":         {"null\n", []string{"--format", "json"}, "line 1"},
		"null record":  {"null\n", []string{"--format", "record"}, "line 1"},
		"no time":      {"{\"t\":1}\n{\"a\":2}\n", []string{"--time-field", "t"}, `line 2: no field "t"`},
		"bad time":     {"{\"t\":\"noon\"}\n", []string{"--time-field", "t"}, "RFC 3339"},
		"unknown":      {"{\"valeu\":\"\"}\n", []string{"--format", "record"}, "valeu"},
		"too large":    {"a\n" + strings.Repeat("x", 200) + "\n", nil, "line 2"},
		"no partition": {"{}\n{\"partition\":1}\n", []string{"--format", "record", "--keep-partitions"}, "line 2"},
	} {
		out, errs, code := varve(t, url, c.stdin, append([]string{"produce", "t"}, c.args...)...)
		if code != exitFailed || out != "" || !strings.Contains(errs, c.want) || !strings.Contains(errs, " in t") {
			t.Errorf("%s: exit %d: %s", name, code, errs)
		}
	}
	if n := strings.Count(must(t, url, "", "consume", "t"), "\n"); n != 5 {
		t.Errorf("%d records are in the log", n)
	}
}

// BR-02 through the CLI: a record that is refused fails alone.
func TestBR02_ProduceGoesOnAfterARefusedRecord(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "1")
	stdin := "first\n" + strings.Repeat("x", 2<<20) + "\n" + strings.Repeat("y", 1<<20+1) + "\nlast"
	out, errs, code := varve(t, url, stdin, "produce", "t")
	if code != exitFailed || out != "" || !strings.Contains(errs, "2 records are in t, 2 failed") || !strings.Contains(errs, "line 2") || !strings.Contains(errs, "1048576") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if got := must(t, url, "", "consume", "t"); got != "first\nlast\n" {
		t.Errorf("in the log: %.100q", got)
	}
}

// deleting is a stdin behind which the topic vanishes: its last line comes when the topic is gone.
type deleting struct {
	t     *testing.T
	url   string
	reads int
}

func (r *deleting) Read(p []byte) (int, error) {
	switch r.reads++; r.reads {
	case 1:
		return copy(p, "first\n"), nil
	case 2: // lines are read ahead: the producer may not have asked for the topic yet, and would hear that there is none
		for must(r.t, r.url, "", "consume", "t") == "" {
		}
		must(r.t, r.url, "", "topic", "delete", "t")
		return copy(p, "last\n"), io.EOF
	}
	return 0, io.EOF
}

// The cause of a failure is told once, though the record and the closing producer both have it.
func TestProduceTellsTheCauseOnce(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "1")
	a, _, errs := newApp(url, "")
	a.in = &deleting{t: t, url: url}
	if code := a.run(t.Context(), []string{"produce", "t"}); code != exitFailed || strings.Count(errs.String(), "deleted") != 1 {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestPlurals(t *testing.T) {
	url := newURL(t)
	if out := must(t, url, "", "topic", "create", "t", "--partitions", "1"); !strings.Contains(out, "with 1 partition,") || !strings.Contains(out, "at most 1 member ") {
		t.Error(out)
	}
	if _, errs, _ := varve(t, url, "{}\nx\n", "produce", "t", "--format", "json"); !strings.HasPrefix(errs, "1 record is in t\n") {
		t.Error(errs)
	}
}

// A line that no record can be as long as is not held in memory, and is named.
func TestProduceEndsAtAnEndlessLine(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "1")
	a, _, errs := newApp(url, "")
	a.in = io.MultiReader(strings.NewReader("one\n"), endless{})
	if code := a.run(t.Context(), []string{"produce", "t"}); code != exitFailed || !strings.Contains(errs.String(), "stdin, line 2: longer than") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// endless is a line without an end.
type endless struct{}

var xs = bytes.Repeat([]byte("x"), 1<<20)

func (endless) Read(p []byte) (int, error) {
	return copy(p, xs), nil
}

// An interrupt ends the reading of stdin; what was accepted is delivered.
func TestProduceInterrupted(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "1")
	a, out, errs := newApp(url, "")
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	defer w.Close()
	a.in = r
	code := make(chan int)
	go func() { code <- a.run(ctx, []string{"produce", "t"}) }()
	fmt.Fprintln(w, "one")
	fmt.Fprintln(w, "two") // taken: the line before it has been handed over
	io.WriteString(w, "th")
	cancel()
	if c := <-code; c != exitFailed || out.Len() > 0 || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("exit %d: %s%s", c, out, errs)
	}
	got := must(t, url, "", "consume", "t")
	if !strings.HasPrefix("one\ntwo\n", got) || !strings.Contains(errs.String(), plural(strings.Count(got, "\n"), "record is in t", "records are in t")) {
		t.Errorf("in the log: %q; said was %s", got, errs)
	}
}

func TestTopicDescribeShowsWhatIsSet(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--config", "isolate=true", "--config", "cleanup.policy=compact")
	out := must(t, url, "", "topic", "describe", "t")
	for _, want := range []string{"isolate=true\n", "cleanup.policy=compact\n", "retention.ms=604800000\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestConsumePositions(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "1")
	var in strings.Builder
	for i := range 6 {
		fmt.Fprintf(&in, `{"timestamp":"2001-01-0%dT00:00:00Z","value":"%d"}`+"\n", i+1, i)
	}
	must(t, url, in.String(), "produce", "t", "--format", "record")
	for line, want := range map[string]string{
		"":                         "012345",
		"--from earliest --to end": "012345",
		"--from latest":            "",
		"--from 2":                 "2345",
		"--from 2 --to 4":          "23",
		"--from 6":                 "",
		"--max 2":                  "01",
		"--from 4 --max 9":         "45",
		"--from 2001-01-03T00:00:00Z --to 2001-01-05T00:00:00Z":      "23",
		"--from 2001-01-02T05:00:00+06:00 --to 2001-01-03T00:00:01Z": "12",
		"--from 2002-01-01T00:00:00Z":                                "",
		"--partition 0 --to 1":                                       "0",
		"--to 99":                                                    "012345", // not waited for
		"--from 4 --partition 0 --to 7":                              "45",
		"--to 2100-01-01T00:00:00Z":                                  "012345",
	} {
		out := must(t, url, "", append([]string{"consume", "t"}, strings.Fields(line)...)...)
		if got := strings.ReplaceAll(out, "\n", ""); got != want {
			t.Errorf("consume %s: %q, want %q", line, got, want)
		}
	}
	_, errs, code := varve(t, url, "", "consume", "t", "--from", "7")
	if code != exitFailed || !strings.Contains(errs, "valid are 0 to 6") || !strings.Contains(errs, "--from earliest") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// Following goes on with what is appended, and an interrupt is its good end.
func TestConsumeFollow(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "2")
	must(t, url, "before\n", "produce", "t")
	produced := make(chan struct{})
	go func() {
		defer close(produced)
		if _, errs, code := varve(t, url, "after\n", "produce", "t"); code != exitDone {
			t.Errorf("exit %d: %s", code, errs)
		}
	}()
	// The two are in different partitions, which are in no order: an interrupt after the one must not lose the other.
	out, errs, code := interrupted(t, url, []string{"before\n", "after\n"}, "consume", "t", "--follow")
	<-produced
	if code != exitDone || errs != "" || !strings.Contains(out, "before\n") || !strings.Contains(out, "after\n") {
		t.Errorf("exit %d: %q, %s", code, out, errs)
	}
}

func TestSegmentInspect(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "2")
	must(t, url, `{"partition":1,"timestamp":5,"value":"a"}`+"\n"+`{"partition":1,"timestamp":7,"value":"b"}`+"\n", "produce", "t", "--format", "record", "--keep-partitions")
	root := filepath.Join(strings.TrimPrefix(url, "file://"), "objects")
	files, err := filepath.Glob(filepath.Join(root, "r7d", "intake", "*", "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	name, err := filepath.Rel(root, files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{files[0], filepath.ToSlash(name)} {
		var s inspection
		if err := json.Unmarshal([]byte(must(t, url, "", "segment", "inspect", what, "--json")), &s); err != nil {
			t.Fatal(err)
		}
		if s.Kind != "intake" || s.Records != 2 || len(s.Extents) != 1 || s.Extents[0].Partition != 1 || s.Extents[0].MinTime.UnixMilli() != 5 || s.Extents[0].MaxTime.UnixMilli() != 7 {
			t.Errorf("%+v", s)
		}
		if out := must(t, url, "", "segment", "inspect", what); !strings.Contains(out, "intake segment") || !strings.Contains(out, "2 records, verified") {
			t.Error(out)
		}
	}
	body, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(t.TempDir(), "damaged")
	for i, b := range [][]byte{append(bytes.Clone(body[:40]), append([]byte{body[40] ^ 1}, body[41:]...)...), body[:len(body)-5], {}} {
		if err := os.WriteFile(damaged, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, errs, code := varve(t, url, "", "segment", "inspect", damaged); code != exitFailed || !strings.Contains(errs, "corrupt") {
			t.Errorf("damage %d: exit %d, %s", i, code, errs)
		}
	}
}
