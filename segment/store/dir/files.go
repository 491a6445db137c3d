package dir

import (
	"io"
	"io/fs"
	"os"
)

// files is what this package asks of a disk. The tests record it, and play back what a crash leaves of it.
// Errors are those of package os.
type files interface {
	Mkdir(path string) error // fs.ErrExist if there is one
	Create(path string) (writer, error)
	Link(from, to string) error // fs.ErrExist if there is something at to
	Remove(path string) error
	SyncDir(path string) error // makes the entries of the folder durable
	Open(path string) (reader, error)
	Stat(path string) (fs.FileInfo, error)
	ReadDir(path string) ([]fs.DirEntry, error)
}

type writer interface {
	io.WriteCloser
	Sync() error // makes the bytes durable; the name is the folder's affair
}

type reader interface {
	io.ReaderAt
	io.Closer
	Stat() (fs.FileInfo, error)
}

type disk struct{}

func (disk) Mkdir(path string) error                    { return os.Mkdir(path, 0o755) }
func (disk) Link(from, to string) error                 { return os.Link(from, to) }
func (disk) Remove(path string) error                   { return os.Remove(path) }
func (disk) Open(path string) (reader, error)           { return os.Open(path) }
func (disk) Stat(path string) (fs.FileInfo, error)      { return os.Lstat(path) }
func (disk) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }

func (disk) Create(path string) (writer, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
}

func (disk) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
