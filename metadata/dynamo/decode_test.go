package dynamo

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// fromJSON reads an item in the service's JSON; what is no attribute value becomes nil.
func fromJSON(v any) types.AttributeValue {
	m, _ := v.(map[string]any)
	for kind, v := range m {
		switch v := v.(type) {
		case string:
			switch kind {
			case "S":
				return &types.AttributeValueMemberS{Value: v}
			case "N":
				return &types.AttributeValueMemberN{Value: v}
			case "B":
				b, _ := base64.StdEncoding.DecodeString(v)
				return &types.AttributeValueMemberB{Value: b}
			}
		case bool:
			return &types.AttributeValueMemberBOOL{Value: v}
		case []any:
			l := &types.AttributeValueMemberL{}
			for _, e := range v {
				l.Value = append(l.Value, fromJSON(e))
			}
			return l
		case map[string]any:
			return &types.AttributeValueMemberM{Value: itemFromJSON(v)}
		}
	}
	return nil
}

func itemFromJSON(m map[string]any) item {
	it := item{}
	for name, v := range m {
		it[name] = fromJSON(v)
	}
	return it
}

func toJSON(v types.AttributeValue) any {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return map[string]any{"S": v.Value}
	case *types.AttributeValueMemberN:
		return map[string]any{"N": v.Value}
	case *types.AttributeValueMemberB:
		return map[string]any{"B": base64.StdEncoding.EncodeToString(v.Value)}
	case *types.AttributeValueMemberL:
		l := []any{}
		for _, e := range v.Value {
			l = append(l, toJSON(e))
		}
		return map[string]any{"L": l}
	case *types.AttributeValueMemberM:
		return map[string]any{"M": itemToJSON(v.Value)}
	}
	panic(fmt.Sprintf("%T", v))
}

func itemToJSON(it item) map[string]any {
	m := map[string]any{}
	for name, v := range it {
		m[name] = toJSON(v)
	}
	return m
}

// The decoders on any item at all: a value that is consistent in itself, or a typed error.
func FuzzDecodeItem(f *testing.F) {
	at := segment.NewID(time.UnixMilli(1_790_000_000_000), 7, segment.InBucket, 5, segment.ID{})
	head := newHead("l", 1, 7, at)
	e := metadata.Entry{ID: at, Slots: []metadata.SlotEntry{{Slot: 3, Count: 2, Bytes: 100, MaxTime: 9}}}
	head[attrNext], head["p3"], head["f3"] = number(1), number(2), number(1)
	head[metadata.EntryAttr(at)], head[metadata.OrderAttr(at)] = binary(metadata.AppendEntry(nil, &e)), number(0)
	state := newState("l", at)
	state["a3"], state["l3"] = number(4), number(2)
	topic := topicItem(&metadata.Topic{ID: "0123456789av", Version: 1, Partitions: 1, LaneWidth: 1, Lanes: []metadata.LaneID{"l"},
		History: []metadata.Growth{{Version: 1, Partitions: 1}}, Config: metadata.DefaultTopicConfig()})
	topic["pk"], topic["sk"] = text("TOPIC"), text("t")
	gone := goneItem(&metadata.GoneTopic{ID: "0123456789av", Name: "t", Lanes: []metadata.LaneID{"l"}, Width: 8, Named: []segment.ID{at}, Deleted: time.UnixMilli(5)})
	row := metadata.Row{Topic: "0123456789av", Partition: 3, End: 9, Count: 5, Segment: segment.NewID(at.Time(), 7, segment.Archived, 5, segment.ID{}), Start: 16, Bytes: 100,
		Summed: true, Sum: segment.Sum{Records: 5, Plain: 1, Weighted: 2}, Gone: segment.Sum{Records: 4, Plain: 3, Weighted: 4}, First: time.UnixMilli(5), Last: time.UnixMilli(6)}
	items := append(groupItems(), rowItem(&row), head, state, topic, gone, chunkItem(&metadata.Chunk{Lane: "l", Entries: []metadata.Entry{e}}))
	for _, it := range items {
		b, err := json.Marshal(itemToJSON(it))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	if _, err := decodeHead("l", head); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m map[string]any
		if json.Unmarshal(b, &m) != nil {
			return
		}
		it := itemFromJSON(m)
		h, err := decodeHead("l", it)
		typed(t, err)
		if err == nil {
			for i, e := range h.Entries {
				if e.Order != h.First+int64(i) || e.Validate() != nil {
					t.Fatalf("entry %d: %+v", i, e)
				}
			}
		}
		_, err = decodeState("l", it)
		typed(t, err)
		if topic, err := decodeTopic(it); err != nil {
			typed(t, err)
		} else if err := topic.Validate(); err != nil {
			t.Fatal(err)
		}
		_, err = decodeGone(it)
		typed(t, err)
		_, err = decodeChunk(parseKey(it), it)
		typed(t, err)
		if r, err := decodeRow(it); err != nil {
			typed(t, err)
		} else if again, err := decodeRow(rowItem(r)); err != nil || *again != *r {
			t.Fatalf("%+v, and again %+v, %v", r, again, err)
		}
		_, err = reading("Identity", "", metadata.IdentityKey()).identity(it)
		typed(t, err)
		decodeGroupItems(t, it)
	})
}

// A row with sums that no row has is damage; one without has none.
func TestDecodeRowSums(t *testing.T) {
	good := metadata.Row{Topic: "0123456789av", Base: 1, End: 10, Count: 5, Segment: segment.NewID(time.UnixMilli(1_790_000_000_000), 7, segment.Archived, 5, segment.ID{}), Start: 16, Bytes: 100,
		Summed: true, Sum: segment.Sum{Records: 5, Plain: 1, Weighted: 2}, Gone: segment.Sum{Records: 4, Plain: 3, Weighted: 4}, First: time.UnixMilli(5).UTC(), Last: time.UnixMilli(6).UTC()}
	for name, c := range map[string]struct {
		attr, value string // "" is none
		bad         bool
	}{
		"as it was":                           {attrRowSum, good.Sum.String(), false},
		"nothing has gone":                    {attrRowGone, "", false},
		"none, but of what has gone":          {attrRowSum, "", true},
		"another number of records":           {attrRowSum, "4-0000000000000001-0000000000000002", true},
		"more have gone than there were":      {attrRowGone, "5-0000000000000001-0000000000000002", true},
		"none have gone, and they have a sum": {attrRowGone, "0-0000000000000001-0000000000000002", true},
		"fewer than none have gone":           {attrRowGone, "-1-0000000000000001-0000000000000002", true},
		"no sum":                              {attrRowSum, "5-1-2", true},
	} {
		it := rowItem(&good)
		if delete(it, c.attr); c.value != "" {
			it[c.attr] = text(c.value)
		}
		if r, err := decodeRow(it); c.bad != errors.Is(err, metadata.ErrCorrupt) || !c.bad && err != nil {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	it := rowItem(&good)
	delete(it, attrRowSum)
	delete(it, attrRowGone)
	if r, err := decodeRow(it); err != nil || r.Summed || r.Sum != (segment.Sum{}) || r.Gone != (segment.Sum{}) {
		t.Errorf("no sums: %+v, %v", r, err)
	}
	it[attrRowSum] = number(5)
	if _, err := decodeRow(it); !errors.Is(err, metadata.ErrCorrupt) {
		t.Errorf("a number: %v", err)
	}
}

// A row is written by one unit, however large its numbers are.
func TestRowsAreSmall(t *testing.T) {
	most := segment.Sum{Records: maxNumber, Plain: 1<<64 - 1, Weighted: 1<<64 - 1}
	end := time.UnixMilli(maxNumber)
	it := rowItem(&metadata.Row{Topic: "0123456789av", Partition: 1<<31 - 1, Base: maxNumber - 1, End: maxNumber, Count: maxNumber, Segment: segment.NewID(time.UnixMilli(1_790_000_000_000), 7, segment.Archived, 5, segment.ID{}),
		Start: maxNumber, Bytes: maxNumber, MaxTime: -maxNumber, RunMax: -maxNumber, First: end, Last: end, Summed: true, Sum: most, Gone: most})
	size := 0
	for name, v := range it {
		switch v := v.(type) {
		case *types.AttributeValueMemberS:
			size += len(name) + len(v.Value)
		case *types.AttributeValueMemberN:
			size += len(name) + 21
		default:
			t.Fatalf("%s is %T", name, v)
		}
	}
	if t.Log(size, "bytes"); size > 512 {
		t.Errorf("%d bytes", size)
	}
}

// groupItems has one item of each shape that groups have.
func groupItems() []item {
	const session = "0123456789abcdef"
	keyed := func(k metadata.Key, it item) item {
		for name, v := range keyOf(k) {
			it[name] = v
		}
		return it
	}
	plan := metadata.AppendPlan(nil, &metadata.Plan{Generation: 3, Members: []metadata.PlanMember{{Name: "m", Session: session}},
		Topics: []metadata.PlanTopic{{ID: "0123456789av", Known: 1, Owners: []int{0, metadata.NoOwner}}}})
	member := memberItem(&metadata.Member{Name: "m", Session: session, Beat: 2, Quiet: time.Second, Timeout: time.Minute, Topics: []string{"t"}, Pattern: "a.*", Client: "c"})
	member[attrTTL] = number(5)
	return []item{
		keyed(metadata.GroupKey("g"), item{attrCreated: number(5)}),
		keyed(metadata.PlanKey("g"), item{attrGeneration: number(3), attrPacked: binary(plan)}),
		keyed(metadata.MemberKey("g", "m"), member),
		keyed(metadata.OffsetsKey("g", "l"), item{"c3": number(7), "t3": number(8), "m3": text("note"), "l3": text(metadata.Lease{Session: session, Epoch: 4}.String()),
			"l5": text(metadata.Lease{Epoch: 2}.String())}),
	}
}

// decodeGroupItems decodes an item as each shape, and as its key says. What is taken for good is good: it can be written again.
func decodeGroupItems(t *testing.T, it item) {
	t.Helper()
	if g, err := decodeGroup(it); err != nil {
		typed(t, err)
	} else if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	if m, err := decodeMember("m", it); err != nil {
		typed(t, err)
	} else if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	if p, err := decodePlan(it); err != nil {
		typed(t, err)
	} else if again, err := metadata.DecodePlan(p.Generation, metadata.AppendPlan(nil, p)); err != nil || !again.Same(p) {
		t.Fatalf("%+v, again %+v: %v", p, again, err)
	}
	if l, err := decodeGroupLane("l", it); err != nil {
		typed(t, err)
	} else {
		for s, c := range l.Slots {
			if c.Offset < metadata.NoOffset || c.Lease.Epoch < 0 || c.Lease.Held() && c.Lease.Epoch < 1 {
				t.Fatalf("slot %d: %+v", s, c)
			}
		}
	}
	typed(t, addTo(&metadata.GroupState{}, it))
}

// Each shape decodes to what was written, and says what is wrong with it when it is another's.
func TestGroupItems(t *testing.T) {
	for i, it := range groupItems() {
		s := &metadata.GroupState{}
		if i > 0 {
			if err := addTo(s, it); err != nil {
				t.Error(err)
			}
		} else if _, err := decodeGroup(it); err != nil {
			t.Error(err)
		}
		decodeGroupItems(t, it)
		if n := len(s.Members) + len(s.Lanes); i > 1 && n != 1 || i == 1 && s.Plan == nil {
			t.Errorf("item %d: %+v", i, s)
		}
	}
	for what, it := range map[string]item{"no name": {"": number(1)}, "no slot": {"c": number(1)}, "slot 64": {"c64": number(1)}, "a letter": {"x1": number(1)}} {
		if _, err := decodeGroupLane("l", it); !errors.Is(err, metadata.ErrVersion) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The service takes 300 operators in an expression, and 4 KB. All 64 slots of a lane, in every kind of update, stay below.
func TestOperatorsOfGroups(t *testing.T) {
	const session = "0123456789abcdef"
	held := metadata.Lease{Session: session, Epoch: 1 << 40}
	at := time.UnixMilli(1_790_000_000_000)
	note := strings.Repeat("n", metadata.MaxCommitMetadata)
	var leases []metadata.LeaseChange
	var first, later []metadata.OffsetCommit
	var resets []metadata.OffsetReset
	step := metadata.StepOffsets{Group: "g", Lane: "l", At: at}
	for i := range metadata.SlotsPerLane {
		s := metadata.Slot(i)
		leases = append(leases, metadata.LeaseChange{Slot: s, To: held})
		first = append(first, metadata.OffsetCommit{Slot: s, Lease: held, First: true, Offset: 1 << 50, Metadata: note})
		later = append(later, metadata.OffsetCommit{Slot: s, Lease: held, Offset: 1 << 50, Metadata: note})
		resets = append(resets, metadata.OffsetReset{Slot: s, From: metadata.Committed{Offset: metadata.NoOffset, Lease: held}, Offset: 5})
		step.Moves = append(step.Moves, metadata.OffsetMove{Slot: s, Lease: held, From: metadata.NoOffset, To: 1 << 50, Metadata: note})
	}
	operator := regexp.MustCompile(`AND|OR|NOT|BETWEEN|IN|<=|>=|<>|[=<>+-]|[a-z_]+\(`)
	for what, x := range map[string]*expr{
		"leases": leasesExpr(leases), "first commit": commitsExpr(at, first), "later commit": commitsExpr(at, later), "reset": resetsExpr(at, resets), "step": stepExpr(&step),
	} {
		condition, update := *x.condition(), *x.text()
		operators, assignments := len(operator.FindAllString(condition, -1)), len(operator.FindAllString(update, -1))
		t.Logf("%s of 64 slots: %d operators in %d bytes of condition, %d in %d bytes of update", what, operators, len(condition), assignments, len(update))
		if operators >= 300 || assignments >= 300 || len(condition) > 4<<10 || len(update) > 4<<10 {
			t.Errorf("%s: too much for the service", what)
		}
	}
}

func typed(t *testing.T, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, metadata.ErrCorrupt) && !errors.Is(err, metadata.ErrVersion) {
		t.Fatalf("untyped: %v", err)
	}
}

// The service's clock from Date headers, which are cut to seconds and arrive late.
func TestServiceTime(t *testing.T) {
	var s serviceTime
	if _, ok := s.now(0); ok {
		t.Error("a time before the first answer")
	}
	base := time.UnixMilli(1_790_000_000_000) // is a whole second
	service := func(mono time.Duration) time.Time { return base.Add(mono + 300*time.Millisecond) }
	answer := func(sent, made, received time.Duration) {
		s.observe(service(made).Truncate(time.Second), sent, received)
	}
	off := func(mono time.Duration) time.Duration {
		now, ok := s.now(mono)
		if !ok {
			t.Fatal("no time")
		}
		return now.Sub(service(mono))
	}
	answer(0, 5*time.Millisecond, 10*time.Millisecond)
	if d := off(10 * time.Millisecond); d > 0 || d < -time.Second {
		t.Errorf("after one answer off by %v", d)
	}
	last, _ := s.now(10 * time.Millisecond)
	for i := range 60 { // one answer each 37 ms: some come just after a second begins
		mono := time.Duration(i)*37*time.Millisecond + 20*time.Millisecond
		answer(mono, mono+5*time.Millisecond, mono+10*time.Millisecond)
		now, _ := s.now(mono + 10*time.Millisecond)
		if now.Before(last) {
			t.Errorf("back from %v to %v", last, now)
		}
		last = now
	}
	if d := off(5 * time.Second); d > 10*time.Millisecond || d < -60*time.Millisecond {
		t.Errorf("after many answers off by %v", d)
	}
	// Our monotonic clock stood still for an hour, as in a suspended machine: one answer mends it.
	base = base.Add(time.Hour)
	answer(6*time.Second, 6*time.Second, 6*time.Second)
	if d := off(6 * time.Second); d > 0 || d < -time.Second {
		t.Errorf("after an hour's sleep off by %v", d)
	}
	base = base.Add(-time.Hour) // or ran ahead
	answer(7*time.Second, 7*time.Second, 7*time.Second)
	if d := off(7 * time.Second); d > time.Second || d < 0 {
		t.Errorf("after running ahead off by %v", d)
	}
}

// What a call's expressions may need at most stays within the service's limits.
func TestWidestExpression(t *testing.T) {
	c := metadata.Commit{Lane: "l", PadIf: false}
	for i := range metadata.MaxCommitEntries {
		e := metadata.Entry{ID: segment.NewID(time.UnixMilli(int64(i)), 7, segment.InBucket, 1, segment.ID{})}
		for s := range metadata.SlotsPerLane {
			e.Slots = append(e.Slots, metadata.SlotEntry{Slot: metadata.Slot(s), Count: 1, Bytes: 1})
		}
		c.Entries = append(c.Entries, e)
	}
	for s := range metadata.MaxCommitConditions {
		c.Expect = append(c.Expect, metadata.Expect{Slot: metadata.Slot(s)})
	}
	c.Producers = []metadata.ProducerStep{{ID: math.MaxInt64, Sequence: 1<<53 - 1}}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	x := commitExpr(&c)
	if n := len(*x.text()); n > 4096 {
		t.Errorf("the update has %d characters", n)
	}
	if n := len(*x.condition()); n > 4096 {
		t.Errorf("the condition has %d characters", n)
	}
	t.Logf("update %d characters, condition %d", len(*x.text()), len(*x.condition()))
}
