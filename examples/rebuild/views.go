package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/varvelog/varve/sdk"
)

var views = map[string]view{
	// Flights and their delay per origin and day.
	"flights": {
		tables: `CREATE TABLE IF NOT EXISTS flights (origin TEXT, day TEXT, flights INTEGER, delay INTEGER, PRIMARY KEY (origin, day))`,
		apply: func(ctx context.Context, tx *sql.Tx, r *sdk.Record) error {
			var f struct {
				Origin string
				Delay  int
			}
			if err := json.Unmarshal(r.Value, &f); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, `INSERT INTO flights VALUES (?1, ?2, 1, ?3) ON CONFLICT DO UPDATE SET flights = flights + 1, delay = delay + ?3`,
				f.Origin, r.Timestamp.Format(time.DateOnly), f.Delay)
			return err
		},
		query: `SELECT printf('%d flights from %d origins on %d days, total delay %d', sum(flights), count(DISTINCT origin), count(DISTINCT day), sum(delay)) FROM flights`,
	},
	// The last value of each key: the state that a key-compacted topic keeps.
	"latest": {
		tables: `CREATE TABLE IF NOT EXISTS latest (key BLOB PRIMARY KEY, value BLOB NOT NULL)`,
		apply: func(ctx context.Context, tx *sql.Tx, r *sdk.Record) (err error) {
			switch {
			case r.Key == nil: // belongs to no key
			case r.Value == nil:
				_, err = tx.ExecContext(ctx, `DELETE FROM latest WHERE key = ?`, r.Key)
			default:
				_, err = tx.ExecContext(ctx, `INSERT INTO latest VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = ?2`, r.Key, r.Value)
			}
			return err
		},
		query: `SELECT printf('%d keys', count(*)) FROM latest`,
	},
}
