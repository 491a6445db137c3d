package bench

import (
	"slices"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/internal/price"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// meter is a hook that counts what an open log uses.
type meter struct {
	mu       sync.Mutex
	segments []object
	fetches  []time.Duration
	used     use
}

// use is what was used. Requests that the services do not charge for are counted too.
type use struct {
	price.Usage
	store, table int // requests
}

func (u use) minus(o use) use {
	u.Puts -= o.Puts
	u.Gets -= o.Gets
	u.ReadUnits -= o.ReadUnits
	u.WriteUnits -= o.WriteUnits
	u.store -= o.store
	u.table -= o.table
	return u
}

func (u use) plus(o use) use { return u.minus(use{}.minus(o)) }

// ofTable is the table's part.
func (u use) ofTable() use {
	return use{table: u.table, Usage: price.Usage{ReadUnits: u.ReadUnits, WriteUnits: u.WriteUnits}}
}

// OnPut implements sdk.PutHook.
func (m *meter) OnPut(e sdk.PutEvent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.segments = append(m.segments, object{name: e.Object, size: e.Bytes}) // after an error it may be there all the same
}

// OnFetch implements sdk.FetchHook.
func (m *meter) OnFetch(e sdk.FetchEvent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fetches = append(m.fetches, e.Duration)
}

// OnRequest implements sdk.RequestHook.
func (m *meter) OnRequest(e sdk.RequestEvent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := &m.used
	if e.Service == "table" {
		u.table += e.Requests
		u.ReadUnits += e.ReadUnits
		u.WriteUnits += e.WriteUnits
		return
	}
	u.store += e.Requests
	switch e.Op {
	case store.OpPut, store.OpList:
		u.Puts += e.Requests
	case store.OpGet, store.OpStat:
		u.Gets += e.Requests
	}
}

// read is what was used so far.
func (m *meter) read() use {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// put is all segments that were put, or may have been, in their order.
func (m *meter) put() []object {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.segments)
}

// stored is those of the segments that are objects: small ones are items of the table.
func stored(segments []object) []object {
	return slices.DeleteFunc(segments, func(o object) bool {
		s, err := objects.Parse(o.name)
		return err == nil && s.ID.Place() == segment.InTable
	})
}

// takeFetches returns how long range reads took since it was called before.
func (m *meter) takeFetches() []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.fetches
	m.fetches = nil
	return f
}
