package sdk_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
)

// TestBR42_RecordsAreKeptWithoutCredentials: while no credentials are to be had records wait, to their deadline; credentials that are refused are
// not tried again.
func TestBR42_RecordsAreKeptWithoutCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		w.create(log, sdk.NewTopic{Name: "t", Partitions: 1})
		p := w.producer(log, sdk.WithDeliveryDeadline(30*time.Second))
		clock := env.System()
		for _, c := range []struct {
			what  string
			err   error
			until time.Duration // from then on puts succeed
			want  error
			least time.Duration
		}{
			{"for ten seconds", store.ErrNoCredentials, 10 * time.Second, nil, 10 * time.Second},
			{"for ever", store.ErrNoCredentials, time.Hour, sdk.ErrTimedOut, 30 * time.Second},
			{"refused", store.ErrDenied, time.Hour, store.ErrDenied, 0},
		} {
			start := clock.Mono()
			w.onPut(func(fault.Call) fault.Fault {
				if clock.Mono()-start < c.until {
					return fault.Fault{Kind: fault.LostBefore, Err: c.err}
				}
				return fault.Fault{}
			})
			err := p.ProduceSync(ctx, rec("t", c.what)).Err()
			took := clock.Mono() - start
			if !errors.Is(err, c.want) || took < c.least || took > c.least+3*time.Second {
				t.Errorf("%s: %v after %v", c.what, err, took)
			}
			if err != nil && !errors.Is(err, store.ErrDenied) {
				t.Errorf("%s: the error does not say why: %v", c.what, err)
			}
		}
		w.heal()
		w.must(p.Close(ctx))
		if got := w.contents("t"); len(got[0]) != 1 {
			t.Errorf("%d records, want the one that was acknowledged", len(got[0]))
		}
	})
}
