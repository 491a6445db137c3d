package bench

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestForget(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "deep")
	if err := os.Mkdir(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(folder, &fs); err != nil {
		t.Fatal(err)
	}
	if fs.Type == unix.TMPFS_MAGIC {
		t.Skip("the folder of temporary files is in memory, which has nothing to forget: TMPDIR names another")
	}
	f, err := os.Create(filepath.Join(folder, "object"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 4<<20)); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if n := resident(t, f); n == 0 {
		t.Fatal("nothing of what was just written is in memory")
	}
	if err := forget(filepath.Dir(folder)); err != nil {
		t.Fatal(err)
	}
	if n := resident(t, f); n != 0 {
		t.Errorf("%d pages are still in memory", n)
	}
}

// resident counts the file's pages that are in memory.
func resident(t *testing.T, f *os.File) (n int) {
	t.Helper()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	m, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	pages := make([]byte, (len(m)+os.Getpagesize()-1)/os.Getpagesize())
	if err := mincore(m, pages); err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		n += int(p & 1)
	}
	return n
}

func mincore(m, pages []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&pages[0])))
	if errno != 0 {
		return errno
	}
	return nil
}
