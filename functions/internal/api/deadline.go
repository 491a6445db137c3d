package api

import (
	"context"
	"time"

	"github.com/varvelog/varve/internal/env"
)

// Until is ctx with the deadline that a request must have been dealt with: that of ctx, if it has one, with a part of what is left kept back for the answer, and
// atMost from now on. A function that is cut off answers nothing.
func Until(ctx context.Context, e env.Env, atMost time.Duration) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		left := deadline.Sub(e.Now())
		atMost = min(atMost, left-margin(left))
	}
	return e.WithTimeout(ctx, atMost)
}

// margin is what of the time left is kept back.
func margin(left time.Duration) time.Duration { return min(max(left/4, 0), time.Second) }
