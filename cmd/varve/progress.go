package main

import (
	"fmt"
	"time"
)

// progressEvery is how often the counter is shown anew. What is over sooner shows none.
const progressEvery = 200 * time.Millisecond

// counter is a running count of records, on one line of stderr that is written over and in the end cleared. It is silent unless somebody
// watches. One goroutine at a time may use it.
type counter struct {
	app          *app
	does         string // "acknowledged", "read"
	silent       bool
	n            int
	start, shown time.Duration
	width        int // of what stands on the line
}

// count starts a counter.
func (a *app) count(does string) *counter {
	now := a.env.Mono()
	return &counter{app: a, does: does, silent: !a.interactive, start: now, shown: now}
}

// add counts n more records.
func (c *counter) add(n int) {
	c.n += n
	if c.silent {
		return
	}
	now := c.app.env.Mono()
	if now-c.shown < progressEvery {
		return
	}
	c.shown = now
	c.show(fmt.Sprintf("%s %s, %.0f/s", plural(c.n, "record", "records"), c.does, float64(c.n)/(now-c.start).Seconds()))
}

// clear takes the count off the line, for what is printed next.
func (c *counter) clear() {
	if c.width > 0 {
		c.show("")
		fmt.Fprint(c.app.err, "\r")
	}
}

// show writes over what stands on the line. Blanks, unlike escape sequences, are understood by every terminal.
func (c *counter) show(text string) {
	fmt.Fprintf(c.app.err, "\r%-*s", c.width, text)
	c.width = len(text)
}
