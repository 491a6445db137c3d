// Command varve is varve's command line: try it, administer topics, produce and consume records, look into segments.
//
// main reads the environment and starts; root.go has what the commands share; each command is one file with its options and a run function.
// Data goes to stdout and nothing else does: messages and progress go to stderr. Exit status: 0 done, 1 failed, 2 usage.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/varvelog/varve/internal/env"
)

func main() {
	// The first signal asks commands to finish what they have accepted; after it the default is back, so that a second one ends the program.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	a := &app{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		interactive: term.IsTerminal(int(os.Stderr.Fd())),
		outTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		url:         defaultURL, env: env.System(),
	}
	if url := os.Getenv("VARVE_LOG"); url != "" {
		a.url = url
	}
	os.Exit(a.run(ctx, os.Args[1:]))
}
