package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// disk is a file system of limited size, in memory.
type disk struct{ path string }

// newDisk mounts one at the path. It takes root.
func newDisk(path string, bytes int64) (*disk, error) {
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, err
	}
	if err := syscall.Mount("varve-chaos", path, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		return nil, fmt.Errorf("mount a file system of limited size: %w", err)
	}
	return &disk{path}, nil
}

func (d *disk) ballast() string { return filepath.Join(d.path, "ballast") }

// fill fills it up to the last byte.
func (d *disk) fill() error {
	f, err := os.Create(d.ballast())
	if err != nil {
		return err
	}
	defer f.Close()
	for piece := make([]byte, 1<<20); len(piece) > 0; {
		n, err := f.Write(piece)
		if errors.Is(err, syscall.ENOSPC) && n == 0 {
			piece = piece[:len(piece)/2]
		} else if err != nil && !errors.Is(err, syscall.ENOSPC) {
			return err
		}
	}
	return nil
}

// free frees it again, and tells how many bytes there are.
func (d *disk) free() (int64, error) {
	if err := os.Remove(d.ballast()); err != nil {
		return 0, err
	}
	var s syscall.Statfs_t
	err := syscall.Statfs(d.path, &s)
	return int64(s.Bavail) * s.Bsize, err
}

func (d *disk) close() error { return syscall.Unmount(d.path, syscall.MNT_DETACH) }
