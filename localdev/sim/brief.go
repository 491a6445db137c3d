package sim

import (
	"context"
	"errors"

	"github.com/varvelog/varve/sdk"
)

// conditions are the errors that an append may end with, by what is said of them in the trace.
var conditions = []struct {
	err  error
	name string
}{
	{sdk.ErrUnknown, "unknown"},
	{sdk.ErrPriorFailed, "prior failed"},
	{sdk.ErrRefused, "condition refused"},
	{sdk.ErrNoPartition, "no such partition"},
	{sdk.ErrContended, "contended"},
	{sdk.ErrNotHeld, "not held"},
	{sdk.ErrBehind, "behind"},
	{sdk.ErrTimedOut, "timed out"},
	{sdk.ErrUnreachable, "unreachable"},
	{sdk.ErrThrottled, "throttled"},
	{context.Canceled, "cancelled"},
}

// brief is an error without what differs from run to run.
func brief(err error) string {
	if err == nil {
		return "acknowledged"
	}
	for _, c := range conditions {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	return err.Error()
}
