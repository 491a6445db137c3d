package dynamo_test

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"pgregory.net/rapid"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

type attrs = map[string]types.AttributeValue

func list(vs ...types.AttributeValue) types.AttributeValue {
	return &types.AttributeValueMemberL{Value: append([]types.AttributeValue{}, vs...)}
}

func bin(b ...byte) types.AttributeValue {
	return &types.AttributeValueMemberB{Value: append([]byte{}, b...)}
}

// spoilt are values that no attribute of ours has.
var spoilt = map[string]types.AttributeValue{
	"absent":        nil,
	"null":          &types.AttributeValueMemberNULL{Value: true},
	"boolean":       &types.AttributeValueMemberBOOL{Value: true},
	"empty list":    list(),
	"list of lists": list(list(), list(list())),
	"map":           &types.AttributeValueMemberM{Value: attrs{"x": num(1)}},
	"number set":    &types.AttributeValueMemberNS{Value: []string{"1"}},
	"38 digits":     &types.AttributeValueMemberN{Value: strings.Repeat("9", 38)},
	"fraction":      &types.AttributeValueMemberN{Value: "0.5"},
	"negative":      num(-1),
	"empty binary":  bin(),
	"bytes":         bin(0xff, 0xff, 0xff),
	"a string":      str("no such thing"),
	"long list":     list(slices.Repeat([]types.AttributeValue{str("l")}, 5000)...),
}

// may lists, per attribute, the spoilt values that its reader takes all the same: what may be absent, or is free text.
var may = map[string][]string{
	"p3": {"absent"}, "f3": {"absent"}, "floor": {"absent"}, "afloor": {"absent"}, "a3": {"absent"}, "l3": {"absent"},
	"partitioner": {"a string"}, "name": {"a string"}, "bucket": {"a string"}, "prefix": {"a string"},
	"keyed": {"absent", "null", "boolean", "empty list", "list of lists", "map", "number set", "38 digits", "fraction", "negative", "empty binary", "bytes", "a string", "long list"},
	"cv":    {"absent"}, "oldest": {"absent"}, "stored": {"absent", "empty list"},
	"lanes": {"empty list"}, "classes": {"empty list"}, "left": {"empty list"},
	"mt": {"negative"}, "rm": {"negative"}, "lane": {"a string"}, "mark": {"absent"}, "next": {"absent"}, "past": {"a string"}, "b": {"bytes"},
}

// Every attribute of every item, absent, of another type, out of range, too long: a typed error that names key and attribute, never a panic.
func TestMalformedItems(t *testing.T) {
	r := newRig(t)
	lane := r.lane("lane")
	h, err := r.table.Commit(r.ctx, commitTo(r.head(lane), entry(1, 2, 3)))
	r.ok(err)
	r.ok(r.table.SetToken(r.ctx, lane, 3, 0, 1))
	_, err = r.table.SetStart(r.ctx, lane, 3, 1)
	r.ok(err)
	floor := str(entry(0, 1, 0).ID.String())
	r.ok(r.table.PutChunk(r.ctx, &metadata.Chunk{Lane: lane, First: 8, Entries: []metadata.Entry{func() metadata.Entry { e := entry(2, 1, 0); e.Order = 8; return e }()}}))
	r.ok(r.table.MarkKeyed(r.ctx, "topic-of-lane", topic("topic-of-lane").ID))
	_, err = r.table.PutIdentity(r.ctx, metadata.Identity{Log: segment.LogID{1}, Version: 1, Bucket: "b", Prefix: "p"})
	r.ok(err)
	r.put(attrs{"pk": str("LOG"), "sk": str("FLOOR"), "floor": floor})
	r.put(attrs{"pk": str("GONE"), "sk": str("0123456789av"), "name": str("t"), "lanes": list(str("l")), "classes": list(str("r7d")), "width": num(8), "deleted": num(1), "pass": num(0)})
	archived := segment.NewID(born, 7, segment.Archived, 1, segment.ID{})
	row := metadata.Row{Topic: topic("topic-of-lane").ID, End: 9, Count: 9, Segment: archived, Start: 16, Bytes: 900, MaxTime: 5, RunMax: 5, First: born, Last: born}
	r.ok(r.table.Publish(r.ctx, &metadata.Publication{Lane: lane, ID: archived, To: 8, Put: []metadata.Row{row}, Left: []segment.ID{archived}}))
	r.ok(r.table.SetSweepMark(r.ctx, metadata.SweepMark{To: archived, Next: archived, Past: "keep/intake/3f"}))
	small := segment.NewID(born, 7, segment.InTable, 1, segment.ID{})
	r.ok(r.table.PutSmall(r.ctx, small, []byte("x")))

	for _, c := range []struct {
		key   metadata.Key
		extra attrs
		read  func() error
	}{
		{metadata.HeadKey(lane), attrs{"floor": floor}, func() error { return second(r.table.Head(r.ctx, lane, true)) }},
		{metadata.StateKey(lane), attrs{"afloor": floor, "a3": num(4), "cv": num(2), "class": str("r7d"), "oldest": num(5)}, func() error { return second(r.table.State(r.ctx, lane, true)) }},
		{metadata.ChunkKey(lane, 8), nil, func() error { return second(r.table.Chunk(r.ctx, lane, 8, true)) }},
		{metadata.ChunkKey(lane, 8), nil, func() error { _, _, err := r.table.Chunks(r.ctx, lane, 0, 99, 9, true); return err }},
		{metadata.TopicKey("topic-of-lane"), nil, func() error { return second(r.table.Topic(r.ctx, "topic-of-lane")) }},
		{metadata.TopicKey("topic-of-lane"), nil, func() error { _, _, err := r.table.Topics(r.ctx, "", 9); return err }},
		{metadata.GoneKey("0123456789av"), nil, func() error { return second(r.table.Gone(r.ctx)) }},
		{metadata.IdentityKey(), nil, func() error { _, _, err := r.table.Identity(r.ctx); return err }},
		{metadata.FloorKey(), nil, func() error { return second(r.table.Floor(r.ctx)) }},
		{row.Key(), nil, func() error { return second(r.table.Row(r.ctx, row.Topic, 0, 5, true)) }},
		{row.Key(), nil, func() error { _, _, err := r.table.Rows(r.ctx, row.Topic, 0, 0, 9, 9, true); return err }},
		{metadata.ReplacedKey(archived), nil, func() error {
			_, _, err := r.table.Replaced(r.ctx, archived.Hash(), segment.ID{}, segment.NewID(born.Add(time.Hour), 0, 0, 0, segment.ID{}), 9)
			return err
		}},
		{metadata.SweepKey(), nil, func() error { return second(r.table.SweepMark(r.ctx)) }},
		{metadata.SmallKey(small), nil, func() error { return second(r.table.Small(r.ctx, small)) }},
	} {
		good := r.item(c.key)
		maps.Copy(good, c.extra)
		r.put(good)
		r.ok(c.read())
		for attr := range good {
			if attr == "pk" || attr == "sk" {
				continue
			}
			for name, value := range spoilt {
				bad := maps.Clone(good)
				if bad[attr] = value; value == nil {
					delete(bad, attr)
				}
				r.put(bad)
				err := c.read()
				if slices.Contains(may[attr], name) && err == nil {
					continue
				}
				saysVersion := slices.Contains([]string{"minv", "format", "v", "c", "config"}, attr) || isEntry(attr)
				if !errors.Is(err, metadata.ErrCorrupt) && !(saysVersion && errors.Is(err, metadata.ErrVersion)) {
					t.Errorf("%s %s %s: %v", c.key, attr, name, err)
					continue
				}
				named := attr
				if isEntry(attr) && name == "absent" {
					named = "o" + attr[1:]
				}
				if !strings.Contains(err.Error(), c.key.String()) || !strings.Contains(err.Error(), named) {
					t.Errorf("%s %s %s: the error does not name them: %v", c.key, attr, name, err)
				}
			}
		}
		r.put(good)
	}
	if after := r.head(lane); after.Next != h.Next {
		t.Error(after)
	}
}

func isEntry(attr string) bool {
	return len(attr) == len(metadata.EntryAttr(segment.ID{})) && attr[0] == 'e'
}

// A head whose parts do not fit together.
func TestInconsistentHeads(t *testing.T) {
	r := newRig(t)
	lane := r.lane("lane")
	h := r.head(lane)
	for i := range uint64(3) {
		_, err := r.table.Commit(r.ctx, commitTo(h, entry(i+1, 1, 0)))
		r.ok(err)
	}
	good := r.item(metadata.HeadKey(lane))
	id := func(n uint64) segment.ID { return entry(n, 1, 0).ID }
	producer := metadata.ProducerAttr(77)
	list := func(numbers ...int64) types.AttributeValue {
		l := &types.AttributeValueMemberL{}
		for _, n := range numbers {
			l.Value = append(l.Value, num(n))
		}
		return l
	}
	for name, spoil := range map[string]func(attrs){
		"an entry too few":  func(it attrs) { it["g"] = num(4) },
		"an entry too many": func(it attrs) { it["g"] = num(2) },
		"first above next":  func(it attrs) { it["s"] = num(4) },
		"far too many":      func(it attrs) { it["g"] = num(1 << 40) },
		"two of one order":  func(it attrs) { it[metadata.OrderAttr(id(2))] = num(0) },
		"one more of an order": func(it attrs) {
			it[metadata.EntryAttr(id(9))], it[metadata.OrderAttr(id(9))] = it[metadata.EntryAttr(id(1))], num(1)
		},
		"65 entries": func(it attrs) {
			for n := int64(3); n < 65; n++ {
				i := id(uint64(100 + n))
				it[metadata.EntryAttr(i)], it[metadata.OrderAttr(i)] = it[metadata.EntryAttr(id(1))], num(n)
			}
			it["g"] = num(65)
		},
		"an order without entry":           func(it attrs) { it[metadata.OrderAttr(id(9))] = num(1) },
		"an entry without order":           func(it attrs) { it[metadata.EntryAttr(id(9))] = it[metadata.EntryAttr(id(1))] },
		"slot 64":                          func(it attrs) { it["p64"] = num(1) },
		"slot 01":                          func(it attrs) { it["p01"] = num(1) },
		"token of slot 64":                 func(it attrs) { it["f64"] = num(1) },
		"token 0":                          func(it attrs) { it["f1"] = num(0) },
		"id that is none":                  func(it attrs) { it["e"+strings.Repeat("z", 20)] = bin(1) },
		"class that is none":               func(it attrs) { it["class"] = str("r0d") },
		"no epoch":                         func(it attrs) { delete(it, "epA") },
		"a producer that is not counted":   func(it attrs) { it[producer] = list(3, 0, 1, 2) },
		"a producer that is only counted":  func(it attrs) { it["wn"] = num(1) },
		"17 producers":                     func(it attrs) { it["wn"] = num(17) },
		"a producer of order 3":            func(it attrs) { it["wn"], it[producer] = num(1), list(3, 0, 1, 3) },
		"a producer with an order too few": func(it attrs) { it["wn"], it[producer] = num(1), list(3, 0, 1) },
		"a producer with one too many":     func(it attrs) { it["wn"], it[producer] = num(1), list(9, 0, 1, 2, 0, 1, 2) },
		"a producer without sequence":      func(it attrs) { it["wn"], it[producer] = num(1), list() },
		"a producer at 0":                  func(it attrs) { it["wn"], it[producer] = num(1), list(0) },
		"a producer that is a number":      func(it attrs) { it["wn"], it[producer] = num(1), num(1) },
		"a first sequence without order":   func(it attrs) { it["wn"], it[producer] = num(1), list(1) },
		"an order of no producer":          func(it attrs) { it[metadata.ProducerFirstAttr(77)] = num(1) },
		"a name of no producer":            func(it attrs) { it["ws0123"] = list(1) },
		"a producer floor that is text":    func(it attrs) { it["wfloor"] = str("1") },
	} {
		bad := maps.Clone(good)
		spoil(bad)
		r.put(bad)
		if h, err := r.table.Head(r.ctx, lane, metadata.Strong); !errors.Is(err, metadata.ErrCorrupt) {
			t.Errorf("%s: %+v %v", name, h, err)
		}
	}
	// What a later build of the same format may add is passed over.
	maps.Copy(good, attrs{"wfloors": str(id(1).String()), "w" + id(1).String(): num(1), "new": bin(1), "epsilon": num(1), "offset": num(1)})
	r.put(good)
	if h := r.head(lane); h.Next != 3 {
		t.Error(h)
	}
}

// What a newer build wrote and this one must not pass over is refused by version, not lost and not called corrupt.
func TestNewerVersions(t *testing.T) {
	r := newRig(t)
	lane := r.lane("lane")
	h := r.head(lane)
	head, row := r.item(metadata.HeadKey(lane)), r.item(metadata.TopicKey("topic-of-lane"))

	later := maps.Clone(head)
	maps.Copy(later, attrs{"minv": num(2), "g": str("another form")})
	r.put(later)
	_, err := r.table.Head(r.ctx, lane, metadata.Strong)
	r.is(err, metadata.ErrVersion)
	later["g"] = num(0)
	later["ep0"] = num(1) // raised together with minv, so that writers see it
	r.put(later)
	_, err = r.table.Commit(r.ctx, commitTo(h, entry(1, 1, 0)))
	if r.is(err, metadata.ErrVersion); errors.Is(err, metadata.ErrOutcomeUnknown) {
		t.Errorf("a refusal is definite: %v", err)
	}

	config := maps.Clone(row["config"].(*types.AttributeValueMemberM).Value)
	config["segment.tiering"] = str("yes")
	later = maps.Clone(row)
	later["config"] = &types.AttributeValueMemberM{Value: config}
	r.put(later)
	_, err = r.table.Topic(r.ctx, "topic-of-lane")
	if r.is(err, metadata.ErrVersion); !strings.Contains(err.Error(), "segment.tiering") {
		t.Error(err)
	}
	later = maps.Clone(row)
	later["v"] = num(2)
	r.put(later)
	_, err = r.table.Topic(r.ctx, "topic-of-lane")
	r.is(err, metadata.ErrVersion)

	r.put(attrs{"pk": str("LOG"), "sk": str("ID"), "format": num(2)})
	_, _, err = r.table.Identity(r.ctx)
	r.is(err, metadata.ErrVersion)

	// An attribute that may be passed over survives what this build does to the row.
	row["owner"] = str("a newer build")
	r.put(row)
	next := topic("topic-of-lane", lane)
	next.Version = 2
	r.ok(r.table.ReplaceTopic(r.ctx, next, 1, segment.ID{}))
	if after := r.item(metadata.TopicKey("topic-of-lane")); after["owner"] == nil {
		t.Error("it is lost")
	}
}

// Any mixture of good and spoilt attributes.
func TestAnyItem(t *testing.T) {
	r := newRig(t)
	lane := r.lane("lane")
	h := r.head(lane)
	for i := range uint64(5) {
		_, err := r.table.Commit(r.ctx, commitTo(h, entry(i+1, 1, metadata.Slot(i), 60)))
		r.ok(err)
	}
	good := r.item(metadata.HeadKey(lane))
	names := slices.Sorted(maps.Keys(good))
	values := slices.Sorted(maps.Keys(spoilt))
	rapid.Check(t, func(t *rapid.T) {
		it := maps.Clone(good)
		for range rapid.IntRange(0, 4).Draw(t, "changes") {
			attr := rapid.SampledFrom(names).Draw(t, "attribute")
			if attr == "pk" || attr == "sk" {
				continue
			}
			if rapid.Bool().Draw(t, "spoilt") {
				it[attr] = spoilt[rapid.SampledFrom(values).Draw(t, "value")]
			} else {
				it[attr] = good[rapid.SampledFrom(names).Draw(t, "other")]
			}
			if it[attr] == nil {
				delete(it, attr)
			}
		}
		r.put(it)
		h, err := r.table.Head(r.ctx, lane, metadata.Strong)
		if err != nil && !errors.Is(err, metadata.ErrCorrupt) && !errors.Is(err, metadata.ErrVersion) {
			t.Fatal(err)
		}
		if err == nil && int64(len(h.Entries)) != h.Next-h.First {
			t.Fatalf("%+v", h)
		}
	})
}

// Whatever a server answers, each call ends with a value or a typed error.
func FuzzAnswers(f *testing.F) {
	f.Add(200, []byte(`{"Item":{"pk":{"S":"L#l"},"sk":{"S":"HEAD"},"g":{"N":"1"},"s":{"N":"0"},"minv":{"N":"1"}}}`))
	f.Add(200, []byte(`{"Attributes":{"g":{"N":"99999999999999999999999999999999999999"},"minv":{"N":"1"}},"ConsumedCapacity":{"CapacityUnits":1e308}}`))
	f.Add(200, []byte(`{"Items":[{"pk":{"S":"C#l"},"sk":{"S":"00000000000000000008"},"c":{"B":"AQEAAA=="}}],"LastEvaluatedKey":{"pk":{"S":""}}}`))
	f.Add(400, []byte(`{"__type":"x#ConditionalCheckFailedException","Item":{"minv":{"N":"1"}}}`))
	f.Add(400, []byte(`{"__type":"x#TransactionCanceledException","CancellationReasons":[{"Code":"ConditionalCheckFailed","Item":{}},{}]}`))
	f.Add(200, []byte(`{"UnprocessedItems":{"varve":[{}]}}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if status < 200 || status > 599 {
			status = 400
		}
		synctest.Test(t, func(t *testing.T) {
			table, _ := scripted(t, func(int, *http.Request) (*http.Response, error) { return reply(status, string(body)) })
			ctx := t.Context()
			commit := commitTo(aHead, entry(1, 1, 0))
			typed(t, second(table.Head(ctx, "l", true)))
			typed(t, second(table.Commit(ctx, commit)))
			typed(t, table.CommitAll(ctx, "token", []metadata.Commit{commit}))
			typed(t, second(table.Trim(ctx, "l", 0, 1, []segment.ID{entry(1, 1, 0).ID})))
			typed(t, table.SetToken(ctx, "l", 0, 0, 1))
			typed(t, second(table.State(ctx, "l", true)))
			_, _, err := table.Chunks(ctx, "l", 0, 99, 9, true)
			typed(t, err)
			typed(t, second(table.Topic(ctx, "t")))
			_, _, err = table.Identity(ctx)
			typed(t, err)
			typed(t, table.CreateTopic(ctx, topic("t", "l"), segment.ID{}))
		})
	})
}

func typed(t *testing.T, err error) {
	t.Helper()
	var e *metadata.Error
	var r *metadata.RefusedError
	if err != nil && !errors.As(err, &e) && !errors.As(err, &r) {
		t.Fatalf("untyped: %v", err)
	}
}

// A head whose ends were set back would have offsets given twice: nothing is read from it, and a commit on it is not acknowledged.
func TestEndBelowItsEntries(t *testing.T) {
	r := newRig(t)
	lane := r.lane("lane")
	_, err := r.table.Commit(r.ctx, commitTo(r.head(lane), entry(1, 2, 3)))
	r.ok(err)
	h := r.head(lane)
	slot := h.Entries[0].Slots[0].Slot
	it := r.item(metadata.HeadKey(lane))
	it[metadata.EndAttr(slot)] = num(h.Ends[slot] - 1)
	r.put(it)
	if _, err := r.table.Head(r.ctx, lane, metadata.Strong); !errors.Is(err, metadata.ErrCorrupt) || !strings.Contains(err.Error(), metadata.EndAttr(slot)) {
		t.Errorf("Head: %v", err)
	}
	if _, err := r.table.Commit(r.ctx, commitTo(h, entry(2, 2, 3))); !errors.Is(err, metadata.ErrOutcomeUnknown) {
		t.Errorf("Commit: %v", err)
	}
}

// One row that cannot be read does not hide the others: who lists them is told which it is, and goes on behind it.
func TestTopicsPastAnUnreadableRow(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"a", "b", "c"} {
		r.ok(r.table.CreateTopic(r.ctx, topic(name, metadata.LaneID("lane-"+name)), segment.ID{}))
	}
	row := r.item(metadata.TopicKey("b"))
	row["width"] = str("eight")
	r.put(row)
	before, _, err := r.table.Topics(r.ctx, "", 9)
	e := r.is(err, metadata.ErrCorrupt)
	if len(before) != 1 || before[0].Name != "a" || e.Key != metadata.TopicKey("b").String() {
		t.Errorf("before the row: %v; the error is of %s", before, e.Key)
	}
	behind, _, err := r.table.Topics(r.ctx, "b", 9)
	if r.ok(err); len(behind) != 1 || behind[0].Name != "c" {
		t.Errorf("behind it: %v", behind)
	}
}
