package dir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/storetest"
)

func mustOpen(t *testing.T, path string, f files) *Store {
	t.Helper()
	s, err := open(path, env.System(), f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// quick is a disk that does not wait for its platters. What the syncs are for is tested on the model of a disk.
type quick struct{ disk }

func (quick) SyncDir(path string) error { _, err := os.Stat(path); return err }

func (quick) Create(path string) (writer, error) {
	w, err := disk{}.Create(path)
	return quickFile{w}, err
}

type quickFile struct{ writer }

func (quickFile) Sync() error { return nil }

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return mustOpen(t, t.TempDir(), quick{}) })
}

// racers is set in processes that TestSeveralProcesses starts: the directory they put into.
const racers = "VARVE_TEST_DIR_RACER"

func TestMain(m *testing.M) {
	if path := os.Getenv(racers); path != "" {
		race(path)
		return
	}
	os.Exit(m.Run())
}

// race puts objects whose body is the process's own, and prints the names of those that it won.
func race(path string) {
	s, err := Open(path, env.System())
	for i := 0; err == nil && i < 200; i++ {
		name := fmt.Sprintf("keep/intake/%02x/%03d", i%16, i)
		err = s.Put(context.Background(), name, fmt.Appendf(nil, "process %d", os.Getpid()))
		if err == nil {
			fmt.Println(name)
		}
		if errors.Is(err, store.ErrExists) {
			err = nil
		}
	}
	if err != nil {
		fmt.Println("error:", err)
	}
}

// racer is a running process.
type racer struct {
	*exec.Cmd
	out bytes.Buffer
}

func startRacers(t *testing.T, path string, n int) []*racer {
	all := make([]*racer, n)
	for i := range all {
		all[i] = &racer{Cmd: exec.Command(os.Args[0])}
		all[i].Env = append(os.Environ(), racers+"="+path)
		all[i].Stdout = &all[i].out
		if err := all[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestSeveralProcesses has four processes put other bytes under the same names, and kills one on the way.
func TestSeveralProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log", "objects")
	all := startRacers(t, path, 4)
	for range 1000 { // until there is something; then one dies in the middle
		if found, _ := filepath.Glob(filepath.Join(path, "keep/intake/*/*")); len(found) > 20 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	all[0].Process.Kill()
	won := map[string]int{} // name -> pid
	for i, p := range all {
		if err := p.Wait(); err != nil && i > 0 {
			t.Fatalf("process %d: %v", i, err)
		}
		for name := range strings.Lines(p.out.String()) {
			name = strings.TrimSpace(name)
			if strings.HasPrefix(name, "error") || won[name] != 0 {
				t.Errorf("process %d: %s, won before by %d", p.Process.Pid, name, won[name])
			}
			won[name] = p.Process.Pid
		}
	}
	s := mustOpen(t, path, disk{})
	page, err := s.List(t.Context(), "", "", 0)
	if err != nil || len(page.Objects) != 200 {
		t.Fatalf("%d objects, %v; want 200", len(page.Objects), err)
	}
	for _, o := range page.Objects {
		got, err := s.Get(t.Context(), o.Name, 0, -1, nil)
		if pid := won[o.Name]; err != nil || pid != 0 && string(got) != fmt.Sprintf("process %d", pid) || !strings.HasPrefix(string(got), "process ") {
			t.Errorf("%s is %q, %v; won by %d", o.Name, got, err, pid)
		}
	}
	t.Logf("%d names won", len(won))
}

func TestOldTemporaryFilesAreSwept(t *testing.T) {
	path := t.TempDir()
	s := mustOpen(t, path, disk{})
	old, young := filepath.Join(path, tempFolder, "old"), filepath.Join(path, tempFolder, "young")
	for _, p := range []string{old, young} {
		if err := os.WriteFile(p, []byte("half an obj"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	then := time.Now().Add(-tempAge - time.Minute)
	if err := os.Chtimes(old, then, then); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, path, disk{})
	left, err := os.ReadDir(filepath.Join(path, tempFolder))
	if err != nil || len(left) != 1 || left[0].Name() != "young" {
		t.Errorf("left are %v, %v; want the young one", left, err)
	}
}

// failing is a disk on which one sync of a folder fails.
type failing struct {
	disk
	fail *atomic.Bool
}

func (f failing) SyncDir(path string) error {
	if f.fail.CompareAndSwap(true, false) {
		return errors.New("input/output error")
	}
	return f.disk.SyncDir(path)
}

// TestNothingSucceedsAfterAFailedSync: the disk may report an error once and then claim that all is well.
func TestNothingSucceedsAfterAFailedSync(t *testing.T) {
	f := failing{fail: &atomic.Bool{}}
	s := mustOpen(t, t.TempDir(), f)
	if err := s.Put(t.Context(), "a/b", []byte("x")); err != nil {
		t.Fatal(err)
	}
	f.fail.Store(true)
	for range 2 {
		if err := s.Put(t.Context(), "a/c", []byte("x")); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("put: %v", err)
		}
	}
	if got, err := s.Get(t.Context(), "a/b", 0, -1, nil); err != nil || string(got) != "x" {
		t.Errorf("reading goes on: %q, %v", got, err)
	}
}

func TestForeignFilesAreNoObjects(t *testing.T) {
	path := t.TempDir()
	s := mustOpen(t, path, disk{})
	if err := s.Put(t.Context(), "a/b", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".hidden", "Upper", "a/space d", "a/~"} {
		if err := os.WriteFile(filepath.Join(path, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(path, "a", "b"), filepath.Join(path, "a", "link")); err != nil {
		t.Fatal(err)
	}
	page, err := s.List(t.Context(), "", "", 0)
	if err != nil || len(page.Objects) != 1 || page.Objects[0].Name != "a/b" {
		t.Errorf("%+v, %v", page, err)
	}
}

// TestObjectAndFolder: what a bucket can hold and a disk cannot is refused, not mixed up.
func TestObjectAndFolder(t *testing.T) {
	s := mustOpen(t, t.TempDir(), disk{})
	if err := s.Put(t.Context(), "a/b", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "a/b/c", "a/b/c/d"} {
		if err := s.Put(t.Context(), name, []byte("x")); !errors.Is(err, store.ErrBadName) {
			t.Errorf("put %s: %v", name, err)
		}
		if err := s.Delete(t.Context(), name); err != nil {
			t.Errorf("delete %s, which is no object: %v", name, err)
		}
	}
	if got, err := s.Get(t.Context(), "a/b", 0, -1, nil); err != nil || string(got) != "x" {
		t.Errorf("a/b: %q, %v", got, err)
	}
}

func TestOpenFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "below")} {
		var e *store.Error
		if _, err := Open(path, env.System()); !errors.Is(err, store.ErrConfig) || !errors.As(err, &e) || e.Op != store.OpOpen || e.Name != path {
			t.Errorf("open %s: %v", path, err)
		}
	}
}

// TestDirectoryRemoved: somebody removes the log under a running process.
func TestDirectoryRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	s := mustOpen(t, path, disk{})
	if err := s.Put(t.Context(), "a/b", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "a/c", []byte("x")); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("put: %v", err)
	}
	if _, err := s.Get(t.Context(), "a/b", 0, -1, nil); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("get: %v", err)
	}
	if page, err := s.List(t.Context(), "", "", 0); err == nil {
		t.Errorf("list of a directory that is gone: %+v, which looks like an empty log", page)
	}
}
