// Command mutants takes one rule after another out of varve's code and runs a test that has to notice. A mutant that nothing notices says that a rule
// is not tested.
//
// A mutant is the text of one file with one passage replaced (table.go). It is compiled with the go command's -overlay, so the files stay as they are. Its judge is a
// simulation of so many seeds, or one package's tests. The table that is printed says who caught it, with how many seeds, and how long that took.
// Exit status 1: one survived, or cannot be built any more. It has to be run in the module's root.
//
//	go run ./localdev/mutants [-run REGEXP] [-p PARALLEL] [-list]
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"text/tabwriter"

	"github.com/varvelog/varve/internal/env"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	only := flag.String("run", "", "only the mutants whose names match this regular expression")
	parallel := flag.Int("p", runtime.NumCPU(), "how many are built and run at once")
	list := flag.Bool("list", false, "print the mutants, and run none")
	flag.Parse()
	names, err := regexp.Compile(*only)
	if err != nil || *parallel < 1 || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "mutants: -run takes a regular expression, -p a number from 1 on, and there are no other arguments")
		os.Exit(2)
	}
	chosen := slices.DeleteFunc(slices.Clone(table), func(m mutant) bool { return !names.MatchString(m.name) })
	if *list {
		for _, m := range chosen {
			fmt.Printf("%s\n\t%s\n\t%s, by %s\n", m.name, m.rule, m.file, m.judge)
		}
		return
	}
	if !report(os.Stdout, try(ctx, env.System(), chosen, *parallel, os.Stderr)) {
		os.Exit(1)
	}
}

// try tries mutants, so many at once, and tells of each on progress. The verdicts are in their order.
func try(ctx context.Context, e env.Env, mutants []mutant, parallel int, progress io.Writer) []verdict {
	verdicts := make([]verdict, len(mutants))
	var tried sync.WaitGroup
	var told sync.Mutex
	room := make(chan struct{}, parallel)
	done := 0
	for i, m := range mutants {
		room <- struct{}{}
		tried.Go(func() {
			defer func() { <-room }()
			v := m.try(ctx, e)
			told.Lock()
			defer told.Unlock()
			verdicts[i] = v
			done++
			fmt.Fprintf(progress, "%d of %d: %s: %s\n", done, len(mutants), m.name, v)
			if !v.caught() {
				fmt.Fprintln(progress, v.output)
			}
		})
	}
	tried.Wait()
	return verdicts
}

// report prints the table, and tells whether all were caught.
func report(to io.Writer, verdicts []verdict) (all bool) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MUTANT\tJUDGE\tVERDICT\tSEEDS\tSECONDS")
	caught := 0
	for _, v := range verdicts {
		seeds := "-"
		if v.seed > 0 {
			seeds = fmt.Sprint(v.seed)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.0f\n", v.mutant.name, v.mutant.judge, v, seeds, v.took.Seconds())
		if v.caught() {
			caught++
		}
	}
	w.Flush()
	fmt.Fprintf(to, "%d of %d mutants caught\n", caught, len(verdicts))
	return caught == len(verdicts)
}
