package retain_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/clean"
	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/retain"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/sdk"
)

// with compact,delete the last value of a key that nobody writes any more goes when its retention is over, that of a key that is written stays; with compact alone both stay.
func TestX11_CompactAndDelete(t *testing.T) {
	for policy, want := range map[string]string{"compact,delete": "busy", "compact": "old busy"} {
		synctest.Test(t, func(t *testing.T) {
			l := newLive(t, 1, 1, "cleanup.policy", policy, "retention.ms", fmt.Sprint((7 * 24 * time.Hour).Milliseconds()))
			write := func(key string) {
				check(t, l.writers[0].ProduceSync(t.Context(), &sdk.Record{Topic: "t", Key: []byte(key), Value: []byte("v")}).Err())
			}
			write("old")
			for day := range 9 {
				write("busy")
				time.Sleep(23 * time.Hour)
				b := l.backend
				_, err := compact.Run(t.Context(), b.Table, b.Store, compact.Options{All: true, Env: env.System()})
				check(t, err)
				_, err = clean.Run(t.Context(), b.Table, b.Store, clean.Options{Dirty: 1e-6, Env: env.System()})
				check(t, err)
				_, err = retain.Run(t.Context(), b.Table, retain.Options{Env: env.System()})
				check(t, err)
				got := keysLeft(t, l.log)
				if expected := map[bool]string{true: want, false: "old busy"}[day > 6]; got != expected {
					t.Errorf("%s, after %d times 23 hours: %q, want %q", policy, day+1, got, expected)
				}
			}
			for _, w := range l.writers {
				check(t, w.Close(t.Context()))
			}
		})
	}
}

// keysLeft are the keys of all records that a reader finds, in order.
func keysLeft(t *testing.T, log *sdk.Log) (keys string) {
	r, err := log.NewReader(t.Context(), "t", sdk.To(sdk.Latest))
	check(t, err)
	defer r.Close()
	for {
		fetches, err := r.Poll(t.Context())
		if errors.Is(err, io.EOF) {
			return keys
		}
		check(t, err)
		for _, f := range fetches {
			for i := range f.Records {
				if keys != "" {
					keys += " "
				}
				keys += string(f.Records[i].Key)
			}
		}
	}
}
