//go:build linux || darwin

package storage

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// updatesRecorded is how many updates are recorded. Each writes two items of one value, so that a torn one shows.
const updatesRecorded = 16

// recordUpdates runs the updates on a file through the recording layer and notes when each is acknowledged. Few pages
// of log make it checkpoint often, so that the database file is written too.
func recordUpdates(t *testing.T, spoil string) []event {
	t.Helper()
	startRecording(t)
	s, err := openSQLite(filepath.Join(t.TempDir(), "file.db"), "vfs="+recordingVFS+"&_pragma=wal_autocheckpoint(12)")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if spoil != "" {
		if err := s.writer.exec(spoil); err != nil {
			t.Fatal(err)
		}
	}
	for i := range updatesRecorded {
		err := s.Update(func(w Writer) error {
			item := value.Map{"n": value.Int(int64(i)), "pad": value.Binary(make([]byte, 500+700*(i%4)))}
			for _, sort := range []string{"x", "y"} {
				if err := w.Put(Key{"a", fmt.Sprint("p", i%5), sort}, item); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		record(event{kind: "ack", ack: i + 1})
	}
	return recorded()
}

// disk is what is on the disk after a crash. Of the writes that no sync followed, survives says which are there, and
// how much of each.
func disk(events []event, survives func(size int) int) (files map[string][]byte, acknowledged int) {
	files = map[string][]byte{}
	pending := map[string][]event{}
	settle := func(file string, keep func(int) int) {
		for _, e := range pending[file] {
			files[file] = apply(files[file], e, keep)
		}
		delete(pending, file)
	}
	whole := func(size int) int { return size }
	for _, e := range events {
		switch e.kind {
		case "write", "truncate":
			pending[e.file] = append(pending[e.file], e)
		case "sync":
			settle(e.file, whole)
		case "delete":
			delete(files, e.file)
			delete(pending, e.file)
		case "ack":
			acknowledged = e.ack
		}
	}
	for file := range maps.Keys(pending) {
		settle(file, survives)
	}
	return files, acknowledged
}

func apply(content []byte, e event, keep func(int) int) []byte {
	if e.kind == "truncate" {
		if keep(1) == 1 && e.offset < int64(len(content)) {
			content = content[:e.offset]
		}
		return content
	}
	data := e.data[:keep(len(e.data))]
	if end := int(e.offset) + len(data); len(data) > 0 && end > len(content) {
		content = append(content, make([]byte, end-len(content))...)
	}
	copy(content[min(int(e.offset), len(content)):], data)
	return content
}

// recoverUpdates opens the files of a crash and is the number of updates that are whole in it; an error says what is
// wrong. While nothing is acknowledged the tables may be missing, and are made by the ordinary way to open; after
// that a connection that never syncs does, which saves the time.
func recoverUpdates(t *testing.T, files map[string][]byte, acknowledged int) (updates int, err error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := &SQLite{}
	if file := filepath.Join(dir, "file.db"); acknowledged == 0 {
		s, err = OpenSQLite(file)
	} else {
		err = s.reader.open("file:" + file + "?_synchronous=OFF")
	}
	if err != nil {
		return 0, err
	}
	defer s.Close()
	if sound, err := one[string](&s.reader, "PRAGMA integrity_check"); err != nil || sound != "ok" {
		return 0, fmt.Errorf("integrity: %s, %w", sound, err)
	}
	err = s.View(func(r Reader) error {
		last := int64(-1)
		for partition := range 5 {
			x, errX := number64(r, Key{"a", fmt.Sprint("p", partition), "x"})
			y, errY := number64(r, Key{"a", fmt.Sprint("p", partition), "y"})
			if errX != nil || errY != nil || x != y {
				return fmt.Errorf("p%d: x is %d, y is %d (%v, %v)", partition, x, y, errX, errY)
			}
			last = max(last, x)
		}
		updates = int(last) + 1
		// Of the last five updates each partition holds one: none is missing in between.
		for partition := range 5 {
			x, _ := number64(r, Key{"a", fmt.Sprint("p", partition), "x"})
			if want := newest(updates, partition); x != want {
				return fmt.Errorf("p%d: update %d, want %d of %d", partition, x, want, updates)
			}
		}
		return nil
	})
	return updates, err
}

// number64 is an item's n, -1 if there is no item.
func number64(r Reader, k Key) (int64, error) {
	item, err := r.Get(k)
	if item == nil {
		return -1, err
	}
	var n int64
	_, err = fmt.Sscan(item["n"].(value.Number).String(), &n)
	return n, err
}

// newest is the last of the first updates that wrote to a partition, -1 if none did.
func newest(updates, partition int) int64 {
	for i := updates - 1; i >= 0; i-- {
		if i%5 == partition {
			return int64(i)
		}
	}
	return -1
}

// losses are what may become of writes that were not synced.
var losses = map[string]func(size int) int{
	"lost": func(int) int { return 0 },
	"kept": func(size int) int { return size },
	"some": func(size int) int { return size * rand.IntN(2) },
	"torn": func(size int) int { return rand.IntN(size + 1) },
}

// TestNothingIsAcknowledgedBeforeItsSync: from every prefix of what was done to the files, whatever became of the
// writes that were not synced, the file opens, is sound, and holds every acknowledged update and no part of one.
func TestNothingIsAcknowledgedBeforeItsSync(t *testing.T) {
	events := recordUpdates(t, "")
	kinds := map[string]int{}
	for _, e := range events {
		kinds[e.kind+" "+filepath.Ext(e.file)]++
	}
	t.Logf("%d events: %v", len(events), kinds)
	for _, kind := range []string{"write .db", "sync .db", "write .db-wal", "sync .db-wal"} {
		if kinds[kind] == 0 {
			t.Fatalf("no %s recorded", kind)
		}
	}
	crashes := 0
	for n := 0; n <= len(events); n += stride {
		for _, loss := range slices.Sorted(maps.Keys(losses)) {
			files, acknowledged := disk(events[:n], losses[loss])
			updates, err := recoverUpdates(t, files, acknowledged)
			if err != nil || updates < acknowledged || updates > acknowledged+1 {
				t.Fatalf("crash after %d events, unsynced writes %s: %d updates, %d acknowledged (%v)", n, loss, updates, acknowledged, err)
			}
			crashes++
		}
	}
	t.Logf("recovered from %d crashes", crashes)
}

// TestRecorderFindsLostUpdates: without syncs the same check must find an acknowledged update that is gone.
func TestRecorderFindsLostUpdates(t *testing.T) {
	events := recordUpdates(t, "PRAGMA synchronous=OFF")
	for n := range len(events) + 1 {
		files, acknowledged := disk(events[:n], losses["lost"])
		if updates, err := recoverUpdates(t, files, acknowledged); err != nil || updates < acknowledged {
			return
		}
	}
	t.Error("nothing was lost without syncs: the recorder does not see them")
}
