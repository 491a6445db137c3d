// Package storage keeps tables and items for the engine: in memory or in a SQLite file. It knows keys as bytes and
// items as values; schemas, conditions and billing are the engine's.
package storage

import (
	"errors"
	"hash/fnv"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// ErrBusy means that another process kept the file locked for too long. Nothing was changed.
var ErrBusy = errors.New("storage: the file is locked by another process")

// ErrClosed is what a store answers once it is closed.
var ErrClosed = errors.New("storage: closed")

// Store keeps tables. Its methods are safe for concurrent use.
type Store interface {
	// View calls read with one consistent state.
	View(read func(Reader) error) error
	// Update calls change alone among all changes, those of other processes included. Its writes take effect
	// together and are durable before Update returns nil. If change fails nothing is written. change must not read
	// what it has written. An error of Update other than change's own and ErrBusy leaves open whether the writes
	// took effect.
	Update(change func(Writer) error) error
	Close() error
}

// Key is an item's place: its table, and the bytes by which its key sorts. Sort is empty if the table has no sort
// key.
type Key struct{ Table, Partition, Sort string }

// Place orders the partitions of a table: by hash, so that a scan's order says nothing about the keys, as with the
// service. The zero Place is before all.
type Place struct {
	Hash      uint32
	Partition string
}

// PlaceOf is where a partition stands in a scan.
func PlaceOf(partition string) Place {
	h := fnv.New32a()
	h.Write([]byte(partition))
	return Place{Hash: h.Sum32(), Partition: partition}
}

// Less reports whether p comes before q.
func (p Place) Less(q Place) bool {
	if p.Hash != q.Hash {
		return p.Hash < q.Hash
	}
	return p.Partition < q.Partition
}

// Bounds limit sort keys: From and To are included. Without To there is no upper limit.
type Bounds struct {
	From, To string
	HasTo    bool
}

// Contains reports whether sort is within the bounds.
func (b Bounds) Contains(sort string) bool { return sort >= b.From && (!b.HasTo || sort <= b.To) }

// Visit is called for one item after another; it returns false to stop.
type Visit func(sort string, item value.Map) (more bool, err error)

// Reader reads one state. It is valid within the call that it was passed to.
type Reader interface {
	// Table is a table's definition as it was put, nil if there is no such table.
	Table(name string) ([]byte, error)
	// Tables are the names after the given one, ascending, at most limit.
	Tables(after string, limit int) ([]string, error)
	// Get is the item, nil if there is none.
	Get(Key) (value.Map, error)
	// Range visits a partition's items in ascending order of their sort keys, or descending.
	Range(table, partition string, within Bounds, descending bool, visit Visit) error
	// NextPartition is the first partition of the table after that place which holds items.
	NextPartition(table string, after Place) (next Place, ok bool, err error)
	// Token is what was put under a request token.
	Token(token string) (digest string, at time.Time, ok bool, err error)
}

// Writer also writes.
type Writer interface {
	Reader
	// PutTable keeps a definition under a name, in place of the one before.
	PutTable(name string, definition []byte) error
	// DropTable removes a table and all its items.
	DropTable(name string) error
	Put(Key, value.Map) error
	Delete(Key) error
	// PutToken keeps digest under token and forgets what was put before expired.
	PutToken(token, digest string, at, expired time.Time) error
}
