// Command soak lets a log live for days while its retention is on, and sees whether what it takes stays as it was:
//
//	soak [-for 30m] [-rate 5] [-speed 480] [-dir DIRECTORY]
//
// One process appends at a steady rate (MiB/s) to a log in a directory; a reader follows; compaction, retention and the sweep are done as schedules do them.
// The wall clock of all of them, the table's too, runs so many times as fast as the machine's, so that half an hour is ten days: what is deleted waits for hours and
// days of wall time. Timers and deadlines run as the machine does. (To a member of a group it would look as if its process were frozen all the time, so there is none.)
//
// Each hour of the log's time it notes the heap after a collection of garbage, goroutines, bytes of files and items of the table. In the end the second half is held
// against the second quarter, by which the first of what is deleted has to be gone: what has grown by more than a quarter is a leak, and the exit status is 1. It is 2 if nothing could be played.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	o := options{}
	flag.DurationVar(&o.playFor, "for", 30*time.Minute, "for how long")
	flag.Float64Var(&o.rate, "rate", 5, "MiB of values a second")
	flag.IntVar(&o.speed, "speed", 480, "how many times as fast as the machine's the wall clock runs")
	flag.StringVar(&o.dir, "dir", "", "where the log is kept; a directory that is made and removed again if it is left out")
	flag.Parse()
	if flag.NArg() > 0 || o.playFor <= 0 || o.rate <= 0 || o.speed < 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	grown, err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	}
	for _, g := range grown {
		fmt.Println("GROWN:", g)
	}
	if len(grown) > 0 {
		os.Exit(1)
	}
	fmt.Println("flat: nothing has grown")
}
