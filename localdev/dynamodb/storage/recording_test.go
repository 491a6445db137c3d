//go:build linux || darwin

package storage

import (
	"slices"
	"sync"
	"testing"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// recordingVFS is the name of a SQLite file layer (a VFS) that passes everything on to the machine's own and writes
// down each write, truncation, sync and deletion before it happens.
const recordingVFS = "recording"

// event is one thing done to one file. Its kind says which fields it has.
type event struct {
	kind   string // write, truncate, sync, delete; ack: an update was acknowledged
	file   string
	offset int64 // write: where; truncate: the new size
	data   []byte
	ack    int
}

// The layer's callbacks are C functions without a place for a Go value, so the recorder is global; tests that
// record do not run in parallel.
var recorder struct {
	once    sync.Once
	mu      sync.Mutex
	events  []event
	names   map[uintptr]string  // of open files, by their address
	machine uintptr             // the machine's own VFS
	methods map[uintptr]uintptr // ours -> the machine's own table of a file's methods
}

// startRecording forgets what was recorded.
func startRecording(t *testing.T) {
	t.Helper()
	recorder.once.Do(registerVFS)
	recorder.mu.Lock()
	defer recorder.mu.Unlock()
	recorder.events = nil
}

func record(e event) {
	recorder.mu.Lock()
	defer recorder.mu.Unlock()
	recorder.events = append(recorder.events, e)
}

func recorded() []event {
	recorder.mu.Lock()
	defer recorder.mu.Unlock()
	return slices.Clone(recorder.events)
}

// at is a C pointer as a Go pointer, and function a C function pointer as a Go function: in this SQLite both are
// numbers.
func at[T any](p uintptr) *T       { return *(**T)(unsafe.Pointer(&p)) }
func function[F any](p uintptr) F  { return *(*F)(unsafe.Pointer(&p)) }
func pointerTo[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }

type (
	openFunc     = func(tls *libc.TLS, vfs, name, file uintptr, flags int32, outFlags uintptr) int32
	deleteFunc   = func(tls *libc.TLS, vfs, name uintptr, syncDir int32) int32
	closeFunc    = func(tls *libc.TLS, file uintptr) int32
	writeFunc    = func(tls *libc.TLS, file, buffer uintptr, amount int32, offset int64) int32
	truncateFunc = func(tls *libc.TLS, file uintptr, size int64) int32
	syncFunc     = func(tls *libc.TLS, file uintptr, flags int32) int32
)

// registerVFS makes a copy of the machine's VFS with two functions of its own. It lives as long as the process.
func registerVFS() {
	tls := libc.NewTLS()
	recorder.names = map[uintptr]string{}
	recorder.methods = map[uintptr]uintptr{}
	recorder.machine = sqlite3.Xsqlite3_vfs_find(tls, 0)
	ours := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(sqlite3.Tsqlite3_vfs{})))
	vfs := at[sqlite3.Tsqlite3_vfs](ours)
	*vfs = *at[sqlite3.Tsqlite3_vfs](recorder.machine)
	name, err := libc.CString(recordingVFS)
	if err != nil {
		panic(err)
	}
	vfs.FpNext, vfs.FzName = 0, name
	vfs.FxOpen, vfs.FxDelete = pointerTo[openFunc](recordingOpen), pointerTo[deleteFunc](recordingDelete)
	if rc := sqlite3.Xsqlite3_vfs_register(tls, ours, 0); rc != sqlite3.SQLITE_OK {
		panic(rc)
	}
}

func machineVFS() *sqlite3.Tsqlite3_vfs { return at[sqlite3.Tsqlite3_vfs](recorder.machine) }

// recordingOpen lets the machine open the file and then exchanges its table of methods.
func recordingOpen(tls *libc.TLS, _, name, file uintptr, flags int32, outFlags uintptr) int32 {
	rc := function[openFunc](machineVFS().FxOpen)(tls, recorder.machine, name, file, flags, outFlags)
	if rc == sqlite3.SQLITE_OK && name != 0 {
		recorder.mu.Lock()
		defer recorder.mu.Unlock()
		recorder.names[file] = libc.GoString(name)
		*at[uintptr](file) = oursFor(tls, *at[uintptr](file))
	}
	return rc
}

// oursFor is a copy of a table of methods with four of our own.
func oursFor(tls *libc.TLS, theirs uintptr) uintptr {
	for ours, known := range recorder.methods {
		if known == theirs {
			return ours
		}
	}
	ours := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(sqlite3.Tsqlite3_io_methods{})))
	m := at[sqlite3.Tsqlite3_io_methods](ours)
	*m = *at[sqlite3.Tsqlite3_io_methods](theirs)
	m.FxClose, m.FxWrite = pointerTo[closeFunc](recordingClose), pointerTo[writeFunc](recordingWrite)
	m.FxTruncate, m.FxSync = pointerTo[truncateFunc](recordingTruncate), pointerTo[syncFunc](recordingSync)
	recorder.methods[ours] = theirs
	return ours
}

// opened is an open file's name and the machine's own methods for it.
func opened(file uintptr) (string, *sqlite3.Tsqlite3_io_methods) {
	recorder.mu.Lock()
	defer recorder.mu.Unlock()
	return recorder.names[file], at[sqlite3.Tsqlite3_io_methods](recorder.methods[*at[uintptr](file)])
}

func recordingClose(tls *libc.TLS, file uintptr) int32 {
	_, machine := opened(file)
	return function[closeFunc](machine.FxClose)(tls, file)
}

func recordingWrite(tls *libc.TLS, file, buffer uintptr, amount int32, offset int64) int32 {
	name, machine := opened(file)
	record(event{kind: "write", file: name, offset: offset, data: slices.Clone(unsafe.Slice(at[byte](buffer), amount))})
	return function[writeFunc](machine.FxWrite)(tls, file, buffer, amount, offset)
}

func recordingTruncate(tls *libc.TLS, file uintptr, size int64) int32 {
	name, machine := opened(file)
	record(event{kind: "truncate", file: name, offset: size})
	return function[truncateFunc](machine.FxTruncate)(tls, file, size)
}

// recordingSync is recorded when the machine's sync has returned: before that nothing is promised.
func recordingSync(tls *libc.TLS, file uintptr, flags int32) int32 {
	name, machine := opened(file)
	rc := function[syncFunc](machine.FxSync)(tls, file, flags)
	if rc == sqlite3.SQLITE_OK {
		record(event{kind: "sync", file: name})
	}
	return rc
}

func recordingDelete(tls *libc.TLS, _, name uintptr, syncDir int32) int32 {
	record(event{kind: "delete", file: libc.GoString(name)})
	return function[deleteFunc](machineVFS().FxDelete)(tls, recorder.machine, name, syncDir)
}
