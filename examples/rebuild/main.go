// Rebuild makes a SQLite database from the history of a topic, and keeps it up to date:
//
//	go run ./examples/rebuild -db flights.db flights        flights and delay per origin and day, from the topic flights
//	go run ./examples/rebuild -db latest.db -as latest TOPIC   the last value of each key; a null value removes the key
//
// State and offsets change in one transaction, so each record counts once, however often the program is killed and started again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/sdk"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "rebuild:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("rebuild", flag.ContinueOnError)
	url := flags.String("log", "file://./.varve", "URL of the log")
	file := flags.String("db", "rebuild.db", "SQLite database")
	as := flags.String("as", "flights", "what to make of the records: flights, latest")
	follow := flags.Bool("follow", false, "go on with records as they are appended, until interrupted")
	if err := flags.Parse(args); err != nil {
		return err
	}
	view, ok := views[*as]
	if flags.NArg() != 1 || !ok {
		return fmt.Errorf("rebuild [-log URL] [-db FILE] [-as flights|latest] [-follow] TOPIC")
	}
	log, err := sdk.Open(ctx, *url, sdk.WithDriver(embedded.Driver()))
	if err != nil {
		return err
	}
	defer log.Close()
	db, err := openDatabase(ctx, *file, view)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.rebuild(ctx, log, flags.Arg(0)); err != nil {
		return err
	}
	if *follow {
		if err := db.follow(ctx); err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return db.print(ctx, os.Stdout)
}
