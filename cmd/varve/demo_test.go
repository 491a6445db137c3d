package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/varvelog/varve/localdev/sample"
	"github.com/varvelog/varve/sdk"
)

// The demo's checks hold on a directory, run after run, and its figures are what was used. Its members are processes, one of which is killed.
func TestDemo(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	if !raced {
		testDemoText(t, url)
	}
	testDemoJSON(t, url)
	if out := must(t, url, "", "lag", demoGroup); !strings.HasPrefix(out, "group varve-demo  lag 0 in 8 partitions\n") {
		t.Error(out)
	}
	out := must(t, url, "", "topic", "list", "--json")
	if strings.Count(out, `"name"`) != 1 {
		t.Errorf("two runs left %s", out)
	}
	if n := strings.Count(must(t, url, "", "consume", demoTopic), "\n"); n != sample.FlightCount {
		t.Errorf("%d records in the topic", n)
	}
}

func testDemoText(t *testing.T, url string) {
	out := must(t, url, "", "demo")
	for _, want := range []string{"20000 flights", "220 origins", "154078 minutes", "ORIGIN  FLIGHTS  DELAY", "FROM_2001-02-01", "segments written", "write units", "the same on AWS    $0.000", "2026-11",
		"\ntwo processes shared the topic as members of group varve-demo", "One was killed (SIGKILL) after ", "a session time-out of 2 s", "at least once: 20000 flights, totals per origin equal to the input, and "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

func testDemoJSON(t *testing.T, url string) {
	var r demoReport
	if err := json.Unmarshal([]byte(must(t, url, "", "demo", "--json")), &r); err != nil {
		t.Fatal(err)
	}
	if r.Flights != sample.FlightCount || r.Delay != sample.FlightDelay || len(r.Origins) != sample.FlightOrigins || len(r.Partitions) != demoPartitions || r.Used.Commits == 0 || r.Used.Dollars == 0 {
		t.Errorf("%+v", r)
	}
	// The second has seen no sign of life for all of the time-out, of which one heartbeat may have passed before the kill.
	g := r.Group
	if g == nil || g.Flights != sample.FlightCount || g.Printed[0] < demoKill || g.Printed[0]+g.Printed[1]-g.Again != sample.FlightCount || g.Takeover < demoTimeout.Seconds()*0.8 {
		t.Errorf("the group: %+v", g)
	}
}

// A report that could not be written is no success.
func TestDemoOnAFullDisk(t *testing.T) {
	a, _, errs := newApp("mem://", "")
	a.out = fullDisk{}
	if code := a.run(t.Context(), []string{"demo"}); code != exitFailed || !strings.Contains(errs.String(), "broken off") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errBroken }

// tampered is the sample with one flight changed, left out or repeated, or broken off.
func tampered(change func(i int, f *sample.Flight) (times int, err error)) iter.Seq2[sample.Flight, error] {
	return func(yield func(sample.Flight, error) bool) {
		i := 0
		for f, err := range sample.Flights() {
			if err != nil {
				yield(f, err)
				return
			}
			times, err := change(i, &f)
			i++
			if err != nil {
				yield(f, err)
				return
			}
			for range times {
				if !yield(f, nil) {
					return
				}
			}
		}
	}
}

var errBroken = errors.New("broken off")

func TestDemoOfATamperedSource(t *testing.T) {
	at := func(n int, change func(f *sample.Flight) (int, error)) func(int, *sample.Flight) (int, error) {
		return func(i int, f *sample.Flight) (int, error) {
			if i != n {
				return 1, nil
			}
			return change(f)
		}
	}
	for i, c := range []struct {
		name   string
		change func(int, *sample.Flight) (int, error)
		want   string
	}{
		{"a flight left out", at(700, func(*sample.Flight) (int, error) { return 0, nil }), "19999 flights"},
		{"one repeated", at(700, func(*sample.Flight) (int, error) { return 2, nil }), "20001 flights"},
		{"a delay changed", at(700, func(f *sample.Flight) (int, error) {
			f.Delay++
			return 1, nil
		}), "154079"},
		{"line and delay apart", at(700, func(f *sample.Flight) (int, error) {
			f.Line = bytes.Replace(f.Line, []byte(`"delay":`), []byte(`"delay":1`), 1)
			return 1, nil
		}), "delay"},
		{"line and origin apart", at(700, func(f *sample.Flight) (int, error) {
			f.Origin = "ORD"
			return 1, nil
		}), "key"},
		{"broken off", at(700, func(*sample.Flight) (int, error) { return 0, errBroken }), "broken off"},
	} {
		if raced && i > 0 {
			continue // with the race detector one, make sim plays all
		}
		a, out, _ := newApp("mem://", "")
		if err := a.demo(t.Context(), tampered(c.change), false); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error that contains %q", c.name, err, c.want)
		}
		if out.Len() > 0 {
			t.Errorf("%s: reported success: %s", c.name, out)
		}
	}
}

// What was read is compared with what was produced, record by record and in order.
func TestDemoTotals(t *testing.T) {
	lines := []string{"a", "b", "c"}
	sum := func(lines ...string) *totals {
		var s totals
		for _, l := range lines {
			s.add(sample.Flight{Origin: "X", Delay: len(l), Line: []byte(l)})
		}
		return &s
	}
	want := sum(lines...)
	if err := sum(lines...).equal(want); err != nil {
		t.Error(err)
	}
	for _, got := range [][]string{{"a", "b"}, {"a", "b", "c", "c"}, {"a", "c", "b"}, {"a", "b", "d"}, {"a", "a", "c"}, nil} {
		if sum(got...).equal(want) == nil {
			t.Errorf("%q passes for %q", got, lines)
		}
	}
	more := sum(lines...)
	more.add(sample.Flight{Origin: "Y"})
	if more.equal(want) == nil {
		t.Error("an origin that was never produced passes")
	}
}

// A reader that skips or repeats an offset, or puts a record under another key or time, is found out.
func TestDemoTake(t *testing.T) {
	line := []byte(`{"time":"2001-01-01T00:47:00Z","origin":"DTW","destination":"LAS","delay":66,"distance":1750}`)
	good := sdk.Record{Offset: 1, Key: []byte("DTW"), Value: line, Timestamp: demoTime.AddDate(0, -1, 0).Add(47 * 60e9)}
	newDemo := func() *demo { return &demo{next: []int64{1}, atTime: []int64{-1}} }
	if err := newDemo().take(0, &good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*sdk.Record){
		"skipped":   func(r *sdk.Record) { r.Offset++ },
		"repeated":  func(r *sdk.Record) { r.Offset-- },
		"other key": func(r *sdk.Record) { r.Key = []byte("LAS") },
		"no key":    func(r *sdk.Record) { r.Key = nil },
		"late":      func(r *sdk.Record) { r.Timestamp = r.Timestamp.Add(1e6) },
		"cut":       func(r *sdk.Record) { r.Value = r.Value[:20] },
	} {
		r := good
		change(&r)
		if newDemo().take(0, &r) == nil {
			t.Errorf("%s: not found out", name)
		}
	}
}

// What the log says of its offsets is compared with what was read.
func TestDemoCheckOffsets(t *testing.T) {
	a, _, _ := newApp("mem://", "")
	log, err := a.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	filled := &demo{app: a, log: log}
	if err := errors.Join(filled.createTopic(t.Context()), filled.produce(t.Context(), sample.Flights())); err != nil {
		t.Fatal(err)
	}
	read := &demo{app: a, log: log}
	if err := read.readBack(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*demo){
		"":                     func(*demo) {},
		"fewer than there are": func(d *demo) { d.next[3]-- },
		"more than there are":  func(d *demo) { d.next[3]++ },
		"another for the time": func(d *demo) { d.atTime[2]++ },
		"none for the time":    func(d *demo) { d.atTime[2] = -1 },
	} {
		d := &demo{app: a, log: log, next: slices.Clone(read.next), atTime: slices.Clone(read.atTime)}
		change(d)
		if err := d.checkOffsets(t.Context()); (err == nil) != (name == "") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// sharedBy is two members' part of the demo as it stands when they have printed nothing of three flights.
func sharedBy(t *testing.T) (s *sharing, records []sdk.Record) {
	t.Helper()
	a, _, _ := newApp("mem://", "")
	s = &sharing{demo: &demo{app: a}, flights: [][]sample.Flight{make([]sample.Flight, 2), make([]sample.Flight, 1)}, missing: 3, printed: make(chan printedBy)}
	for i, line := range []string{`{"origin":"A","delay":1}`, `{"origin":"A","delay":2}`, `{"origin":"B","delay":4}`} {
		r := sdk.Record{Partition: i / 2, Offset: int64(i % 2), Key: []byte("AAB"[i : i+1]), Value: []byte(line)}
		f, err := flightOf(&r)
		if err != nil {
			t.Fatal(err)
		}
		s.sent.add(f)
		records = append(records, r)
	}
	return s, records
}

// Of two members that share a topic, what comes again is counted apart, in whatever order, and what is missing or was never produced is found out.
func TestDemoSharing(t *testing.T) {
	s, records := sharedBy(t)
	for _, p := range []struct{ member, record int }{{0, 0}, {1, 2}, {1, 0}, {1, 1}, {0, 1}} {
		if err := s.take(printedBy{member: p.member, record: records[p.record]}); err != nil {
			t.Fatal(err)
		}
	}
	if s.missing != 0 || s.Again != 2 || s.Printed != [2]int{2, 3} {
		t.Errorf("%d missing, %+v", s.missing, s.demoShared)
	}
	for name, change := range map[string]func(*sdk.Record){
		"another partition": func(r *sdk.Record) { r.Partition = 2 },
		"past the end":      func(r *sdk.Record) { r.Offset = 2 },
		"another key":       func(r *sdk.Record) { r.Key = nil },
	} {
		r := records[0]
		change(&r)
		if s.take(printedBy{record: r}) == nil {
			t.Errorf("%s: not found out", name)
		}
	}
	s, records = sharedBy(t)
	s.take(printedBy{record: records[0]})
	if err := s.check(t.Context()); err == nil || !strings.Contains(err.Error(), "origin A: read 1 flights") {
		t.Errorf("a flight is missing: %v", err)
	}
	s, records = sharedBy(t)
	go func() {
		for _, r := range records {
			s.printed <- printedBy{member: 1, record: r}
		}
	}()
	if err := s.read(t.Context()); err == nil || !strings.Contains(err.Error(), "was not killed") {
		t.Errorf("nobody was killed: %v", err)
	}
}

// A member that cannot work ends the demo, with what it said.
func TestDemoMemberEnds(t *testing.T) {
	a, _, _ := newApp("mem://", "")
	log, err := a.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	a.url = "file://" + t.TempDir() // no log is there
	d := &demo{app: a, log: log, next: []int64{1}}
	if _, err := d.share(t.Context()); err == nil || !strings.Contains(err.Error(), "has ended: EOF: varve: ") || !strings.Contains(err.Error(), "no such log") {
		t.Error(err)
	}
}
