package api

import (
	"context"
	"time"

	"github.com/varvelog/varve/internal/env"
)

// TimeLeft is how long a request may take: until the deadline of ctx, if it has one, with a part of what is left kept back for the answer, and atMost. A function that
// is cut off answers nothing.
func TimeLeft(ctx context.Context, e env.Env, atMost time.Duration) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		left := deadline.Sub(e.Now())
		atMost = min(atMost, left-min(left/4, time.Second))
	}
	return atMost
}
