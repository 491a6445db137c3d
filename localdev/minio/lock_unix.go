//go:build unix

package minio

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// lockFile locks the file until it is closed here and in every process that it was handed to. However these end, the lock is then free.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return nil, errors.Join(fmt.Errorf("%s: %w", path, ErrInUse), f.Close())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// hold hands the lock to the process: where it outlives its parent, nobody else gets at its data.
func hold(c *exec.Cmd, lock *os.File) { c.ExtraFiles = []*os.File{lock} }
