package storage

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// Memory keeps everything in memory. The lock is held for computing only.
type Memory struct {
	mu     sync.Mutex
	closed bool
	tables map[string]*memoryTable
	tokens map[string]memoryToken
	// recent are the tokens in the order they came, so that old ones are found without a search.
	recent []string
}

type memoryTable struct {
	definition []byte
	partitions map[string]*memoryPartition
	// places are the partitions in order; nil when they have to be sorted anew.
	places []Place
}

// memoryPartition holds items in the order of their sort keys.
type memoryPartition struct {
	sorts []string
	items []value.Map
}

type memoryToken struct {
	digest string
	at     time.Time
}

// NewMemory is an empty store.
func NewMemory() *Memory {
	return &Memory{tables: map[string]*memoryTable{}, tokens: map[string]memoryToken{}}
}

// View implements Store.
func (m *Memory) View(read func(Reader) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	return read(m)
}

// Update implements Store.
func (m *Memory) Update(change func(Writer) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	w := &memoryWriter{Memory: m}
	if err := change(w); err != nil {
		return err
	}
	for _, write := range w.writes {
		write()
	}
	return nil
}

// Close implements Store.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed, m.tables, m.tokens = true, nil, nil
	return nil
}

// Table implements Reader.
func (m *Memory) Table(name string) ([]byte, error) {
	if t := m.tables[name]; t != nil {
		return t.definition, nil
	}
	return nil, nil
}

// Tables implements Reader.
func (m *Memory) Tables(after string, limit int) ([]string, error) {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(m.tables)) {
		if name > after && len(names) < limit {
			names = append(names, name)
		}
	}
	return names, nil
}

func (m *Memory) partition(table, partition string) *memoryPartition {
	if t := m.tables[table]; t != nil {
		return t.partitions[partition]
	}
	return nil
}

// Get implements Reader.
func (m *Memory) Get(k Key) (value.Map, error) {
	if p := m.partition(k.Table, k.Partition); p != nil {
		if i, ok := slices.BinarySearch(p.sorts, k.Sort); ok {
			return p.items[i], nil
		}
	}
	return nil, nil
}

// Range implements Reader.
func (m *Memory) Range(table, partition string, within Bounds, descending bool, visit Visit) error {
	p := m.partition(table, partition)
	if p == nil {
		return nil
	}
	first, _ := slices.BinarySearch(p.sorts, within.From)
	end := len(p.sorts)
	if within.HasTo {
		end, _ = slices.BinarySearchFunc(p.sorts, within.To, func(sort, to string) int {
			if sort <= to {
				return -1
			}
			return 1
		})
	}
	for n := range end - first {
		i := first + n
		if descending {
			i = end - 1 - n
		}
		if more, err := visit(p.sorts[i], p.items[i]); err != nil || !more {
			return err
		}
	}
	return nil
}

// NextPartition implements Reader.
func (m *Memory) NextPartition(table string, after Place) (Place, bool, error) {
	t := m.tables[table]
	if t == nil {
		return Place{}, false, nil
	}
	if t.places == nil {
		for partition := range t.partitions {
			t.places = append(t.places, PlaceOf(partition))
		}
		slices.SortFunc(t.places, comparePlaces)
	}
	i, found := slices.BinarySearchFunc(t.places, after, comparePlaces)
	if found {
		i++
	}
	if i == len(t.places) {
		return Place{}, false, nil
	}
	return t.places[i], true, nil
}

func comparePlaces(a, b Place) int {
	return cmp.Or(cmp.Compare(a.Hash, b.Hash), cmp.Compare(a.Partition, b.Partition))
}

// Token implements Reader.
func (m *Memory) Token(token string) (string, time.Time, bool, error) {
	t, ok := m.tokens[token]
	return t.digest, t.at, ok, nil
}

// memoryWriter collects writes until it is known that all of them are wanted.
type memoryWriter struct {
	*Memory
	writes []func()
}

func (w *memoryWriter) later(write func()) error {
	w.writes = append(w.writes, write)
	return nil
}

// PutTable implements Writer.
func (w *memoryWriter) PutTable(name string, definition []byte) error {
	return w.later(func() {
		if t := w.tables[name]; t != nil {
			t.definition = definition
			return
		}
		w.tables[name] = &memoryTable{definition: definition, partitions: map[string]*memoryPartition{}}
	})
}

// DropTable implements Writer.
func (w *memoryWriter) DropTable(name string) error {
	return w.later(func() { delete(w.tables, name) })
}

// Put implements Writer.
func (w *memoryWriter) Put(k Key, item value.Map) error {
	return w.later(func() {
		t := w.tables[k.Table]
		p := t.partitions[k.Partition]
		if p == nil {
			p = &memoryPartition{}
			t.partitions[k.Partition], t.places = p, nil
		}
		i, found := slices.BinarySearch(p.sorts, k.Sort)
		if found {
			p.items[i] = item
			return
		}
		p.sorts = slices.Insert(p.sorts, i, k.Sort)
		p.items = slices.Insert(p.items, i, item)
	})
}

// Delete implements Writer.
func (w *memoryWriter) Delete(k Key) error {
	return w.later(func() {
		t := w.tables[k.Table]
		p := t.partitions[k.Partition]
		if p == nil {
			return
		}
		i, found := slices.BinarySearch(p.sorts, k.Sort)
		if !found {
			return
		}
		p.sorts = slices.Delete(p.sorts, i, i+1)
		p.items = slices.Delete(p.items, i, i+1)
		if len(p.sorts) == 0 {
			delete(t.partitions, k.Partition)
			t.places = nil
		}
	})
}

// PutToken implements Writer.
func (w *memoryWriter) PutToken(token, digest string, at, expired time.Time) error {
	return w.later(func() {
		for len(w.recent) > 0 && w.tokens[w.recent[0]].at.Before(expired) {
			delete(w.tokens, w.recent[0])
			w.recent = w.recent[1:]
		}
		w.tokens[token] = memoryToken{digest: digest, at: at}
		w.recent = append(w.recent, token)
	})
}
