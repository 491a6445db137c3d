package sim

import (
	"sync"
	"time"

	"github.com/varvelog/varve/internal/env"
)

// clock is a process's own: the wall is wrong and may jump, and the monotonic one stands still while the machine is suspended. Timers go by the world's
// clock: one that fires while the process is frozen finds it standing at the next thing that can be seen of it.
type clock struct {
	env.Clock

	mu    sync.Mutex
	skew  time.Duration // of the wall
	since time.Duration // when the machine was suspended, if it is
	lost  time.Duration // to suspensions
	stuck bool
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Clock.Now().Add(c.skew)
}

func (c *clock) Mono() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stuck {
		return c.since - c.lost
	}
	return c.Clock.Mono() - c.lost
}

// jump sets the wall clock forward, or back.
func (c *clock) jump(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew += by
}

func (c *clock) suspend(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Clock.Mono()
	switch {
	case on && !c.stuck:
		c.since = now
	case !on && c.stuck:
		c.lost += now - c.since
	}
	c.stuck = on
}
