package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/localdev/sim"
)

// story is histories and a log by hand. Time goes on with each line.
type story struct {
	lines []line
	found *content
	at    int64
}

func (s *story) add(by string, l line) {
	s.at += int64(time.Second)
	l.By, l.At = by, s.at
	if l.Kind == committed || l.Kind == sampled {
		l.Asked = s.at - 1
	}
	s.lines = append(s.lines, l)
}

// appends appends a record and is told its offset, or why not.
func (s *story) appends(by string, l line, offset int64, why *failure) {
	l.Kind = append_
	s.add(by, l)
	s.add(by, line{Kind: accepted, Value: l.Value})
	s.add(by, line{Kind: told, Value: l.Value, Offset: offset, Failure: why})
}

// log is what is found of a partition.
func (s *story) log(topic string, start, end int64, records ...line) {
	at := sim.Partition{Topic: topic}
	for i := range records {
		records[i].Kind, records[i].Topic = read, topic
	}
	s.found.records[at], s.found.starts[at], s.found.ends[at] = records, start, end
}

func (s *story) records(topic string) []line { return s.found.records[sim.Partition{Topic: topic}] }

// drop takes the lines out for which is tells so.
func (s *story) drop(is func(l line) bool) { s.lines = slices.DeleteFunc(s.lines, is) }

// sound is a story in which everybody has seen what is right.
func sound() *story {
	s := &story{found: &content{records: map[sim.Partition][]line{}, starts: map[sim.Partition]int64{}, ends: map[sim.Partition]int64{}}}
	for _, by := range []string{"p.1", "r.1", "m.1", "s.1", "c.1"} {
		s.add(by, line{Kind: born})
	}
	s.appends("p.1", line{Topic: orders, Value: "p.1/0"}, 0, nil)
	s.appends("p.1", line{Topic: orders, Value: "p.1/1"}, 1, nil)
	s.appends("p.1", line{Topic: orders, Value: "p.1/failed"}, 0, &failure{Number: 1, Text: "too late"})
	for _, v := range []string{"p.1/2", "p.1/3"} {
		s.add("p.1", line{Kind: append_, Topic: orders, Value: v, Call: 1, Loose: true})
	}
	s.add("p.1", line{Kind: told, Value: "p.1/2", Offset: 2})
	s.add("p.1", line{Kind: told, Value: "p.1/3", Offset: 3})
	s.log(orders, 0, 4, line{Value: "p.1/0"}, line{Value: "p.1/1", Offset: 1}, line{Value: "p.1/2", Offset: 2}, line{Value: "p.1/3", Offset: 3})
	s.add("r.1", line{Kind: begins, Topic: orders})
	for _, l := range s.records(orders) {
		s.add("r.1", l)
	}
	s.group("m.1", working)
	s.group("s.1", stepping)
	s.appends("c.1", line{Topic: web, Value: "c/7/1/0", Call: 1}, 0, nil)
	s.log(web, 0, 1, line{Value: "c/7/1/0"})
	s.appends("p.1", line{Topic: latest, Key: "k", Value: "p.1/k0"}, 0, nil)
	s.appends("p.1", line{Topic: latest, Key: "k", Value: "p.1/k1"}, 1, nil)
	s.log(latest, 0, 2, line{Key: "k", Value: "p.1/k1", Offset: 1})
	for i, v := range []string{"p.1/w0", "p.1/w1", "p.1/w2"} {
		s.appends("p.1", line{Topic: window, Value: v}, int64(i), nil)
	}
	s.appends("p.1", line{Topic: window, Value: "p.1/wf"}, 0, &failure{Number: 2, Text: "too late"})
	s.log(window, 1, 3, line{Value: "p.1/w1", Offset: 1}, line{Value: "p.1/w2", Offset: 2})
	for _, l := range s.records(window) {
		s.add("r.1", l)
	}
	s.add("p.1", line{Kind: ended})
	return s
}

// group is a group of one member, which reads orders and makes results if it is the stepping one.
func (s *story) group(by, group string) {
	s.add(by, line{Kind: assigned, Group: group, Topic: orders})
	var made []line
	for _, l := range s.records(orders) {
		l.Group, l.Kind = group, given
		s.add(by, l)
		l.Kind = finished
		s.add(by, l)
		if group == stepping {
			made = append(made, line{Value: by + "/of-" + l.Value, Offset: l.Offset})
			s.appends(by, line{Topic: results, Value: made[l.Offset].Value, Call: l.Offset + 1, Loose: true, From: &source{group, orders, 0, l.Offset}}, l.Offset, nil)
		}
		s.add(by, line{Kind: committed, Group: group, Topic: orders, Offset: l.Offset + 1})
	}
	s.add("w.1", line{Kind: sampled, Group: group, Topic: orders, Offset: 4})
	if group == stepping {
		s.log(results, 0, 4, made...)
	}
}

// What is planted is found, and nothing where nothing is.
func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(s *story)
		want  string // of a violation; empty: none
	}{
		"nothing":   {func(*story) {}, ""},
		"lost":      {func(s *story) { s.log(orders, 0, 3, s.records(orders)[:3]...) }, "p.1/3 to orders-0: acknowledged at 3, and not in the log"},
		"duplicate": {func(s *story) { s.log(orders, 0, 5, append(s.records(orders), line{Value: "p.1/0", Offset: 4})...) }, "in the log twice"},
		"nobody's":  {func(s *story) { s.log(orders, 0, 5, append(s.records(orders), line{Value: "x", Offset: 4})...) }, "nobody sent it"},
		"reordered": {func(s *story) {
			r := s.records(orders)
			r[0].Value, r[1].Value = r[1].Value, r[0].Value
		}, "p.1/1 to orders-0 is at 0, before p.1/0"},
		"failed, and there": {func(s *story) {
			s.log(orders, 0, 5, append(s.records(orders), line{Value: "p.1/failed", Offset: 4})...)
		}, "though its owner was told: topic"},
		"unknown, and there": {func(s *story) {
			s.lines[slices.IndexFunc(s.lines, func(l line) bool { return l.Failure != nil })].Failure.Unknown = true
			s.log(orders, 0, 5, append(s.records(orders), line{Value: "p.1/failed", Offset: 4})...)
		}, ""},
		"told of another's":  {func(s *story) { s.add("p.1", line{Kind: told, Value: "x"}) }, "which it has not appended"},
		"half of a call":     {func(s *story) { s.log(orders, 0, 3, s.records(orders)[:3]...) }, "which was to go with it"},
		"offsets not dense":  {func(s *story) { s.records(orders)[3].Offset = 4 }, "judge was given offset 4 of orders-0, where 3 comes next"},
		"end too high":       {func(s *story) { s.log(orders, 0, 5, s.records(orders)...) }, "orders-0 ends at 5, and 4 records can be read"},
		"reader skips":       {func(s *story) { s.drop(func(l line) bool { return l.By == "r.1" && l.Offset == 1 }) }, "r.1 was given offset 2 of orders-0, where 1 comes next"},
		"reader sees others": {func(s *story) { s.add("r.1", line{Kind: read, Topic: orders, Offset: 4, Value: "x"}) }, "not in the log there"},
		"reader complains":   {func(s *story) { s.add("r.1", line{Kind: wrong, Text: "corrupt data"}) }, "corrupt data"},
		"never told":         {func(s *story) { s.drop(func(l line) bool { return l.Kind == told && l.Value == "p.1/0" }) }, "its owner was never told"},
		"never told, being dead": {func(s *story) {
			s.drop(func(l line) bool { return l.Kind == told && l.Value == "p.1/0" || l.Kind == ended })
		}, ""},
		"client never told": {func(s *story) { s.drop(func(l line) bool { return l.Kind == told && l.Value == "c/7/1/0" }) }, "its owner was never told"},
		"committed back":    {func(s *story) { s.add("w.1", line{Kind: sampled, Group: working, Topic: orders, Offset: 2}) }, "though 4 was committed before"},
		"not handled": {func(s *story) {
			s.drop(func(l line) bool { return l.Kind == finished && l.By == "m.1" && l.Offset == 2 })
		}, "nobody has finished 2"},
		"given, not owning": {func(s *story) {
			s.add("m.1", line{Kind: lost, Group: working, Topic: orders})
			s.add("m.1", line{Kind: given, Group: working, Topic: orders, Offset: 3, Value: "p.1/3"})
		}, "after it had learnt that it lost it"},
		"no result": {func(s *story) { s.log(results, 0, 3, s.records(results)[:3]...) }, "record 3 of orders-0 of group stepping has 0 results"},
		"two results": {func(s *story) {
			s.appends("s.1", line{Topic: results, Value: "again", Call: 9, Loose: true, From: &source{stepping, orders, 0, 0}}, 4, nil)
			s.log(results, 0, 5, append(s.records(results), line{Value: "again", Offset: 4})...)
		}, "record 0 of orders-0 of group stepping has 2 results"},
		"latest of a key gone":     {func(s *story) { s.log(latest, 0, 2) }, "p.1/k1 was acknowledged at 1 of latest-0"},
		"kept record gone":         {func(s *story) { s.log(window, 1, 3, s.records(window)[:1]...) }, "p.1/w2 was acknowledged at 2 of window-0"},
		"kept record moved":        {func(s *story) { s.records(window)[1].Offset = 3 }, "p.1/w2 was acknowledged at 2 of window-0, and is at 3"},
		"kept record twice":        {func(s *story) { s.log(window, 1, 4, append(s.records(window), line{Value: "p.1/w1", Offset: 3})...) }, "p.1/w1 is in the log twice"},
		"kept records reordered":   {func(s *story) { w := s.records(window); w[0].Offset, w[1].Offset = 2, 1 }, "p.1/w2 is at 1 of window-0, before p.1/w1 at 2"},
		"failed one kept":          {func(s *story) { s.log(window, 1, 4, append(s.records(window), line{Value: "p.1/wf", Offset: 3})...) }, "though its owner was told: too late"},
		"nobody's kept":            {func(s *story) { s.log(window, 1, 4, append(s.records(window), line{Value: "x", Offset: 3})...) }, "nobody sent it there"},
		"reader of kept goes back": {func(s *story) { s.add("r.1", line{Kind: read, Topic: window, Offset: 1, Value: "p.1/w1"}) }, "r.1 was given offset 1 of window-0, behind 2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := sound()
			c.plant(s)
			v := judged(s.lines, s.found)
			if c.want == "" && !v.ok() {
				t.Errorf("found %q", v.violations)
			}
			if !slices.ContainsFunc(v.violations, func(x string) bool { return strings.Contains(x, c.want) }) && c.want != "" {
				t.Errorf("found %q, want %q", v.violations, c.want)
			}
		})
	}
}

// A record that was accepted after a failure was told may be in the log; before the last promise that returned before it, it may not.
func TestJudgeFailures(t *testing.T) {
	for name, between := range map[string]bool{"before": false, "perhaps after": true} {
		t.Run(name, func(t *testing.T) {
			s := sound()
			for _, v := range []string{"fails", "stays"} {
				s.add("p.1", line{Kind: append_, Topic: orders, Value: v})
				if v == "stays" && between {
					s.appends("p.1", line{Topic: window, Value: "p.1/w3"}, 3, nil)
				}
				s.add("p.1", line{Kind: accepted, Value: v})
			}
			if !between {
				s.appends("p.1", line{Topic: window, Value: "p.1/w3"}, 3, nil)
			}
			s.log(window, 1, 4, append(s.records(window), line{Value: "p.1/w3", Offset: 3})...)
			s.add("p.1", line{Kind: told, Value: "fails", Failure: &failure{Number: 9, Text: "too late"}})
			s.add("p.1", line{Kind: told, Value: "stays", Offset: 4})
			s.log(orders, 0, 5, append(s.records(orders), line{Value: "stays", Offset: 4})...)
			if v := judged(s.lines, s.found); v.ok() != between {
				t.Errorf("found %q", v.violations)
			}
		})
	}
}
