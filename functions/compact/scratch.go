package compact

import (
	"errors"
	"io/fs"
	"os"
)

// scratch is where the bytes of a job wait between the order in which they are read and that in which they are written: in memory, or where they are too many in
// a temporary file.
type scratch struct {
	memory []byte
	file   *os.File
}

func newScratch(size, memory int64) (*scratch, error) {
	if size <= memory {
		return &scratch{memory: make([]byte, size)}, nil
	}
	f, err := os.CreateTemp("", "varve-compact-*")
	if err != nil {
		return nil, err
	}
	os.Remove(f.Name()) // where an open file can be removed, a crash leaves none behind
	return &scratch{file: f}, nil
}

// room is where to read n bytes that belong at a position; keep is then called with what was read.
func (s *scratch) room(at, n int64, buf []byte) []byte {
	if s.file == nil {
		return s.memory[at : at : at+n]
	}
	return buf
}

func (s *scratch) keep(at int64, b []byte) error {
	if s.file == nil {
		copy(s.memory[at:], b) // onto itself, where the room was used
		return nil
	}
	_, err := s.file.WriteAt(b, at)
	return err
}

// bytes are n bytes from a position on, the caller's to change; in buf if they are not in memory.
func (s *scratch) bytes(at, n int64, buf []byte) ([]byte, error) {
	if s.file == nil {
		return s.memory[at : at+n], nil
	}
	if int64(cap(buf)) < n {
		buf = make([]byte, n)
	}
	_, err := s.file.ReadAt(buf[:n], at)
	return buf[:n], err
}

func (s *scratch) close() error {
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	if removed := os.Remove(s.file.Name()); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return err
}
