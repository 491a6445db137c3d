package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// kinds of what befalls processes and connections, as columns of the table.
const (
	killed    = "kill -9"
	frozen    = "freeze"
	cutOff    = "cut"
	halfShut  = "half-close"
	delayed   = "delay"
	disksFull = "disk full"
)

var kinds = []string{killed, frozen, cutOff, halfShut, delayed, disksFull}

// fault is one that is to be played: something of that kind befalls one of those. play returns when it is over; befell is false if there was nobody whom it
// could befall at the moment.
type fault struct {
	kind, whom string
	play       func(ctx context.Context) (befell bool, err error)
}

// tally counts what befell whom. It is safe for concurrent use.
type tally struct {
	mu     sync.Mutex
	counts map[string]map[string]int // by whom and kind; 0 for what is to be played
}

func newTally(all []fault) *tally {
	t := &tally{counts: map[string]map[string]int{}}
	for _, f := range all {
		if t.counts[f.whom] == nil {
			t.counts[f.whom] = map[string]int{}
		}
		t.counts[f.whom][f.kind] = 0
	}
	return t
}

func (t *tally) add(f fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[f.whom][f.kind]++
}

func (t *tally) total() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, of := range t.counts {
		for _, c := range of {
			n += c
		}
	}
	return n
}

// missing is what was to be played and was not.
func (t *tally) missing() (list []string) {
	for _, whom := range slices.Sorted(maps.Keys(t.counts)) {
		for _, kind := range kinds {
			if n, planned := t.counts[whom][kind]; planned && n == 0 {
				list = append(list, kind+" of "+whom)
			}
		}
	}
	return list
}

// print prints the table.
func (t *tally) print(w io.Writer) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, kind := range kinds {
		fmt.Fprint(tab, "\t", kind)
	}
	fmt.Fprintln(tab, "\t")
	for _, whom := range slices.Sorted(maps.Keys(t.counts)) {
		fmt.Fprint(tab, whom)
		for _, kind := range kinds {
			if n, planned := t.counts[whom][kind]; planned {
				fmt.Fprint(tab, "\t", n)
			} else {
				fmt.Fprint(tab, "\t")
			}
		}
		fmt.Fprintln(tab, "\t")
	}
	tab.Flush()
}

// deck is all faults of this run, each once.
func (c *conductor) deck() (all []fault) {
	for _, r := range c.roles() {
		all = append(all, fault{killed, string(r), c.withOne(r, c.killOne)}, fault{frozen, string(r), c.withOne(r, c.freezeOne)})
	}
	if c.minio != nil {
		all = append(all, fault{killed, "minio", c.killMinIO})
	}
	for _, whom := range slices.Sorted(maps.Keys(c.proxies)) {
		p := c.proxies[whom]
		at := "connections to " + whom
		all = append(all,
			fault{cutOff, at, func(context.Context) (bool, error) { return p.cut() > 0, nil }},
			fault{halfShut, at, func(context.Context) (bool, error) { return p.halve() > 0, nil }},
			fault{delayed, at, func(ctx context.Context) (bool, error) { return c.delay(ctx, p), nil }})
	}
	if c.disk != nil {
		all = append(all, fault{disksFull, "log", c.fillDisk})
	}
	return all
}

// withOne plays the fault with one process of the role that nothing befalls at the moment.
func (c *conductor) withOne(r role, play func(context.Context, *process) error) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		of := c.of(r)
		first := c.below(len(of))
		for i := range of {
			if p := of[(first+i)%len(of)]; p.take() {
				defer p.release()
				return true, play(ctx, p)
			}
		}
		return false, nil
	}
}

// killOne kills the process, and after a while there is another one.
func (c *conductor) killOne(ctx context.Context, p *process) error {
	p.kill()
	c.wait(ctx, c.within(0, 2*time.Second))
	return p.start()
}

// freezeOne freezes the process for a while, in half of all cases for longer than a session lasts.
func (c *conductor) freezeOne(ctx context.Context, p *process) error {
	d := c.within(300*time.Millisecond, 2*time.Second)
	if c.below(2) == 0 {
		d = c.within(c.timeout, 2*c.timeout)
	}
	if err := p.signal(freeze); err != nil {
		return err
	}
	c.wait(ctx, d)
	return p.signal(thaw)
}

func (c *conductor) killMinIO(ctx context.Context) (bool, error) {
	if !c.minioBusy.TryLock() {
		return false, nil
	}
	defer c.minioBusy.Unlock()
	c.minio.Kill()
	c.wait(ctx, c.within(0, 8*time.Second))
	return true, c.minio.Restart(context.WithoutCancel(ctx))
}

// delay delays what goes through the proxy for a while, in one of three cases so that nobody would wait for it.
func (c *conductor) delay(ctx context.Context, p *proxy) bool {
	d := []time.Duration{50 * time.Millisecond, 400 * time.Millisecond, 5 * time.Second}[c.below(3)]
	befell := p.late(d) > 0
	c.wait(ctx, c.within(time.Second, 4*time.Second))
	p.late(0)
	return befell
}

func (c *conductor) fillDisk(ctx context.Context) (bool, error) {
	if !c.diskBusy.TryLock() {
		return false, nil
	}
	defer c.diskBusy.Unlock()
	if err := c.disk.fill(); err != nil {
		return false, err
	}
	c.wait(ctx, c.within(time.Second, 8*time.Second))
	left, err := c.disk.free()
	if err == nil && left < leastFree {
		err = fmt.Errorf("the log's file system has %d bytes left without anything that fills it: it is too small for a run of %v", left, c.playFor)
	}
	return true, err
}

// leastFree is what an empty disk must have for the log to go on.
const leastFree = 16 << 20
