package sweep

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// long makes a lane of n chunks of one record a commit, that were spilled long ago, without objects.
func (w *world) long(t *metadata.Topic, chunks int) {
	w.t.Helper()
	lane := t.Lanes[0]
	for range chunks {
		var entries []metadata.Entry
		for range metadata.ChunkOrders {
			entries = append(entries, metadata.Entry{ID: w.id(time.Now(), segment.InBucket), Start: 16, Slots: []metadata.SlotEntry{{Count: 1, Bytes: 100}}})
		}
		_, err := w.commitAll(lane, entries...)
		check(w.t, err)
		w.spill(lane)
	}
}

// measure sweeps after that time, and returns what it took.
func (w *world) measure(what string, after time.Duration) string {
	w.t.Helper()
	time.Sleep(after)
	w.table.off, w.counts = true, map[string]int{} // all requests
	_, told, err := w.sweep(w.options())
	check(w.t, err)
	line := fmt.Sprintf("%s: %d deleted", what, len(told))
	for _, op := range slices.Sorted(maps.Keys(w.counts)) {
		line += fmt.Sprintf(", %s %d", op, w.counts[op])
	}
	w.t.Log(line)
	return line
}

// A sweep costs what is new since the last one, and something for each lane: not more in a log that is a hundred times as long.
func TestCostIsWhatIsNew(t *testing.T) {
	var seen []string
	lengths := []int{50, 200, 1000}
	if raced {
		lengths = []int{40, 80}
	}
	for _, chunks := range lengths {
		inBubble(t, func(t *testing.T, w *world) {
			topic := w.topic("orders", 1, 1)
			w.long(topic, chunks)
			time.Sleep(10 * time.Hour)
			_, _, err := w.sweep(w.options())
			check(t, err)
			measure := func(what string, after time.Duration) { seen = append(seen, w.measure(what, after)) }
			measure("nothing new, at once", 0)
			measure("nothing new, hours later", 4*time.Hour)
			w.fill(16, part{topic, 0, 1})
			measure("16 commits", 4*time.Hour)
		})
	}
	n := len(seen) / len(lengths)
	for i, line := range seen {
		if line != seen[i%n] {
			t.Errorf("a longer log costs more: %s\nnot %s", line, seen[i%n])
		}
	}
}

// The same where nearly all of it is in the archive: a run costs what has been compacted since, whether there are a hundred archive segments below or more than a listing's page. What
// compaction replaced then goes, and costs the same too.
func TestCostOfAnArchiveIsWhatIsNew(t *testing.T) {
	var seen []string
	lengths := []int{100, 1200}
	if raced {
		lengths = []int{20, 40}
	}
	for _, segments := range lengths {
		inBubble(t, func(t *testing.T, w *world) {
			topic := w.topic("orders", 1, 1)
			lane := topic.Lanes[0]
			for range segments {
				w.long(topic, 2)
				w.compact(topic, lane)
				time.Sleep(time.Minute)
			}
			w.start(topic, 0, 20) // within the second row
			for range 2 {
				time.Sleep(RestoreWindow + time.Hour)
				_, _, err := w.sweep(w.options())
				check(t, err)
			}
			if rows := w.rows(topic, 0); len(rows) != min(1000, segments-1) {
				t.Fatalf("%d rows", len(rows))
			}
			measure := func(what string, after time.Duration) { seen = append(seen, w.measure(what, after)) }
			measure("nothing new", 4*time.Hour)
			w.fill(16, part{topic, 0, 1})
			w.compact(topic, lane)
			w.fill(8, part{topic, 0, 1})
			measure("16 commits, compacted", 4*time.Hour)
			measure("out of the restore window", RestoreWindow)
		})
	}
	n := len(seen) / len(lengths)
	for i, line := range seen {
		if line != seen[i%n] {
			t.Errorf("a longer log costs more: %s\nnot %s", line, seen[i%n])
		}
	}
}

// What is superseded costs two requests to read a segment's footer, besides a thousandth of a DELETE; of segments that several lanes share too, as long as all
// let go of them.
func TestCostOfSuperseded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.topic("a", 1, 1), w.topic("b", 1, 1)
		const n = 64
		both := []part{{a, 0, 1}, {b, 0, 1}}
		if b.Lanes[0] < a.Lanes[0] {
			slices.Reverse(both)
		}
		w.fill(n+8, both...)
		w.compact(a, a.Lanes[0])
		w.compact(b, b.Lanes[0])
		time.Sleep(2 * time.Hour)
		w.swept()
		time.Sleep(RestoreWindow)
		w.counts = map[string]int{}
		_, told, err := w.sweep(w.options())
		check(t, err)
		t.Logf("%d deletions: %v", len(told), w.counts)
		if w.counts["stat"] != n+8+1 || w.counts["delete"] != 1 || w.counts["get"] != n+8+1+2 { // besides: varve.json, by one of each, and the footers of the two archive segments
			t.Errorf("%v, for %d segments", w.counts, n+8)
		}
	})
}

// BR-44: no item grows with history: 20,000 segments of one partition (800 with the race detector) leave items as large as a tenth of them, but for the digits of numbers.
func TestBR44_NoItemGrows(t *testing.T) {
	largest := func(chunks int) (most, items int) {
		inBubble(t, func(t *testing.T, w *world) {
			w.long(w.topic("orders", 1, 1), chunks)
			pages := client.NewScanPaginator(w.raw, &client.ScanInput{TableName: aws.String("varve"), ConsistentRead: aws.Bool(true)})
			for pages.HasMorePages() {
				page, err := pages.NextPage(t.Context())
				check(t, err)
				for _, item := range page.Items {
					most = max(most, itemSize(&types.AttributeValueMemberM{Value: item}))
				}
				items += len(page.Items)
			}
		})
		return most, items
	}
	chunks := 2500
	if raced {
		chunks = 100
	}
	short, few := largest(chunks / 10)
	long, many := largest(chunks)
	t.Logf("%d segments: %d items, the largest of %d bytes; %d: %d items, %d bytes", chunks/10*8, few, short, chunks*8, many, long)
	if many < few+chunks/2 || long > short+16 {
		t.Errorf("%d items of at most %d bytes, then %d of at most %d", few, short, many, long)
	}
}

// itemSize is about what DynamoDB counts: names and values.
func itemSize(v types.AttributeValue) (n int) {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberN:
		return len(v.Value)
	case *types.AttributeValueMemberB:
		return len(v.Value)
	case *types.AttributeValueMemberL:
		for _, e := range v.Value {
			n += 1 + itemSize(e)
		}
	case *types.AttributeValueMemberM:
		for name, e := range v.Value {
			n += len(name) + itemSize(e)
		}
	}
	return n
}
