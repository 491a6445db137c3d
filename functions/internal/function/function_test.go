package function

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/schedule"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/localdev/logtest"
	"github.com/varvelog/varve/sdk"
)

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ left, want time.Duration }{
			{15 * time.Minute, 13*time.Minute + 30*time.Second}, {5 * time.Second, 4 * time.Second}, {time.Second, 500 * time.Millisecond}, {-time.Second, time.Millisecond},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), c.left)
			if got := Budget(ctx, env.System()); got != c.want {
				t.Errorf("of %v: %v, want %v", c.left, got, c.want)
			}
			cancel()
		}
		if got := Budget(t.Context(), env.System()); got != 10*time.Minute {
			t.Errorf("without a deadline: %v", got)
		}
	})
}

// A log that cannot be opened at first is opened by a later invocation; a job that fails is told of, fails the invocation, and what the hooks saw is printed.
func TestJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := logtest.New(t)
		var out bytes.Buffer
		down := errors.New("down")
		f := &Function{Name: "sweep", Env: env.System(), out: &out}
		f.open = func(ctx context.Context) (*sdk.Log, error) {
			if down != nil {
				return nil, down
			}
			return w.Open(sdk.WithHooks(&f.counts)), nil
		}
		var failed error
		job := f.Job(func(ctx context.Context, b sdk.Backend, e env.Env, within time.Duration) []schedule.Event {
			if within > 54*time.Second || within < 50*time.Second {
				t.Errorf("within %v", within)
			}
			_, err := b.Table.Floor(ctx)
			return []schedule.Event{{Job: "sweep", What: "nothing"}, {Job: "other", What: "something", Did: true, Report: "large", Err: errors.Join(failed, err)}}
		})
		invoke := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return job(ctx)
		}
		if err := invoke(); !errors.Is(err, down) {
			t.Error(err)
		}
		down = nil
		if err := invoke(); err != nil {
			t.Error(err)
		}
		defer f.log.Close()
		if got := out.String(); got != `{"function":"sweep","did":[{"job":"other","what":"something","did":true}]}`+"\n" {
			t.Errorf("printed %s", got)
		}
		out.Reset()
		n := 0
		w.OnTable = func(dynamodb.Call) dynamodb.Fault {
			if n++; n == 1 {
				return dynamodb.Throttle()
			}
			return dynamodb.Fault{}
		}
		failed = errors.New("bad")
		if err := invoke(); !errors.Is(err, failed) {
			t.Error(err)
		}
		if got := out.String(); !strings.Contains(got, `"Throttles":1`) || !strings.Contains(got, `"Function":"sweep"`) {
			t.Errorf("printed %s", got)
		}
	})
}
