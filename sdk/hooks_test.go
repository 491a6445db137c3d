package sdk_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/sdk"
)

// outcomes collects what commits and settlements came to.
type outcomes struct {
	mu       sync.Mutex
	commits  []sdk.Outcome
	branches []string
}

func (o *outcomes) OnCommit(e sdk.CommitEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.commits = append(o.commits, e.Outcome)
}

func (o *outcomes) OnSettle(e sdk.SettleEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.branches = append(o.branches, e.Branch)
}

// A commit is throttled; the next one's answer is lost, though it was applied; the record after it is simply committed.
func TestCommitHookTellsTheOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		seen := &outcomes{}
		log := w.open(sdk.WithHooks(seen))
		w.create(log, sdk.NewTopic{Name: "t"})
		p := w.producer(log)
		faults := []dynamodb.Fault{dynamodb.Throttle(), dynamodb.AnswerLost()}
		w.onCall(func(_ context.Context, c dynamodb.Call) (f dynamodb.Fault) {
			if isCommit(c) && len(faults) > 0 {
				f, faults = faults[0], faults[1:]
			}
			return f
		})
		w.must(p.ProduceSync(t.Context(), rec("t", "a")).Err())
		w.must(p.ProduceSync(t.Context(), rec("t", "b")).Err())
		w.must(p.Close(t.Context()))
		if !slices.Equal(seen.commits, []sdk.Outcome{sdk.NotApplied, sdk.Unknown, sdk.Applied}) || !slices.Equal(seen.branches, []string{"found in head"}) {
			t.Errorf("commits %v, settlements %v", seen.commits, seen.branches)
		}
	})
}
