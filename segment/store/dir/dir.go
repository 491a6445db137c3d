// Package dir is a store in a directory of a local disk: object name = file name. A file appears under its
// name whole or not at all, and Put answers when file and folders would survive a loss of power. Several
// processes may use one directory at the same time.
//
// The disk must have hard links: linking is the one step that both names a finished file and fails if the
// name is taken. It cannot hold both an object "a" and an object "a/b".
package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/segment/store"
)

const (
	tempFolder = ".tmp"    // no object's: parts of names do not start with '.'
	tempAge    = time.Hour // what was last written to longer ago was left by a crash: between two writes there are seconds
)

// Store implements store.Store.
type Store struct {
	root  string
	env   env.Env
	files files

	mu      sync.Mutex
	durable map[string]bool // folders whose entry in their parent this process has synced
	failed  error           // of the first sync of a folder that failed
}

// Open opens the store in the directory, creating it if need be, and removes what crashed processes have left
// half-written.
func Open(path string, e env.Env) (*Store, error) { return open(path, e, disk{}) }

func open(path string, e env.Env, f files) (*Store, error) {
	root, err := filepath.Abs(path)
	if err != nil {
		return nil, store.Fail(store.OpOpen, path, fmt.Errorf("%w: %w", store.ErrConfig, err))
	}
	s := &Store{root: root, env: e, files: f, durable: map[string]bool{}}
	if err := s.makeRoot(); err != nil {
		return nil, wrap(store.OpOpen, path, err)
	}
	if err := s.sweep(); err != nil {
		return nil, wrap(store.OpOpen, path, err)
	}
	return s, nil
}

// Put writes a file of its own, syncs it, and only then links it to its name.
//
// Somebody else may have linked the same bytes to the name and not have synced the folder yet; the answer must
// not rest on that, so the folder is synced in that case too.
func (s *Store) Put(ctx context.Context, name string, body []byte) error {
	return s.PutPieces(ctx, name, [][]byte{body})
}

// PutPieces is Put, by as many writes as there are pieces.
func (s *Store) PutPieces(ctx context.Context, name string, pieces [][]byte) error {
	if err := store.Begin(ctx, store.OpPut, name); err != nil {
		return err
	}
	path := s.path(name)
	return wrap(store.OpPut, name, s.put(path, func(w io.Writer) error { return writeAll(w, pieces) }, func() error { return s.compare(path, pieces) }))
}

// PutParts writes each part as it comes, so that it holds one at a time. What is named is never compared: nobody repeats it.
func (s *Store) PutParts(ctx context.Context, name string, next func() ([]byte, error)) (int64, error) {
	if err := store.Begin(ctx, store.OpPut, name); err != nil {
		return 0, err
	}
	path, parts := s.path(name), store.NewParts(name, next)
	err := s.put(path, func(w io.Writer) error { return writeParts(ctx, w, parts) }, func() error { return s.taken(path) })
	if err != nil {
		return 0, wrap(store.OpPut, name, err)
	}
	return parts.Size, nil
}

func writeAll(w io.Writer, pieces [][]byte) error {
	for _, p := range pieces {
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	return nil
}

func writeParts(ctx context.Context, w io.Writer, parts *store.Parts) error {
	for {
		part, err := parts.Next(ctx)
		if err == io.EOF {
			return nil
		}
		if err == nil {
			_, err = w.Write(part)
		}
		if err != nil {
			return err
		}
	}
}

// put creates the file of what fill writes. When the path is taken, taken says what that means.
func (s *Store) put(path string, fill func(io.Writer) error, taken func() error) error {
	folder := filepath.Dir(path)
	if err := s.makeFolder(folder); err != nil {
		return err
	}
	temp, err := s.writeTemp(fill)
	if err != nil {
		return err
	}
	err = s.files.Link(temp, path)
	s.files.Remove(temp) // if that fails, a later Open sweeps it
	switch {
	case errors.Is(err, fs.ErrExist):
		if err := taken(); err != nil {
			return err
		}
	case errors.Is(err, syscall.EPERM), errors.Is(err, errors.ErrUnsupported):
		return fmt.Errorf("%w: the disk must have hard links: %w", store.ErrConfig, err)
	case err != nil:
		return err
	}
	return s.syncFolder(folder)
}

// writeTemp lets fill write a new file and syncs it. Its name need not survive a crash.
func (s *Store) writeTemp(fill func(io.Writer) error) (path string, err error) {
	path = filepath.Join(s.root, tempFolder, fmt.Sprintf("%016x", s.env.Uint64()))
	f, err := s.files.Create(path)
	if err != nil {
		return "", err
	}
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		s.files.Remove(path)
	}
	return path, err
}

// taken says what is at a path that could not be linked to.
func (s *Store) taken(path string) error {
	switch info, err := s.files.Stat(path); {
	case err != nil && !missing(err):
		return err
	case err == nil && !info.Mode().IsRegular():
		return errFolder
	}
	return store.ErrExists
}

var errFolder = fmt.Errorf("%w: there is a folder of that name", store.ErrBadName)

// compare is nil if the file has these bytes.
func (s *Store) compare(path string, pieces [][]byte) error {
	there, err := s.read(path, 0, -1, nil, nil)
	switch {
	case errors.Is(err, errNoFile):
		return errFolder
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: it was there, and has been deleted", store.ErrUnavailable)
	case err != nil:
		return err
	case !store.EqualPieces(there, pieces):
		return store.ErrExists
	}
	return nil
}

func (s *Store) Get(ctx context.Context, name string, off, n int64, dst []byte) ([]byte, error) {
	return s.GetStream(ctx, name, off, n, dst, nil)
}

// GetStream is Get, by a read for each StreamBytes.
func (s *Store) GetStream(ctx context.Context, name string, off, n int64, dst []byte, seen func([]byte)) ([]byte, error) {
	if err := store.Begin(ctx, store.OpGet, name); err != nil {
		return nil, err
	}
	b, err := s.read(s.path(name), off, n, dst, seen)
	return b, wrap(store.OpGet, name, err)
}

func (s *Store) read(path string, off, n int64, dst []byte, seen func([]byte)) ([]byte, error) {
	f, err := s.files.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNoFile
	}
	end, err := store.Range(off, n, info.Size())
	if err != nil {
		return nil, err
	}
	dst = slices.Grow(dst[:0], int(end-off))[:end-off]
	if err := readAt(f, dst, off, seen); err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return dst, nil
}

// readAt fills b from byte off of the file on, in one go unless somebody wants to see it come.
func readAt(f io.ReaderAt, b []byte, off int64, seen func([]byte)) error {
	if seen == nil {
		_, err := f.ReadAt(b, off)
		return err
	}
	for at := 0; at < len(b); {
		end := min(at+store.StreamBytes, len(b))
		if _, err := f.ReadAt(b[at:end], off+int64(at)); err != nil {
			return err
		}
		seen(b[:end])
		at = end
	}
	return nil
}

func (s *Store) Stat(ctx context.Context, name string) (store.Info, error) {
	if err := store.Begin(ctx, store.OpStat, name); err != nil {
		return store.Info{}, err
	}
	info, err := s.files.Stat(s.path(name))
	if err == nil && !info.Mode().IsRegular() {
		err = errNoFile
	}
	if err != nil {
		return store.Info{}, wrap(store.OpStat, name, err)
	}
	return store.Info{Name: name, Size: info.Size(), Modified: info.ModTime()}, nil
}

// Delete removes the files and syncs their folders: a file that came back after a crash would be found by
// nobody, since what named it is gone. A folder is synced also for a file that was not there, because another
// process may have removed it and not have synced yet.
func (s *Store) Delete(ctx context.Context, names ...string) error {
	if err := store.Begin(ctx, store.OpDelete, names...); err != nil {
		return err
	}
	folders := map[string]string{} // and one name in each
	for _, name := range names {
		if info, err := s.files.Stat(s.path(name)); err == nil && !info.Mode().IsRegular() {
			continue
		}
		if err := s.files.Remove(s.path(name)); err != nil && !missing(err) {
			return wrap(store.OpDelete, name, err)
		}
		if folder := filepath.Dir(s.path(name)); folders[folder] == "" {
			folders[folder] = name
		}
	}
	for folder, name := range folders {
		if err := s.syncFolder(folder); err != nil && !missing(err) {
			return wrap(store.OpDelete, name, err)
		}
	}
	return nil
}

func (s *Store) path(name string) string { return filepath.Join(s.root, filepath.FromSlash(name)) }

// errNoFile is what is in place of an object if it is a folder or the like.
var errNoFile = fmt.Errorf("%w: not a file", fs.ErrNotExist)

// missing tells whether nothing is at the path, be it that a part of it is a file.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// wrap gives an error of the disk its class.
func wrap(op store.Op, name string, err error) error {
	switch _, made := err.(*store.Error); {
	case err == nil:
		return nil
	case made, classified(err):
	case op == store.OpOpen && missing(err):
		err = fmt.Errorf("%w: it, or a folder above it, is not a directory: %w", store.ErrConfig, err)
	case op == store.OpPut && errors.Is(err, syscall.ENOTDIR):
		err = fmt.Errorf("%w: a part of it is an object: %w", store.ErrBadName, err)
	case op == store.OpPut && missing(err):
		err = fmt.Errorf("%w: a folder that was there is gone: %w", store.ErrUnavailable, err)
	case missing(err):
		err = fmt.Errorf("%w: %w", store.ErrNotExist, err)
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("%w: %w", store.ErrDenied, err)
	default:
		err = fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return store.Fail(op, name, err)
}

// classified tells whether this package made the error, or the caller's context.
func classified(err error) bool {
	for _, c := range []error{store.ErrExists, store.ErrShort, store.ErrBadName, store.ErrConfig, store.ErrUnavailable, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, c) {
			return true
		}
	}
	return false
}
