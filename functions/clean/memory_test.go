package clean_test

import (
	"flag"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varvelog/varve/functions/clean"
	"github.com/varvelog/varve/functions/internal/archivetest"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store/dir"
	"github.com/varvelog/varve/segment/store/fault"
)

var keys = flag.Int("keys", 30_000, "keys of TestMemoryDoesNotDependOnKeys")

// Each key comes twice, so that half of each row goes. What a pass holds is its windows and parts, a share of what it notes, and a bit for each record.
func TestMemoryDoesNotDependOnKeys(t *testing.T) {
	objects, err := dir.Open(t.TempDir(), env.System())
	check(t, err)
	w := world{archivetest.NewOn(t, objects, 1, "compact")}
	w.Batch = 1000
	const each = 10_000
	for from := 0; from < 2**keys; from += each {
		var records []segment.Record
		for i := from; i < min(from+each, 2**keys); i++ {
			records = append(records, segment.Record{Key: fmt.Appendf(nil, "key-%012d", i/2), Value: fmt.Appendf(nil, "value-%012d", i)})
		}
		w.Append(0, segment.None, records...)
		clear(w.Records)
		clear(w.Ages)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before := m.HeapAlloc
	var peak atomic.Uint64
	w.OnStore = func(fault.Call) fault.Fault {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if m.HeapAlloc > peak.Load() {
			peak.Store(m.HeapAlloc)
		}
		return fault.Fault{}
	}
	start := time.Now()
	report := w.clean(clean.Options{Memory: 8 << 20})
	p := report.Partitions[0]
	if p.Kept != int64(*keys) || p.Records != int64(2**keys) || !p.Done {
		t.Fatalf("%+v", p)
	}
	held := int64(peak.Load()) - int64(before)
	t.Logf("%d keys in %d records, %.0f MiB to %.0f MiB in %v: heap peaked at %d MiB above its start", *keys, p.Records, float64(p.Bytes)/(1<<20), float64(p.Written)/(1<<20), time.Since(start).Round(time.Second), held>>20)
	if limit := int64(200<<20) + p.Records/8; held > limit {
		t.Errorf("%d MiB, at most %d are stated", held>>20, limit>>20)
	}
}
