package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"time"

	_ "modernc.org/sqlite"

	"github.com/varvelog/varve/sdk"
)

// database is a view of a topic, and how far it has come.
type database struct {
	*sql.DB
	view   view
	replay *sdk.Replay
}

// view is what is made of the records.
type view struct {
	tables string // that make an empty one
	apply  func(ctx context.Context, tx *sql.Tx, r *sdk.Record) error
	query  string // of what print prints, one string a row
}

// offsets says for each partition of a topic, known by its id, where the rebuild began, what comes next, where it is to end, and when that was so (ms).
const offsets = `CREATE TABLE IF NOT EXISTS offsets (topic TEXT, id TEXT, part INTEGER, start INTEGER, next INTEGER, stop INTEGER, at INTEGER, PRIMARY KEY (id, part))`

func openDatabase(ctx context.Context, file string, v view) (*database, error) {
	db, err := sql.Open("sqlite", file+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // SQLite has one writer; partitions take turns
	if _, err := db.ExecContext(ctx, offsets+";"+v.tables); err != nil {
		db.Close()
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &database{DB: db, view: v}, nil
}

// rebuild applies the topic's history, from where the database is.
func (d *database) rebuild(ctx context.Context, log *sdk.Log, topic string) error {
	c, err := d.checkpoint(ctx, topic)
	if err != nil {
		return err
	}
	var opts []sdk.ReplayOption
	if c != nil {
		opts = append(opts, sdk.ReplayResume(*c))
	}
	if d.replay, err = log.NewReplay(ctx, topic, opts...); err != nil {
		return err
	}
	if c == nil {
		if err := d.begin(ctx); err != nil {
			return err
		}
	}
	return d.replay.Run(ctx, d.apply)
}

// checkpoint reads how far the database is with the topic; nil if it has nothing of it.
func (d *database) checkpoint(ctx context.Context, topic string) (*sdk.ReplayCheckpoint, error) {
	rows, err := d.QueryContext(ctx, `SELECT id, part, start, next, stop, at FROM offsets WHERE topic = ?`, topic)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var c *sdk.ReplayCheckpoint
	for rows.Next() {
		var id string
		var p sdk.ReplayPosition
		var at int64
		if err := rows.Scan(&id, &p.Partition, &p.Start, &p.Next, &p.End, &at); err != nil {
			return nil, err
		}
		if c == nil {
			c = &sdk.ReplayCheckpoint{Topic: topic, TopicID: id}
		}
		p.End = max(p.End, p.Next) // it has followed the log since
		if t := time.UnixMilli(at); t.After(c.At) {
			c.At = t // all positions were what they are when the last one moved
		}
		c.Positions = append(c.Positions, p)
	}
	return c, rows.Err()
}

// begin notes where a new rebuild begins and ends.
func (d *database) begin(ctx context.Context) error {
	tx, err := d.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	c := d.replay.Checkpoint()
	for _, p := range c.Positions {
		if _, err := tx.ExecContext(ctx, `INSERT INTO offsets VALUES (?, ?, ?, ?, ?, ?, ?)`, c.Topic, c.TopicID, p.Partition, p.Start, p.Next, p.End, c.At.UnixMilli()); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// apply applies records and notes that it did, both or neither.
func (d *database) apply(ctx context.Context, f sdk.Fetch) error {
	tx, err := d.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for i := range f.Records {
		if err := d.view.apply(ctx, tx, &f.Records[i]); err != nil {
			return fmt.Errorf("partition %d offset %d: %w", f.Partition, f.Records[i].Offset, err)
		}
	}
	first, next := f.Records[0].Offset, f.Records[len(f.Records)-1].Offset+1
	c := d.replay.Checkpoint()
	// A partition that the topic has grown by since is not there yet.
	done, err := tx.ExecContext(ctx, `INSERT INTO offsets VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6) ON CONFLICT DO UPDATE SET next = ?5, at = ?6 WHERE next <= ?4`, c.Topic, c.TopicID, f.Partition, first, next, c.At.UnixMilli())
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n != 1 {
		return fmt.Errorf("partition %d: offset %d was applied before: is another rebuild at work on this database? (%v)", f.Partition, first, err)
	}
	return tx.Commit()
}

// follow applies records as they are appended.
func (d *database) follow(ctx context.Context) error {
	r, err := d.replay.Follow(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		fetches, err := r.Poll(ctx)
		if err != nil {
			return err
		}
		for _, f := range fetches {
			if err := d.apply(ctx, f); err != nil {
				return err
			}
		}
	}
}

func (d *database) print(ctx context.Context, out io.Writer) error {
	rows, err := d.QueryContext(context.WithoutCancel(ctx), d.view.query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return err
		}
		fmt.Fprintln(out, line)
	}
	return rows.Err()
}
