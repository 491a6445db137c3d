package sdk_test

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

func memLog(t *testing.T) *sdk.Log {
	t.Helper()
	memory, err := embedded.NewMemory(embedded.MemoryOptions{Objects: newObjects(t)})
	if err != nil {
		t.Fatal(err)
	}
	log, err := sdk.Open(t.Context(), "mem://", sdk.WithDriver(memory))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		log.Close()
		memory.Close()
	})
	return log
}

func createTopic(t *testing.T, log *sdk.Log, n sdk.NewTopic) *sdk.Topic {
	t.Helper()
	topic, err := log.Admin().CreateTopic(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return topic
}

// produce appends values to partitions, as many to each as given, of so many bytes.
func produce(t *testing.T, log *sdk.Log, topic string, size int, counts ...int) {
	t.Helper()
	p, err := log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()), sdk.WithLinger(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	for partition, n := range counts {
		for i := range n {
			value := fmt.Sprintf("%d/%d %s", partition, i, strings.Repeat("x", size))
			r := p.ProduceSync(t.Context(), &sdk.Record{Topic: topic, Partition: partition, Value: []byte(value)})
			if err := r.Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// badNames are names that no topic may have.
var badNames = []string{"", ".", "..", "a/b", "/a", "a/", "%2e%2e", "a b", "a\nb", "a\x00b", "é", "e\u0301", strings.Repeat("n", 250), "a#b", "a|b", "a:b", "a\\b", "TOPIC|x", "L#x"}

// goodNames are at the edge of the set, or words of the table's own keys: they must not meet anything of the log's.
var goodNames = []string{"a", "A", "...", "-", "_", strings.Repeat("n", 249), "TOPIC", "GONE", "LOG", "HEAD", "STATE", "ID", "FLOOR", "varve.json", "keep", "r7d", "intake", "orders", "orders-archive", "orders2", "Orders"}

func TestBR46_NamesThroughTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := memLog(t)
		admin := log.Admin()
		for _, name := range badNames {
			for what, do := range map[string]func() error{
				"create":   func() error { _, err := admin.CreateTopic(t.Context(), sdk.NewTopic{Name: name}); return err },
				"describe": func() error { _, err := admin.DescribeTopic(t.Context(), name); return err },
				"alter":    func() error { _, err := admin.AlterTopic(t.Context(), name, sdk.Alteration{Partitions: 9}); return err },
				"delete":   func() error { return admin.DeleteTopic(t.Context(), name) },
				"offsets":  func() error { _, err := admin.Offsets(t.Context(), name); return err },
			} {
				var f *sdk.FieldError
				if err := do(); !errors.As(err, &f) || f.Field != "topic name" || f.Value != name || !errors.Is(err, sdk.ErrInvalid) {
					t.Errorf("%s %q: %v", what, name, err)
				}
			}
		}
		for _, name := range goodNames {
			createTopic(t, log, sdk.NewTopic{Name: name, Partitions: 1})
			produce(t, log, name, 1, 1)
		}
		if err := admin.DeleteTopic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := admin.CleanTopics(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Hour)
		}
		list, err := admin.ListTopics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var listed []string
		for _, topic := range list {
			listed = append(listed, topic.Name)
			if o, err := admin.Offsets(t.Context(), topic.Name); err != nil || o[0].End != 1 {
				t.Errorf("%q: %v, %v", topic.Name, o, err)
			}
		}
		want := slices.DeleteFunc(slices.Sorted(slices.Values(goodNames)), func(s string) bool { return s == "orders" })
		if !slices.Equal(listed, want) {
			t.Errorf("listed %q, want %q", listed, want)
		}
	})
}

func TestCreateTopicDefaults(t *testing.T) {
	log := memLog(t)
	topic := createTopic(t, log, sdk.NewTopic{Name: "t"})
	want := map[string]string{metadata.RetentionMs: "604800000", metadata.RetentionBytes: "-1", metadata.CleanupPolicy: "delete", metadata.MaxMessageBytes: "1048576", metadata.TimestampType: "CreateTime"}
	if topic.Partitions != 8 || topic.Lanes != 1 || topic.LaneWidth != 64 {
		t.Errorf("%+v", topic)
	}
	for name, value := range want {
		if topic.Config[name] != value {
			t.Errorf("%s is %q, want %q", name, topic.Config[name], value)
		}
	}
	var f *sdk.FieldError
	for _, n := range []sdk.NewTopic{
		{Name: "x", Partitions: -1}, {Name: "x", Partitions: 49*64 + 1}, {Name: "x", LaneWidth: 65},
		{Name: "x", Config: map[string]string{"retention.hours": "1"}}, {Name: "x", Config: map[string]string{"retention.ms": "soon"}},
		{Name: "x", Config: map[string]string{"max.message.bytes": "0"}},
	} {
		if _, err := log.Admin().CreateTopic(t.Context(), n); !errors.As(err, &f) || f.Topic != "x" || f.Valid == "" {
			t.Errorf("%+v: %v", n, err)
		}
	}
	if _, err := log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: "t"}); !errors.Is(err, sdk.ErrTopicExists) {
		t.Error(err)
	}
}

// Listing goes past one page.
func TestListTopics(t *testing.T) {
	log := memLog(t)
	if list, err := log.Admin().ListTopics(t.Context()); err != nil || list == nil || len(list) > 0 {
		t.Errorf("an empty log: %v, %v", list, err)
	}
	for i := range 205 {
		createTopic(t, log, sdk.NewTopic{Name: fmt.Sprintf("t%03d", i), Partitions: 1})
	}
	list, err := log.Admin().ListTopics(t.Context())
	if err != nil || len(list) != 205 || list[204].Name != "t204" {
		t.Errorf("%d topics, %v", len(list), err)
	}
}

func TestDescribeTopicHottestFirst(t *testing.T) {
	log := memLog(t)
	createTopic(t, log, sdk.NewTopic{Name: "t", Partitions: 4, LaneWidth: 2})
	produce(t, log, "t", 10, 30, 0, 5)     // partition 0 has most records; spilled
	produce(t, log, "t", 5000, 0, 0, 0, 2) // partition 3 most bytes
	d, err := log.Admin().DescribeTopic(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	var order []int
	var records, bytes float64
	for _, l := range d.Load {
		order = append(order, l.Partition)
		records += l.RecordShare
		bytes += l.ByteShare
		if want := []int64{30, 0, 5, 2}[l.Partition]; l.Records != want || l.End != want || l.Start != 0 || l.RecentRecords != want {
			t.Errorf("%+v", l)
		}
	}
	if d.Load[0].RecentBytes <= d.Load[1].RecentBytes || order[3] != 1 || d.Load[3].RecentBytes != 0 {
		t.Errorf("order %v: %+v", order, d.Load)
	}
	if records < 0.999 || records > 1.001 || bytes < 0.999 || bytes > 1.001 {
		t.Errorf("shares add up to %f and %f", records, bytes)
	}
	if _, err := log.Admin().DescribeTopic(t.Context(), "none"); !errors.Is(err, sdk.ErrUnknownTopic) || !strings.Contains(err.Error(), `"none"`) {
		t.Error(err)
	}
}

func TestDeleteRecords(t *testing.T) {
	log := memLog(t)
	admin := log.Admin()
	createTopic(t, log, sdk.NewTopic{Name: "t", Partitions: 2})
	produce(t, log, "t", 1, 10, 10)
	if start, err := admin.DeleteRecords(t.Context(), "t", 1, 4); err != nil || start != 4 {
		t.Fatal(start, err)
	}
	if start, err := admin.DeleteRecords(t.Context(), "t", 1, 2); err != nil || start != 4 {
		t.Errorf("a log start went back: %d, %v", start, err)
	}
	_, err := admin.DeleteRecords(t.Context(), "t", 1, 11)
	var r *sdk.RangeError
	if !errors.As(err, &r) || !errors.Is(err, sdk.ErrOutOfRange) || r.Topic != "t" || r.Partition != 1 || r.Start != 4 || r.End != 10 {
		t.Errorf("%v", err)
	}
	if _, err := admin.DeleteRecords(t.Context(), "t", 1, -1); !errors.Is(err, sdk.ErrInvalid) {
		t.Error(err)
	}
	for _, p := range []int{-1, 2, 1 << 40} {
		_, err := admin.DeleteRecords(t.Context(), "t", p, 0)
		var f *sdk.FieldError
		if !errors.Is(err, sdk.ErrNoPartition) || !errors.As(err, &f) || f.Topic != "t" || f.Partition != p || f.Valid != "0 to 1" {
			t.Errorf("partition %d: %v", p, err)
		}
	}
	// Everything: the end stays, and the next append goes on from there (BR-08).
	if start, err := admin.DeleteRecords(t.Context(), "t", 1, 10); err != nil || start != 10 {
		t.Fatal(start, err)
	}
	produce(t, log, "t", 1, 0, 1)
	offsets, err := admin.Offsets(t.Context(), "t")
	want := []sdk.PartitionOffsets{{Partition: 0, Start: 0, End: 10}, {Partition: 1, Start: 10, End: 11}}
	if err != nil || !reflect.DeepEqual(offsets, want) {
		t.Errorf("%+v, %v", offsets, err)
	}
}

func TestSetFence(t *testing.T) {
	log := memLog(t)
	admin := log.Admin()
	createTopic(t, log, sdk.NewTopic{Name: "t", Partitions: 2})
	if token, err := admin.Fence(t.Context(), "t", 1); err != nil || token != 0 {
		t.Fatal(token, err)
	}
	if err := admin.SetFence(t.Context(), "t", 1, 0, 7); err != nil {
		t.Fatal(err)
	}
	if err := admin.SetFence(t.Context(), "t", 1, 0, 7); !errors.Is(err, sdk.ErrChanged) {
		t.Errorf("a second owner of one token: %v", err)
	}
	for _, c := range [][2]int64{{7, 7}, {7, 6}, {-1, 3}} {
		if err := admin.SetFence(t.Context(), "t", 1, c[0], c[1]); !errors.Is(err, sdk.ErrInvalid) {
			t.Errorf("%v: %v", c, err)
		}
	}
	if err := admin.SetFence(t.Context(), "t", 1, 7, 8); err != nil {
		t.Error(err)
	}
	if token, err := admin.Fence(t.Context(), "t", 1); err != nil || token != 8 {
		t.Error(token, err)
	}
	if token, err := admin.Fence(t.Context(), "t", 0); err != nil || token != 0 {
		t.Error("another partition's token:", token, err)
	}
}

func TestOffsetForTime(t *testing.T) {
	log := memLog(t)
	createTopic(t, log, sdk.NewTopic{Name: "t", Partitions: 1})
	p, err := log.NewProducer()
	if err != nil {
		t.Fatal(err)
	}
	at := func(s int) time.Time { return time.Unix(1_000_000_000+int64(s), 0) }
	for _, s := range []int{2, 4, 6, 8} {
		if err := p.ProduceSync(t.Context(), &sdk.Record{Topic: "t", Timestamp: at(s)}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for s, want := range map[int]int64{1: 0, 2: 0, 3: 1, 8: 3} {
		if got, err := log.Admin().OffsetForTime(t.Context(), "t", 0, at(s)); err != nil || got != want {
			t.Errorf("at %d: %d, %v", s, got, err)
		}
	}
	if _, err := log.Admin().OffsetForTime(t.Context(), "t", 0, at(9)); !errors.Is(err, sdk.ErrNoOffset) {
		t.Error(err)
	}
	if _, err := log.Admin().OffsetForTime(t.Context(), "t", 1, at(9)); !errors.Is(err, sdk.ErrNoPartition) {
		t.Error(err)
	}
	p.Close(t.Context())
}

func TestReadSegment(t *testing.T) {
	log := memLog(t)
	for _, name := range []string{"", "../x", "varve.json", "r7d/intake/zz/0"} {
		if _, err := log.Admin().ReadSegment(t.Context(), name); !errors.Is(err, sdk.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Growth through the API: a keyed topic needs a yes.
func TestBR28_GrowKeyed(t *testing.T) {
	log := memLog(t)
	createTopic(t, log, sdk.NewTopic{Name: "t", Partitions: 2})
	p, err := log.NewProducer()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.ProduceSync(t.Context(), &sdk.Record{Topic: "t", Key: []byte("k")}).Err(); err != nil {
		t.Fatal(err)
	}
	p.Close(t.Context())
	_, err = log.Admin().AlterTopic(t.Context(), "t", sdk.Alteration{Partitions: 4})
	var moves *sdk.KeysMoveError
	if !errors.As(err, &moves) || moves.From != 2 || moves.To != 4 {
		t.Errorf("%v", err)
	}
	topic, err := log.Admin().AlterTopic(t.Context(), "t", sdk.Alteration{Partitions: 4, MoveKeys: true})
	if err != nil || topic.Partitions != 4 || !topic.Keyed {
		t.Errorf("%+v, %v", topic, err)
	}
	if _, err := log.Admin().AlterTopic(t.Context(), "t", sdk.Alteration{Partitions: 2}); !errors.Is(err, sdk.ErrInvalid) {
		t.Error(err)
	}
}

// Deleted and created again: the new topic starts at 0 with nothing of the old one, whose handles fail, typed.
func TestBR27_TopicCreatedAgain(t *testing.T) {
	log := memLog(t)
	admin := log.Admin()
	old := createTopic(t, log, sdk.NewTopic{Name: "t", Partitions: 1})
	produce(t, log, "t", 1, 10)
	oldReader, err := log.NewReader(t.Context(), "t", sdk.From(sdk.AtOffset(10)))
	if err != nil {
		t.Fatal(err)
	}
	defer oldReader.Close()
	if err := admin.DeleteTopic(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	if again := createTopic(t, log, sdk.NewTopic{Name: "t", Partitions: 1}); again.ID == old.ID {
		t.Errorf("both have id %s", old.ID)
	}
	produce(t, log, "t", 1, 5)
	if _, err := oldReader.Poll(t.Context()); !errors.Is(err, sdk.ErrTopicGone) {
		t.Errorf("a reader of the old topic: %v", err)
	}
	r, err := log.NewReader(t.Context(), "t", sdk.To(sdk.Latest))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	next := int64(0)
	for {
		fetches, err := r.Poll(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range fetches[0].Records {
			if x.Offset != next {
				t.Errorf("offset %d, want %d", x.Offset, next)
			}
			next++
		}
	}
	if next != 5 {
		t.Errorf("%d records in the new topic", next)
	}
}
