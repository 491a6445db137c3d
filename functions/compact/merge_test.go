package compact_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/metadata"
)

const target = 512 << 20

var epoch = time.UnixMilli(1_790_000_000_000).UTC()

// made is a row of so many bytes that follows the others.
func made(rows []*metadata.Row, bytes int64, first, last time.Duration) []*metadata.Row {
	r := &metadata.Row{End: 1, Count: 1, Bytes: bytes, First: epoch.Add(first), Last: epoch.Add(last)}
	if n := len(rows); n > 0 {
		r.Base, r.End = rows[n-1].End, rows[n-1].End+1
	}
	return append(rows, r)
}

// merged does what is due, and returns the bytes that are rewritten.
func merged(rows []*metadata.Row, due [][2]int) (after []*metadata.Row, written int64) {
	i := 0
	for _, d := range due {
		after = append(after, rows[i:d[0]]...)
		one := *rows[d[0]]
		for _, r := range rows[d[0]+1 : d[1]] {
			one.End, one.Bytes = r.End, one.Bytes+r.Bytes
			if r.First.Before(one.First) {
				one.First = r.First
			}
			if r.Last.After(one.Last) {
				one.Last = r.Last
			}
		}
		written += one.Bytes
		after, i = append(after, &one), d[1]
	}
	return append(after, rows[i:]...), written
}

func TestMerges(t *testing.T) {
	for name, c := range map[string]struct {
		rows   func() []*metadata.Row
		bucket time.Duration
		want   string
	}{
		"none":            {func() []*metadata.Row { return nil }, 0, "[]"},
		"seven":           {func() []*metadata.Row { return times(7, 1<<20) }, 0, "[]"},
		"eight":           {func() []*metadata.Row { return times(8, 1<<20) }, 0, "[[0 8]]"},
		"of the target":   {func() []*metadata.Row { return times(20, target) }, 0, "[]"},
		"over it":         {func() []*metadata.Row { return times(9, target/2) }, 0, "[[0 2] [2 4] [4 6] [6 8]]"},
		"of two tiers":    {func() []*metadata.Row { return append(times(7, 9<<20), times(7, 2<<20)...) }, 0, "[]"},
		"seven and eight": {func() []*metadata.Row { return append(times(7, 9<<20), times(8, 2<<20)...) }, 0, "[[7 15]]"},
		"with lower ones": {func() []*metadata.Row {
			return append(append(times(7, 9<<20), made(nil, 2<<20, 0, 0)...), made(nil, 9<<20, 0, 0)...)
		}, 0, "[[0 9]]"},
		"shut in": {func() []*metadata.Row { return append(times(2, 2<<20), times(1, 9<<20)...) }, 0, "[[0 2]]"},
		"a large one between": {func() []*metadata.Row {
			return made(append(made(times(8, 1000), 9<<20, 0, 0), times(7, 1000)...), 1000, 0, 0)
		}, 0, "[[0 8] [9 17]]"},
		"larger in front": {func() []*metadata.Row { return append(times(7, 9<<20), times(7, 1000)...) }, 0, "[]"},
		"a bucket that is over": {func() []*metadata.Row {
			return made(made(made(nil, 1000, 0, time.Hour), 9<<20, time.Hour, 2*time.Hour), 1, 11*time.Hour, 11*time.Hour)
		}, 10 * time.Hour, "[[0 2]]"},
		"a row longer than a bucket": {func() []*metadata.Row {
			return made(made(made(nil, 1000, 0, 20*time.Hour), 1000, 20*time.Hour, 21*time.Hour), 1, 41*time.Hour, 41*time.Hour)
		}, 10 * time.Hour, "[]"},
		"a hundred": {func() []*metadata.Row { return times(100, 1) }, 0, "[[0 98] [98 100]]"},
	} {
		if got := fmt.Sprint(compact.Merges(c.rows(), c.bucket, target, none)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func none(*metadata.Row) bool { return false }

// TestMergesOfTheYoung: from one young row to the next, rows are merged as if there were no others; a stretch that is over waits for all of its rows.
func TestMergesOfTheYoung(t *testing.T) {
	for name, c := range map[string]struct {
		rows   []*metadata.Row
		bucket time.Duration
		young  []int
		want   string
	}{
		"behind eight":            {times(9, 1<<20), 0, []int{8}, "[[0 8]]"},
		"among eight":             {times(8, 1<<20), 0, []int{3}, "[]"},
		"between eight and eight": {times(17, 1<<20), 0, []int{8}, "[[0 8] [9 17]]"},
		"a larger one behind":     {made(times(2, 2<<20), 9<<20, 0, 0), 0, []int{2}, "[]"},
		"a bucket that is over":   {made(made(made(nil, 1, 0, 0), 1, time.Hour, time.Hour), 1, 20*time.Hour, 20*time.Hour), 10 * time.Hour, []int{1}, "[]"},
		"in the bucket after it":  {made(made(made(nil, 1, 0, 0), 1, time.Hour, time.Hour), 1, 20*time.Hour, 20*time.Hour), 10 * time.Hour, []int{2}, "[[0 2]]"},
		"all of them":             {times(20, 1<<20), 0, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}, "[]"},
	} {
		young := func(r *metadata.Row) bool { return slices.Contains(c.young, int(r.Base)) }
		if got := fmt.Sprint(compact.Merges(c.rows, c.bucket, target, young)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func times(n int, bytes int64) (rows []*metadata.Row) {
	for range n {
		rows = made(rows, bytes, 0, 0)
	}
	return rows
}

// TestMergesBound plays a partition's life: a row now and then, of any size, and what is due merged after each, at once or when it is no longer young. Rows stay as few, and
// bytes are rewritten as seldom, as docs/design.md says.
func TestMergesBound(t *testing.T) {
	for _, after := range []time.Duration{0, compact.MergeAfter} {
		for _, bucket := range []time.Duration{0, 10*time.Hour + 30*time.Minute} {
			for _, most := range []int64{64 << 10, 8 << 20, 400 << 20} {
				mergesBound(t, after, bucket, most)
			}
		}
	}
}

func mergesBound(t *testing.T, after, bucket time.Duration, most int64) {
	chance := rand.New(rand.NewPCG(1, uint64(most)))
	var rows []*metadata.Row
	var bytes, written int64
	peak := 0
	now := time.Duration(0)
	born := map[*metadata.Row]time.Duration{}
	young := func(r *metadata.Row) bool { return now-born[r] < after }
	for range 3000 / raceShare {
		now += time.Duration(chance.Int64N(int64(10 * time.Minute)))
		n := 1 + chance.Int64N(most)
		rows = made(rows, n, now-time.Minute, now)
		born[rows[len(rows)-1]] = now
		for bytes += n; ; {
			due := compact.Merges(rows, bucket, target, young)
			if len(due) == 0 {
				break
			}
			var w int64
			rows, w = merged(rows, due)
			written += w
			for _, r := range rows {
				if _, ok := born[r]; !ok {
					born[r] = now
				}
			}
		}
		stretches, waiting, runs := int64(1), int64(0), int64(1)
		if bucket > 0 {
			stretches = 2*int64(now/bucket) + 2
		}
		for _, r := range rows { // those that are young, or in one stretch with such
			if now-born[r] < after {
				runs++
			}
			if now-born[r] < after || bucket > 0 && now-r.Last.Sub(epoch) < after+bucket {
				waiting++
			}
		}
		if bound := stretches + 2*bytes/target + 7*4*runs + waiting; int64(len(rows)) > bound {
			t.Fatalf("merged after %s, bucket %s, rows of up to %d: %d rows after %s, bound %d", after, bucket, most, len(rows), now, bound)
		}
		peak = max(peak, len(rows))
		for _, r := range rows {
			if span := r.Last.Sub(r.First); bucket > 0 && span > bucket {
				t.Fatalf("a row spans %s", span)
			}
		}
	}
	if most >= 8<<20 && written > 5*bytes || after > bucket && bucket > 0 && written > bytes*3/2 { // a bucket's rows are more than one transaction takes
		t.Errorf("bucket %s, rows of up to %d: each byte rewritten %.1f times", bucket, most, float64(written)/float64(bytes))
	}
	t.Logf("merged after %s, bucket %s, rows of up to %d bytes: at most %d rows, each byte rewritten %.1f times", after, bucket, most, peak, float64(written)/float64(bytes))
}
