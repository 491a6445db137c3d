package storage

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb/value"
	"github.com/varvelog/varve/localdev/dynamodb/wire"
)

func isEnd(err error) bool { return errors.Is(err, io.EOF) }

// place are the key columns of items.
func place(table, partition string) []any {
	return []any{table, int64(PlaceOf(partition).Hash), []byte(partition)}
}

func decodeItem(column driver.Value) (value.Map, error) {
	data, ok := column.([]byte)
	if !ok {
		return nil, fmt.Errorf("storage: item is a %T, want bytes", column)
	}
	item, err := value.ReadMap(wire.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("storage: item is damaged: %w", err)
	}
	return item, nil
}

// bytesOf is a BLOB column. The driver may answer nil for an empty one.
func bytesOf(column driver.Value) string {
	data, _ := column.([]byte)
	return string(data)
}

// Table implements Reader.
func (c *connection) Table(name string) (definition []byte, err error) {
	err = c.query("SELECT definition FROM tables WHERE name=?", []any{name}, func(row []driver.Value) (bool, error) {
		definition = []byte(bytesOf(row[0]))
		return false, nil
	})
	return definition, err
}

// Tables implements Reader.
func (c *connection) Tables(after string, limit int) (names []string, err error) {
	err = c.query("SELECT name FROM tables WHERE name>? ORDER BY name LIMIT ?", []any{after, int64(limit)}, func(row []driver.Value) (bool, error) {
		name, ok := row[0].(string)
		if !ok {
			return false, fmt.Errorf("storage: table name is a %T", row[0])
		}
		names = append(names, name)
		return true, nil
	})
	return names, err
}

// Get implements Reader.
func (c *connection) Get(k Key) (item value.Map, err error) {
	args := append(place(k.Table, k.Partition), []byte(k.Sort))
	err = c.query("SELECT item FROM items WHERE tbl=? AND hash=? AND pk=? AND sk=?", args, func(row []driver.Value) (bool, error) {
		item, err = decodeItem(row[0])
		return false, err
	})
	return item, err
}

// Range implements Reader.
func (c *connection) Range(table, partition string, within Bounds, descending bool, visit Visit) error {
	args := append(place(table, partition), []byte(within.From))
	var query string
	switch {
	case !within.HasTo && !descending:
		query = "SELECT sk, item FROM items WHERE tbl=? AND hash=? AND pk=? AND sk>=? ORDER BY sk"
	case !within.HasTo:
		query = "SELECT sk, item FROM items WHERE tbl=? AND hash=? AND pk=? AND sk>=? ORDER BY sk DESC"
	case !descending:
		query = "SELECT sk, item FROM items WHERE tbl=? AND hash=? AND pk=? AND sk>=? AND sk<=? ORDER BY sk"
	default:
		query = "SELECT sk, item FROM items WHERE tbl=? AND hash=? AND pk=? AND sk>=? AND sk<=? ORDER BY sk DESC"
	}
	if within.HasTo {
		args = append(args, []byte(within.To))
	}
	return c.query(query, args, func(row []driver.Value) (bool, error) {
		item, err := decodeItem(row[1])
		if err != nil {
			return false, err
		}
		return visit(bytesOf(row[0]), item)
	})
}

// NextPartition implements Reader.
func (c *connection) NextPartition(table string, after Place) (next Place, ok bool, err error) {
	args := []any{table, int64(after.Hash), []byte(after.Partition)}
	err = c.query("SELECT hash, pk FROM items WHERE tbl=? AND (hash, pk)>(?, ?) ORDER BY hash, pk LIMIT 1", args, func(row []driver.Value) (bool, error) {
		hash, isInt := row[0].(int64)
		if !isInt {
			return false, fmt.Errorf("storage: hash is a %T", row[0])
		}
		next, ok = Place{Hash: uint32(hash), Partition: bytesOf(row[1])}, true
		return false, nil
	})
	return next, ok, err
}

// Token implements Reader.
func (c *connection) Token(token string) (digest string, at time.Time, ok bool, err error) {
	err = c.query("SELECT digest, at FROM tokens WHERE token=?", []any{token}, func(row []driver.Value) (bool, error) {
		nanos, isInt := row[1].(int64)
		if !isInt {
			return false, fmt.Errorf("storage: token's time is a %T", row[1])
		}
		digest, at, ok = bytesOf(row[0]), time.Unix(0, nanos), true
		return false, nil
	})
	return digest, at, ok, err
}

// PutTable implements Writer.
func (c *connection) PutTable(name string, definition []byte) error {
	return c.exec("INSERT INTO tables (name, definition) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET definition=excluded.definition", name, definition)
}

// DropTable implements Writer.
func (c *connection) DropTable(name string) error {
	if err := c.exec("DELETE FROM items WHERE tbl=?", name); err != nil {
		return err
	}
	return c.exec("DELETE FROM tables WHERE name=?", name)
}

// Put implements Writer.
func (c *connection) Put(k Key, item value.Map) error {
	args := append(place(k.Table, k.Partition), []byte(k.Sort), value.AppendMap(nil, item))
	return c.exec("INSERT INTO items (tbl, hash, pk, sk, item) VALUES (?, ?, ?, ?, ?) ON CONFLICT (tbl, hash, pk, sk) DO UPDATE SET item=excluded.item", args...)
}

// Delete implements Writer.
func (c *connection) Delete(k Key) error {
	return c.exec("DELETE FROM items WHERE tbl=? AND hash=? AND pk=? AND sk=?", append(place(k.Table, k.Partition), []byte(k.Sort))...)
}

// PutToken implements Writer.
func (c *connection) PutToken(token, digest string, at, expired time.Time) error {
	if err := c.exec("DELETE FROM tokens WHERE at<?", expired.UnixNano()); err != nil {
		return err
	}
	return c.exec("INSERT INTO tokens (token, digest, at) VALUES (?, ?, ?) ON CONFLICT (token) DO UPDATE SET digest=excluded.digest, at=excluded.at", token, []byte(digest), at.UnixNano())
}
