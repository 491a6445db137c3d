// Command chaos lets a log be used as it is used, by many processes, while they and what they depend on are killed, frozen and cut off, and then holds what each of
// them has seen against what is in the log:
//
//	chaos [-for 2m] [-seed N] [-store minio|dir]
//
// Producers, readers, two groups, background jobs, an HTTP server and its clients are processes of their own, this program again. They use the log by the SDK
// alone, on a directory or on a real MinIO (VARVE_MINIO names its program) and the DynamoDB engine on a port, which is a process too. A seed decides what befalls
// whom, and when; not what comes of it.
//
// A process writes down what it is about to do, and then what came of it, in a history of its own, so that a kill -9 leaves open at most what it had not been
// told. In the end everything is well again; who appends settles what is under way, and groups and readers read to the end, all within a bound. Then the histories
// are held against the log, by the checks of package sim, which asks the same of a simulation. Whatever they find is printed with the lines of history that led
// to it; the directory with all of it is kept, and the exit status is 1. It is 2 if nothing could be played.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/varvelog/varve/internal/env"
)

func main() {
	if told := os.Getenv(specVariable); told != "" {
		if err := work(told); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	playFor := flag.Duration("for", 2*time.Minute, "for how long things fail; what is left takes a minute or two more")
	seed := flag.Uint64("seed", env.System().Uint64()>>1, "of what befalls whom")
	store := flag.String("store", "minio", "minio or dir")
	flag.Parse()
	o := options{playFor: *playFor, seed: *seed, cast: cast, timeout: 4 * time.Second, gap: time.Second, pace: 300 * time.Millisecond, out: os.Stdout}
	switch o.minio = os.Getenv("VARVE_MINIO"); {
	case *store == "dir":
		o.minio, o.disk = "", diskFor(*playFor)
	case *store != "minio" || flag.NArg() > 0:
		flag.Usage()
		os.Exit(2)
	case o.minio == "":
		fmt.Fprintln(os.Stderr, "chaos: VARVE_MINIO names no MinIO: 'make minio' builds one; without it, -store dir")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	v, err := play(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	if !v.ok() {
		os.Exit(1)
	}
}

// cast is how many processes there are.
var cast = map[role]int{producer: 3, reader: 2, member: 3, stepper: 2, keeper: 2, server: 1, client: 2, watcher: 1}

// diskFor is a file system on which a run of that length has room, and which a fault can fill.
func diskFor(d time.Duration) int64 { return 256<<20 + int64(d.Minutes())*(32<<20) }
