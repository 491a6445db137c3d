package verify

import (
	"testing"
	"time"

	"github.com/varvelog/varve/segment"
)

// However much is damaged, a report lists so many findings and counts all.
func TestFindingsAreBounded(t *testing.T) {
	r := &run{report: &Report{}}
	for range MaxFindings + 100 {
		r.find(Finding{Kind: ObjectMissing})
	}
	r.find(Finding{Kind: EntryLate})
	if n := len(r.report.Findings); n != MaxFindings || r.report.Damage != MaxFindings+100 || r.report.Suspicious != 1 {
		t.Errorf("%d findings listed, %d and %d counted", n, r.report.Damage, r.report.Suspicious)
	}
}

func TestEveryKindSaysWhatToDo(t *testing.T) {
	for k, v := range kinds {
		if v.severity == "" || v.do == "" {
			t.Errorf("%s: %+v", k, v)
		}
	}
}

// A range is named; of many, some; a finding about a lane names the lane.
func TestWhere(t *testing.T) {
	span := Range{Topic: "t", Partition: 3, From: 5, To: 9}
	for _, c := range []struct {
		f    Finding
		want string
	}{
		{Finding{Ranges: []Range{span}, Object: "o", Item: "i"}, "topic t partition 3 offsets [5, 9); object o; item i"},
		{Finding{Ranges: []Range{{Topic: "t", Partition: 3, From: 5}}}, "topic t partition 3"},
		{Finding{Ranges: []Range{span, span, span, span, span, span}}, span.String() + "; " + span.String() + "; " + span.String() + "; " + span.String() + "; 2 more partitions"},
		{Finding{Item: "i", Lane: "l"}, "item i; lane l"},
	} {
		if got := c.f.Where(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// A segment is noticed again as long as it can be committed again, and of what is older it is known that it is late.
func TestRecent(t *testing.T) {
	at := func(minutes int, n uint64) segment.ID {
		return segment.NewID(time.UnixMilli(1e12).Add(time.Duration(minutes)*time.Minute), segment.Keep, segment.InBucket, n, segment.ID{})
	}
	var r recent
	for minute := range 100 {
		if _, twice := r.add(at(minute, 1), int64(minute)); twice {
			t.Fatalf("minute %d is new", minute)
		}
		if earlier, twice := r.add(at(max(minute-10, 0), 1), 1000); !twice || earlier != int64(max(minute-10, 0)) {
			t.Fatalf("minute %d, the segment of ten minutes before: order %d, %v", minute, earlier, twice)
		}
	}
	if r.late != 0 || len(r.now)+len(r.before) > 40 {
		t.Errorf("%d late, %d held", r.late, len(r.now)+len(r.before))
	}
	if r.add(at(0, 1), 2000); r.late != 1 {
		t.Errorf("%d late", r.late)
	}
}
