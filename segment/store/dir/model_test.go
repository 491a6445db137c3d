package dir

import (
	"bytes"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// tree is a disk in memory that knows what a loss of power would leave of it.
type tree struct {
	mu   sync.Mutex
	root *inode
}

// inode is a file or folder: what is there, and what has been made durable of it.
type inode struct {
	folder           bool
	modified         time.Time
	data, durable    []byte            // of a file
	entries, durably map[string]*inode // of a folder
}

func newTree() *tree { return &tree{root: newFolder()} }

func newFolder() *inode {
	return &inode{folder: true, entries: map[string]*inode{}, durably: map[string]*inode{}}
}

// at is what the path names, or fs.ErrNotExist. The caller holds the lock.
func (t *tree) at(path string) (*inode, error) {
	node := t.root
	for part := range strings.SplitSeq(strings.Trim(filepath.ToSlash(path), "/"), "/") {
		if part != "" {
			node = node.entries[part]
		}
		if node == nil {
			return nil, fs.ErrNotExist
		}
	}
	return node, nil
}

// enter puts node at the path, or fails with fs.ErrExist if there is something.
func (t *tree) enter(path string, node *inode) error {
	folder, err := t.at(filepath.Dir(path))
	if err != nil {
		return err
	}
	if !folder.folder {
		return syscall.ENOTDIR
	}
	name := filepath.Base(path)
	if folder.entries[name] != nil {
		return fs.ErrExist
	}
	folder.entries[name] = node
	return nil
}

func (t *tree) Mkdir(path string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.enter(path, newFolder())
}

func (t *tree) Create(path string) (writer, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	node := &inode{modified: time.Now()}
	return &treeWriter{t: t, node: node}, t.enter(path, node)
}

type treeWriter struct {
	t    *tree
	node *inode
}

func (w *treeWriter) Write(b []byte) (int, error) {
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	w.node.data = append(w.node.data, b...)
	return len(b), nil
}

func (w *treeWriter) Sync() error {
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	w.node.durable = slices.Clone(w.node.data)
	return nil
}

func (w *treeWriter) Close() error { return nil }

func (t *tree) Link(from, to string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	node, err := t.at(from)
	if err != nil {
		return err
	}
	return t.enter(to, node)
}

func (t *tree) Remove(path string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.at(path); err != nil {
		return err
	}
	folder, _ := t.at(filepath.Dir(path))
	delete(folder.entries, filepath.Base(path))
	return nil
}

func (t *tree) SyncDir(path string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	node, err := t.at(path)
	if err == nil {
		node.durably = maps.Clone(node.entries)
	}
	return err
}

func (t *tree) Open(path string) (reader, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	node, err := t.at(path)
	if err != nil {
		return nil, err
	}
	return treeReader{bytes.NewReader(node.data), info{filepath.Base(path), node}}, nil
}

type treeReader struct {
	*bytes.Reader
	info info
}

func (r treeReader) ReadAt(b []byte, off int64) (int, error) {
	if len(b) == 0 {
		return 0, nil // as files do, also at the end
	}
	return r.Reader.ReadAt(b, off)
}

func (r treeReader) Close() error               { return nil }
func (r treeReader) Stat() (fs.FileInfo, error) { return r.info, nil }

func (t *tree) Stat(path string) (fs.FileInfo, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	node, err := t.at(path)
	return info{filepath.Base(path), node}, err
}

func (t *tree) ReadDir(path string) ([]fs.DirEntry, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	node, err := t.at(path)
	if err != nil {
		return nil, err
	}
	var list []fs.DirEntry
	for name, child := range node.entries {
		list = append(list, fs.FileInfoToDirEntry(info{name, child}))
	}
	return list, nil
}

type info struct {
	name string
	node *inode
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return int64(len(i.node.data)) }
func (i info) ModTime() time.Time { return i.node.modified }
func (i info) IsDir() bool        { return i.node.folder }
func (i info) Sys() any           { return nil }
func (i info) Mode() fs.FileMode {
	if i.node.folder {
		return fs.ModeDir
	}
	return 0
}

// crash is what the disk is after a loss of power. Of everything that was not synced, keep says whether it
// survived all the same.
func (t *tree) crash(keep func() bool, chance *rand.Rand) *tree {
	return &tree{root: t.root.crash(keep, chance)}
}

func (node *inode) crash(keep func() bool, chance *rand.Rand) *inode {
	if !node.folder {
		left := node.remains(keep, chance)
		return &inode{data: left, durable: left, modified: node.modified}
	}
	left := newFolder()
	both := maps.Clone(node.entries)
	maps.Copy(both, node.durably)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		child := node.durably[name]
		if now := node.entries[name]; now != child && keep() {
			child = now
		}
		if child != nil {
			left.entries[name] = child.crash(keep, chance)
		}
	}
	left.durably = maps.Clone(left.entries)
	return left
}

// remains is what a crash leaves of a file: what was synced, or the beginning of what was written, or room for
// it that was never filled.
func (node *inode) remains(keep func() bool, chance *rand.Rand) []byte {
	if bytes.Equal(node.data, node.durable) || !keep() {
		return node.durable
	}
	if chance.IntN(2) == 0 {
		return make([]byte, len(node.data))
	}
	return node.data[:chance.IntN(len(node.data)+1)]
}
