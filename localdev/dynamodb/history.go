package dynamodb

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb/storage"
	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// history remembers what this engine's writes of the last while replaced, so that reads can be made stale. A write
// is recorded just before it takes effect: a reader between the two sees the old item either way.
type history struct {
	keep     time.Duration // 0: nothing is remembered
	mu       sync.Mutex
	replaced []replacement // in order of time
}

type replacement struct {
	key storage.Key
	old value.Map // nil: the item was not there
	at  time.Time
}

func (h *history) record(key storage.Key, old value.Map, now time.Time) {
	if h.keep == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	gone := 0
	for gone < len(h.replaced) && now.Sub(h.replaced[gone].at) > h.keep {
		gone++
	}
	h.replaced = append(h.replaced[gone:], replacement{key, old, now})
}

// forget drops what is remembered of a table.
func (h *history) forget(table string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.replaced = slices.DeleteFunc(h.replaced, func(r replacement) bool { return r.key.Table == table })
}

// asOf reads the state of a moment: that of r, with all later replacements taken back.
func (h *history) asOf(r storage.Reader, moment time.Time) storage.Reader {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &staleReader{Reader: r, items: map[storage.Key]value.Map{}}
	for _, change := range slices.Backward(h.replaced) {
		if !change.at.After(moment) {
			break
		}
		s.items[change.key] = change.old
	}
	return s
}

// staleReader shows other items than its Reader has, or none, at some places.
type staleReader struct {
	storage.Reader
	items map[storage.Key]value.Map
}

// Get implements storage.Reader.
func (s *staleReader) Get(k storage.Key) (value.Map, error) {
	if item, ok := s.items[k]; ok {
		return item, nil
	}
	return s.Reader.Get(k)
}

// Range implements storage.Reader: it merges the items that are there with those that were.
func (s *staleReader) Range(table, partition string, within storage.Bounds, descending bool, visit storage.Visit) error {
	before := func(a, b string) bool { return (strings.Compare(a, b) < 0) != descending && a != b }
	waiting := s.within(table, partition, within)
	if descending {
		slices.Reverse(waiting)
	}
	stopped := false
	// show visits what was at the sort keys that come before next, or at all that are left.
	show := func(next string, all bool) (bool, error) {
		for len(waiting) > 0 && !stopped && (all || before(waiting[0], next)) {
			sort := waiting[0]
			waiting = waiting[1:]
			if old := s.items[storage.Key{Table: table, Partition: partition, Sort: sort}]; old != nil {
				more, err := visit(sort, old)
				if err != nil {
					return false, err
				}
				stopped = !more
			}
		}
		return !stopped, nil
	}
	err := s.Reader.Range(table, partition, within, descending, func(sort string, item value.Map) (bool, error) {
		if more, err := show(sort, false); err != nil || !more {
			return false, err
		}
		if _, replaced := s.items[storage.Key{Table: table, Partition: partition, Sort: sort}]; replaced {
			return true, nil // it waits, and is shown before the next
		}
		more, err := visit(sort, item)
		stopped = !more
		return more, err
	})
	if err != nil || stopped {
		return err
	}
	_, err = show("", true)
	return err
}

// within are the replaced sort keys of a partition, ascending.
func (s *staleReader) within(table, partition string, b storage.Bounds) []string {
	var sorts []string
	for k := range s.items {
		if k.Table == table && k.Partition == partition && b.Contains(k.Sort) {
			sorts = append(sorts, k.Sort)
		}
	}
	slices.Sort(sorts)
	return sorts
}

// NextPartition implements storage.Reader: a partition may have held items then that has none now.
func (s *staleReader) NextPartition(table string, after storage.Place) (storage.Place, bool, error) {
	next, ok, err := s.Reader.NextPartition(table, after)
	if err != nil {
		return next, ok, err
	}
	for k, old := range s.items {
		if k.Table != table || old == nil {
			continue
		}
		if at := storage.PlaceOf(k.Partition); after.Less(at) && (!ok || at.Less(next)) {
			next, ok = at, true
		}
	}
	return next, ok, nil
}
