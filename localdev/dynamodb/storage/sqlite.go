package storage

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// busyTimeout is how long, in milliseconds, another process may hold the file before ErrBusy.
const busyTimeout = 3000

// schemaVersion is stored as the file's user_version, applicationID as its application_id ("vrvd").
const (
	schemaVersion = 1
	applicationID = 0x76727664
)

// schema: hash and pk order a scan, sk a query. An item is its JSON.
const schema = `
CREATE TABLE tables (name TEXT PRIMARY KEY, definition BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE items (tbl TEXT NOT NULL, hash INTEGER NOT NULL, pk BLOB NOT NULL, sk BLOB NOT NULL, item BLOB NOT NULL,
	PRIMARY KEY (tbl, hash, pk, sk));
CREATE TABLE tokens (token TEXT PRIMARY KEY, digest BLOB NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX tokens_at ON tokens (at);
`

// ErrForeignFile is a file that holds something else than this package's tables, or those of another version.
var ErrForeignFile = errors.New("storage: not a file of this engine")

// SQLite keeps everything in one file in WAL mode. One connection writes, another reads, so that reads do not wait
// for the writer's fsync; each is used by one goroutine at a time.
type SQLite struct {
	writer, reader connection
}

// OpenSQLite opens a file, and makes it if it is not there. The directory must exist. Several processes may have the
// file open.
func OpenSQLite(file string) (*SQLite, error) { return openSQLite(file, "") }

// openSQLite also takes further parameters of the driver's, as in a URL's query.
func openSQLite(file, parameters string) (*SQLite, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	query := fmt.Sprintf("_busy_timeout=%d&_synchronous=FULL&%s", busyTimeout, parameters)
	// A path with a drive letter has no slash in front, and a URL needs one.
	dsn := (&url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(filepath.ToSlash(path), "/"), RawQuery: query}).String()
	s := &SQLite{}
	err = s.writer.open(dsn)
	if err == nil {
		err = s.writer.prepareFile()
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err == nil {
		err = s.reader.open(dsn)
	}
	if err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("storage: open %s: %w", file, err)
	}
	return s, nil
}

// syncDir makes the file's name durable: SQLite does so for its log only. Windows has no such call and does not
// need one.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// View implements Store.
func (s *SQLite) View(read func(Reader) error) error {
	s.reader.mu.Lock()
	defer s.reader.mu.Unlock()
	if err := s.reader.exec("BEGIN"); err != nil {
		return err
	}
	err := read(&s.reader)
	return errors.Join(err, s.reader.exec("COMMIT"))
}

// Update implements Store. The commit's fsync is behind the return of COMMIT.
func (s *SQLite) Update(change func(Writer) error) error {
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	if err := s.writer.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := change(&s.writer)
	if err == nil {
		if err = s.writer.exec("COMMIT"); err == nil {
			return nil
		}
	}
	// A commit that failed may have ended the transaction already, and then there is nothing to roll back.
	_ = s.writer.exec("ROLLBACK")
	return err
}

// Close implements Store.
func (s *SQLite) Close() error { return errors.Join(s.reader.close(), s.writer.close()) }

// connection is a connection with its prepared statements. Its methods other than open and close need mu.
type connection struct {
	mu         sync.Mutex
	conn       driver.Conn // nil once closed
	statements map[string]driver.Stmt
}

func (c *connection) open(dsn string) error {
	conn, err := (&sqlite.Driver{}).Open(dsn)
	c.conn, c.statements = conn, map[string]driver.Stmt{}
	return classify(err)
}

func (c *connection) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return nil
	}
	var errs []error
	for _, statement := range c.statements {
		errs = append(errs, statement.Close())
	}
	errs = append(errs, c.conn.Close())
	c.conn = nil
	return errors.Join(errs...)
}

// prepareFile brings a new file into WAL mode and makes the tables.
func (c *connection) prepareFile() error {
	if err := c.enterWAL(); err != nil {
		return err
	}
	if err := c.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := c.makeTables()
	if err == nil {
		return c.exec("COMMIT")
	}
	return errors.Join(err, c.exec("ROLLBACK"))
}

// walAttempts bounds the attempts to enter WAL mode.
const walAttempts = 20

// enterWAL: the mode belongs to the file. While two processes open a new file at once, the change may be refused
// without waiting; BEGIN IMMEDIATE does wait for the other one.
func (c *connection) enterWAL() error {
	var err error
	for range walAttempts {
		var mode string
		if mode, err = one[string](c, "PRAGMA journal_mode=WAL"); err == nil && mode == "wal" {
			return nil
		}
		if err != nil && !errors.Is(err, ErrBusy) {
			return err
		}
		if err = c.exec("BEGIN IMMEDIATE"); err == nil {
			err = c.exec("COMMIT")
		}
	}
	return errors.Join(err, errors.New("cannot enter WAL mode"))
}

func (c *connection) makeTables() error {
	id, err := one[int64](c, "PRAGMA application_id")
	if err != nil {
		return err
	}
	version, err := one[int64](c, "PRAGMA user_version")
	if err != nil {
		return err
	}
	tables, err := one[int64](c, "SELECT count(*) FROM sqlite_schema")
	if err != nil {
		return err
	}
	switch {
	case id == applicationID && version == schemaVersion:
		return nil
	case id != 0 || version != 0 || tables != 0:
		return fmt.Errorf("%w: application %#x, version %d, want %#x, %d", ErrForeignFile, id, version, applicationID, schemaVersion)
	}
	script := fmt.Sprintf("%s PRAGMA application_id=%d; PRAGMA user_version=%d", schema, applicationID, schemaVersion)
	_, err = c.conn.(driver.ExecerContext).ExecContext(context.Background(), script, nil)
	return classify(err)
}

// prepared is the statement for a query, from the cache if it is there. All queries are constants.
func (c *connection) prepared(query string) (driver.Stmt, error) {
	if c.conn == nil {
		return nil, ErrClosed
	}
	if statement, ok := c.statements[query]; ok {
		return statement, nil
	}
	statement, err := c.conn.Prepare(query)
	if err == nil {
		c.statements[query] = statement
	}
	return statement, classify(err)
}

func (c *connection) exec(query string, args ...any) error {
	statement, err := c.prepared(query)
	if err != nil {
		return err
	}
	_, err = statement.(driver.StmtExecContext).ExecContext(context.Background(), named(args))
	return classify(err)
}

// query calls each with every row until it returns false. The row is valid during the call.
func (c *connection) query(query string, args []any, each func(row []driver.Value) (bool, error)) (err error) {
	statement, err := c.prepared(query)
	if err != nil {
		return err
	}
	rows, err := statement.(driver.StmtQueryContext).QueryContext(context.Background(), named(args))
	if err != nil {
		return classify(err)
	}
	defer func() { err = errors.Join(err, classify(rows.Close())) }()
	row := make([]driver.Value, len(rows.Columns()))
	for {
		switch err := rows.Next(row); {
		case isEnd(err):
			return nil
		case err != nil:
			return classify(err)
		}
		if more, err := each(row); err != nil || !more {
			return err
		}
	}
}

// one is the only column of the first row.
func one[T any](c *connection, query string, args ...any) (v T, err error) {
	err = c.query(query, args, func(row []driver.Value) (bool, error) {
		got, ok := row[0].(T)
		if !ok {
			return false, fmt.Errorf("%s: %T, want %T", query, row[0], v)
		}
		v = got
		return false, nil
	})
	return v, err
}

func named(args []any) []driver.NamedValue {
	out := make([]driver.NamedValue, len(args))
	for i, arg := range args {
		out[i] = driver.NamedValue{Ordinal: i + 1, Value: arg}
	}
	return out
}

// classify makes ErrBusy of SQLite's.
func classify(err error) error {
	var failure *sqlite.Error
	if errors.As(err, &failure) && failure.Code()&0xff == sqlite3.SQLITE_BUSY {
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return err
}
