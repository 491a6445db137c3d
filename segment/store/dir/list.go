package dir

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/varvelog/varve/segment/store"
)

func (s *Store) List(ctx context.Context, prefix, after string, max int) (store.Page, error) {
	if err := store.BeginList(ctx, prefix); err != nil {
		return store.Page{}, err
	}
	l := lister{s: s, ctx: ctx, prefix: prefix, after: after, max: store.PageSize(max), page: store.Page{Last: after}}
	if err := l.folder(""); err != nil && err != errPageFull {
		return store.Page{}, wrap(store.OpList, prefix, err)
	}
	return l.page, nil
}

var errPageFull = errors.New("page is full")

// lister walks the folders in the order of object names, and enters none that cannot hold a name it wants.
type lister struct {
	s             *Store
	ctx           context.Context // of the one List that it serves
	prefix, after string
	max           int
	page          store.Page
}

// folder lists the folder that holds the names starting with base, which is empty or ends with a slash.
func (l *lister) folder(base string) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	entries, err := l.s.files.ReadDir(l.s.path(base))
	if err != nil && !(base != "" && missing(err)) {
		return err
	}
	byName := make(map[string]fs.DirEntry, len(entries))
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		name := base + e.Name()
		if store.CheckName(store.OpList, name) != nil {
			continue
		}
		if e.IsDir() {
			name += "/" // "a-b" comes before "a/b", so a folder's place is that of its name with the slash
		}
		byName[name] = e
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := l.entry(name, byName[name]); err != nil {
			return err
		}
	}
	return nil
}

func (l *lister) entry(name string, e fs.DirEntry) error {
	if strings.HasSuffix(name, "/") {
		wanted := strings.HasPrefix(name, l.prefix) || strings.HasPrefix(l.prefix, name)
		passed := name < l.after && !strings.HasPrefix(l.after, name)
		if !wanted || passed {
			return nil
		}
		return l.folder(name)
	}
	if !e.Type().IsRegular() || !strings.HasPrefix(name, l.prefix) || name <= l.after {
		return nil
	}
	if len(l.page.Objects) == l.max {
		l.page.More = true
		return errPageFull
	}
	info, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // deleted since the folder was read
	}
	if err != nil {
		return err
	}
	l.page.Objects = append(l.page.Objects, store.Info{Name: name, Size: info.Size(), Modified: info.ModTime()})
	l.page.Last = name
	return nil
}

var _ store.Store = (*Store)(nil)
