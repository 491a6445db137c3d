package dir

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/varvelog/varve/segment/store"
)

// makeRoot creates the directory, those above it that are missing, and the folder for temporary files.
func (s *Store) makeRoot() error {
	known := s.root
	for {
		_, err := s.files.Stat(known)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || known == filepath.Dir(known) {
			return err
		}
		known = filepath.Dir(known)
	}
	// Another process may have made this one a moment ago. Those above it are durable: nobody makes a folder
	// before its parent is. Where the folder above may not be read, it was not such a process.
	if err := s.files.SyncDir(filepath.Dir(known)); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	s.durable[known] = true
	return s.makeFolder(filepath.Join(s.root, tempFolder))
}

// makeFolder creates the folder and those above it, and makes their entries durable.
//
// That a folder exists does not mean that it is durable: another process may have made it and be about to
// sync its parent. So each process syncs the parent of every folder that it uses, once.
func (s *Store) makeFolder(path string) error {
	s.mu.Lock()
	done := s.durable[path]
	s.mu.Unlock()
	if done {
		return nil
	}
	parent := filepath.Dir(path)
	if err := s.makeFolder(parent); err != nil {
		return err
	}
	if err := s.files.Mkdir(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := s.syncFolder(parent); err != nil {
		return err
	}
	s.mu.Lock()
	s.durable[path] = true
	s.mu.Unlock()
	return nil
}

// syncFolder makes the folder's entries durable. Once that has failed no Put succeeds any more: the disk may
// have dropped what it could not write and report success for the next attempt.
func (s *Store) syncFolder(path string) error {
	s.mu.Lock()
	failed := s.failed
	s.mu.Unlock()
	if failed != nil {
		return failed
	}
	err := s.files.SyncDir(path)
	if err == nil || missing(err) {
		return err
	}
	err = fmt.Errorf("%w: folder %s could not be synced, open the store again once the disk is well: %w", store.ErrUnavailable, path, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = err
	}
	return err
}

// sweep removes temporary files that no living Put can still be writing.
func (s *Store) sweep() error {
	folder := filepath.Join(s.root, tempFolder)
	entries, err := s.files.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || s.env.Now().Sub(info.ModTime()) < tempAge {
			continue
		}
		if err := s.files.Remove(filepath.Join(folder, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
