package sdk

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The numbers are those that Kafka's Java client gives for these keys.
func TestMurmur2_GoldenValues(t *testing.T) {
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("murmur2(%q) = %d, want %d", key, got, want)
		}
	}
}

func TestKeyPartitioner_AgreesWithAKafkaClient(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	ours := KeyPartitioner()("t", chance.Uint64)
	theirs := kgo.StickyKeyPartitioner(nil).ForTopic("t")
	for range 20000 {
		key := make([]byte, chance.IntN(40))
		for i := range key {
			key[i] = byte(chance.Uint32())
		}
		n := 1 + chance.IntN(200)
		if got, want := ours(&Record{Key: key}, n), theirs.Partition(&kgo.Record{Key: key}, n); got != want {
			t.Fatalf("key %x of %d partitions: %d, Kafka's is %d", key, n, got, want)
		}
	}
}

func TestKeyPartitioner_SticksWithoutAKey(t *testing.T) {
	choose := KeyPartitioner()("t", rand.New(rand.NewPCG(1, 2)).Uint64)
	r, runs, last, count := &Record{Value: make([]byte, 1023)}, 0, -1, make([]int, 8)
	for range 64 * 800 {
		p := choose(r, 8)
		if p != last {
			runs, last = runs+1, p
		}
		count[p]++
	}
	if runs < 600 || runs > 800 { // 800 choices, an eighth of which repeat the one before
		t.Errorf("%d runs of one partition", runs)
	}
	for p, n := range count {
		if n < 64*60 || n > 64*140 {
			t.Errorf("partition %d got %d of %d records", p, n, 64*800)
		}
	}
	for range 1000 {
		if p := choose(r, 3); p > 2 {
			t.Fatalf("partition %d after the count shrank to 3", p)
		}
	}
}

func TestExplicitPartitioner(t *testing.T) {
	if p := ExplicitPartitioner()("t", nil)(&Record{Partition: 7}, 3); p != 7 {
		t.Errorf("got %d, the record says 7; whether it is valid is the producer's to say", p)
	}
}

// One key of half the traffic gets the hot set to itself, once it has been noticed, and goes back when it has cooled.
func TestHotKeyPartitioner(t *testing.T) {
	chance := rand.New(rand.NewPCG(3, 4))
	choose := HotKeyPartitioner(4, 0.2)("t", chance.Uint64)
	send := func(n int, hotShare float64) (hot, cold [16]int) {
		for range n {
			if chance.Float64() < hotShare {
				hot[choose(&Record{Key: []byte("whale")}, 16)]++
			} else {
				cold[choose(&Record{Key: fmt.Append(nil, "k", chance.IntN(5000))}, 16)]++
			}
		}
		return hot, cold
	}
	send(5000, 0.5)
	hot, cold := send(20000, 0.5)
	for p := range 16 {
		switch {
		case p < 12 && hot[p] != 0:
			t.Errorf("%d hot records in partition %d of the others", hot[p], p)
		case p >= 12 && (hot[p] < 2000 || cold[p] != 0):
			t.Errorf("partition %d of the hot set has %d hot and %d other records", p, hot[p], cold[p])
		}
	}
	send(50000, 0.01)
	hot, _ = send(10000, 0.01)
	if home := keyPartition([]byte("whale"), 12); hot[home] == 0 || hot[12]+hot[13]+hot[14]+hot[15] != 0 {
		t.Errorf("cooled down, but spread as %v; its own partition is %d", hot, home)
	}
	if p := choose(&Record{Key: []byte("whale")}, 1); p != 0 {
		t.Errorf("partition %d of a topic of one", p)
	}
}

func TestHotKeyPartitioner_UniformKeysStay(t *testing.T) {
	chance := rand.New(rand.NewPCG(5, 6))
	choose := HotKeyPartitioner(2, 0.05)("t", chance.Uint64)
	for range 100000 {
		key := fmt.Append(nil, "k", chance.IntN(1000))
		if got, want := choose(&Record{Key: key}, 8), keyPartition(key, 6); got != want {
			t.Fatalf("key %s of a thousandth of the traffic went to %d, not %d", key, got, want)
		}
	}
}

func TestWidenByHeader(t *testing.T) {
	choose := WidenByHeader("device", "tenant-1")("t", nil)
	at := func(key, header, value string) int {
		return choose(&Record{Key: []byte(key), Headers: []Header{{Key: header, Value: []byte(value)}}}, 64)
	}
	used := map[int]bool{}
	for i := range 100 {
		p := at("tenant-1", "device", fmt.Sprint(i))
		if again := at("tenant-1", "device", fmt.Sprint(i)); again != p {
			t.Fatalf("device %d in %d and in %d", i, p, again)
		}
		used[p] = true
	}
	if len(used) < 40 {
		t.Errorf("100 devices in %d partitions only", len(used))
	}
	if at("tenant-1", "other", "1") != keyPartition([]byte("tenant-1"), 64) || at("tenant-2", "device", "1") != keyPartition([]byte("tenant-2"), 64) {
		t.Error("a record without the header, or of another key, does not go by its key")
	}
}

func TestWidenBySuffix(t *testing.T) {
	choose := WidenBySuffix(3, "whale")("t", nil)
	want := map[int]int{}
	for i := range 3 {
		want[keyPartition(fmt.Append(nil, "whale#", i), 64)] += 100
	}
	got := map[int]int{}
	for range 300 {
		got[choose(&Record{Key: []byte("whale")}, 64)]++
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if p := choose(&Record{Key: []byte("minnow")}, 64); p != keyPartition([]byte("minnow"), 64) {
		t.Errorf("another key went to %d", p)
	}
}

func TestPartitionersDoNotAllocate(t *testing.T) {
	chance := rand.New(rand.NewPCG(7, 8))
	keys := make([][]byte, 500)
	for i := range keys {
		keys[i] = fmt.Append(nil, "key-", i)
	}
	for name, p := range map[string]Partitioner{"key": KeyPartitioner(), "hot": HotKeyPartitioner(2, 0.1), "header": WidenByHeader("h", "key-1"), "suffix": WidenBySuffix(4, "key-1")} {
		choose, r, i := p("t", chance.Uint64), &Record{}, 0
		for range 5000 {
			r.Key = keys[chance.IntN(500)]
			choose(r, 12)
		}
		if n := testing.AllocsPerRun(1000, func() { r.Key = keys[i%500]; i++; choose(r, 12) }); n != 0 {
			t.Errorf("%s: %v allocations a record", name, n)
		}
	}
}
