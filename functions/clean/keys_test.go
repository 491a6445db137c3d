package clean

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
)

// All but the last note of each key are superseded, however the notes are held.
func TestSupersede(t *testing.T) {
	for _, keys := range []int{1, 2, 50, 5000} {
		for _, memory := range []int64{1, 15_000, 300_000, 3 << 20} {
			const records = 8000
			t.Setenv("TMPDIR", t.TempDir())
			n, err := newNotes(records, memory)
			if err != nil {
				t.Fatal(err)
			}
			chance := rand.New(rand.NewPCG(uint64(keys), 1))
			last := map[int]int64{}
			for i := range int64(records) {
				key := chance.IntN(keys)
				last[key] = i
				if err := n.add(noteOf(fmt.Append(nil, key), i)); err != nil {
					t.Fatal(err)
				}
			}
			dead := make(bitmap, (records+63)/64)
			if err := n.supersede(dead); err != nil {
				t.Fatal(err)
			}
			left := 0
			for i := range int64(records) {
				if !dead.has(i) {
					left++
				}
			}
			for key, i := range last {
				if dead.has(i) {
					t.Errorf("%d keys, %d bytes: the last record of %d is superseded", keys, memory, key)
				}
			}
			if left != len(last) {
				t.Errorf("%d keys, %d bytes: %d are left, of %d", keys, memory, left, len(last))
			}
			if err := n.close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Notes that take more than the memory that there is for them are in files: what is held of a million is what the files' buffers take.
func TestNotesAreInFiles(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	const records, memory = 1 << 20, 64 << 10
	held := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := held()
	n, err := newNotes(records, memory)
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	for i := range int64(records) {
		if err := n.add(noteOf(fmt.Append(nil, i), i)); err != nil {
			t.Fatal(err)
		}
	}
	got := held() - before
	runtime.KeepAlive(n)
	t.Logf("%d KiB held, of %d KiB of notes", got>>10, records*int64(len(note{}))>>10)
	if got > maxBuckets*(fileBuffer+4<<10)+memory {
		t.Errorf("%d KiB", got>>10)
	}
}

// All records have one key, so all notes are in one bucket: what is held does not grow with them.
func TestNotesOfOneKey(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	const records, memory = 1 << 20, 64 << 10
	n, err := newNotes(records, memory)
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	for i := range int64(records) {
		if err := n.add(noteOf([]byte("k"), i)); err != nil {
			t.Fatal(err)
		}
	}
	dead := make(bitmap, records/64)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := n.supersede(dead); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	t.Logf("%d KiB allocated, for %d KiB of notes", (after.TotalAlloc-before.TotalAlloc)>>10, records*int64(len(note{}))>>10)
	if got := after.TotalAlloc - before.TotalAlloc; got > 256*fileBuffer+10*memory {
		t.Errorf("%d KiB", got>>10)
	}
}
