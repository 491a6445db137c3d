package monitor

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment/store"
)

// Counts is a hook, for sdk.WithHooks, that counts what only the process itself sees. It may be used by several goroutines.
type Counts struct {
	unknown, unsettled, throttles atomic.Int64
}

// OnSettle implements sdk.SettleHook: each unknown outcome is settled once.
func (c *Counts) OnSettle(e sdk.SettleEvent) {
	c.unknown.Add(1)
	if e.Branch == "unknown" {
		c.unsettled.Add(1)
	}
}

// OnRequest implements sdk.RequestHook.
func (c *Counts) OnRequest(e sdk.RequestEvent) {
	if errors.Is(e.Err, metadata.ErrThrottled) || errors.Is(e.Err, store.ErrThrottled) {
		c.throttles.Add(1)
	}
}

// Write writes what was counted since the last Write as a line of the function's, if it is anything.
func (c *Counts) Write(w io.Writer, at time.Time, log, function string) error {
	unknown, unsettled, throttles := c.unknown.Swap(0), c.unsettled.Swap(0), c.throttles.Swap(0)
	if unknown == 0 && unsettled == 0 && throttles == 0 {
		return nil
	}
	return writeLine(w, at, []dimension{{ByLog, log}, {ByFunction, function}}, value{Unknown, "Count", float64(unknown)}, value{Unsettled, "Count", float64(unsettled)}, value{Throttles, "Count", float64(throttles)})
}
