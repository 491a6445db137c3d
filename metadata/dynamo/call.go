package dynamo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
)

// call is one call of the contract, for its errors and for OnCall.
type call struct {
	op      string
	key     metadata.Key
	lane    metadata.LaneID
	timeout time.Duration // of one attempt
	write   bool
	open    error     // what an attempt is whose outcome nobody knows
	doubt   bool      // there was such an attempt
	fresh   freshness // of the ids that are committed or published, if there are any
	old     bool      // they were not, and so were not sent
}

func reading(op string, lane metadata.LaneID, key metadata.Key) *call {
	return &call{op: op, lane: lane, key: key, timeout: itemTimeout, open: metadata.ErrUnavailable}
}

// writing is a write that may be repeated, so that "unknown" is not among its outcomes.
func writing(op string, lane metadata.LaneID, key metadata.Key) *call {
	return &call{op: op, lane: lane, key: key, timeout: itemTimeout, open: metadata.ErrUnavailable, write: true}
}

// committing is a write that is sent once.
func committing(op string, lane metadata.LaneID, key metadata.Key) *call {
	return &call{op: op, lane: lane, key: key, timeout: itemTimeout, open: metadata.ErrOutcomeUnknown, write: true}
}

func (c *call) within(d time.Duration) *call {
	c.timeout = d
	return c
}

// api is an operation of the SDK's client.
type api[I, O any] func(context.Context, *I, ...func(*dynamodb.Options)) (*O, error)

// attempt sends one request. Its error is a *metadata.Error, with *refused or *cancelled in it when a condition failed.
func attempt[I, O any](ctx context.Context, t *Table, c *call, timeout time.Duration, do api[I, O], in *I) (*O, error) {
	if ctx.Err() != nil {
		return nil, c.error("", context.Cause(ctx))
	}
	limited, cancel := t.env.WithTimeout(ctx, timeout)
	defer cancel()
	x := &exchange{table: t, fresh: c.fresh}
	start := t.env.Mono()
	out, err := do(limited, in, func(o *dynamodb.Options) { o.HTTPClient = x })
	took := t.env.Mono() - start
	c.old = errors.Is(err, errOld)
	if err != nil {
		err = c.judge(ctx, x, err)
		t.report(c, took, nil, err)
		return nil, err
	}
	t.report(c, took, consumed(out), nil)
	return out, nil
}

// repeat makes attempts until one is answered for good, or time is up; then its error is what the last one met.
func repeat[I, O any](ctx context.Context, t *Table, c *call, do api[I, O], in *I) (*O, error) {
	p := t.patience(repeatFor)
	for {
		out, err := attempt(ctx, t, c, min(c.timeout, p.left()), do, in)
		var e *metadata.Error
		if err == nil || !errors.As(err, &e) || !repeatable(err) || c.old {
			return out, err
		}
		if !p.pause(ctx) {
			return nil, gaveUp(ctx, e)
		}
	}
}

// patience is how long a call is repeated, and the pauses between.
type patience struct {
	env  env.Env
	end  time.Duration // on the monotonic clock
	next time.Duration
}

func (t *Table) patience(d time.Duration) *patience {
	return &patience{env: t.env, end: t.env.Mono() + d, next: firstPause}
}

func (p *patience) left() time.Duration { return p.end - p.env.Mono() }

// pause waits for a while and tells whether there is time for another attempt.
func (p *patience) pause(ctx context.Context) bool {
	d := p.env.Jitter(p.next)
	p.next = min(2*p.next, lastPause)
	return d < p.left() && p.env.Sleep(ctx, d) == nil
}

func repeatable(err error) bool {
	return errors.Is(err, metadata.ErrThrottled) || errors.Is(err, metadata.ErrContended) || errors.Is(err, metadata.ErrUnavailable)
}

// gaveUp keeps the last answer, with the service's own code, as the reason; the caller's context is named only if it was that which ended.
func gaveUp(ctx context.Context, last *metadata.Error) error {
	if ctx.Err() != nil {
		last.Err = fmt.Errorf("%w, then: %w", last.Err, context.Cause(ctx))
	} else {
		last.Err = fmt.Errorf("%w, repeatedly until time was up", last.Err)
	}
	return last
}

func (t *Table) report(c *call, took time.Duration, units *types.ConsumedCapacity, err error) {
	if t.onCall == nil {
		return
	}
	r := metadata.Call{Op: c.op, Lane: c.lane, Duration: took, Err: err}
	switch {
	case units == nil:
	case units.ReadCapacityUnits != nil || units.WriteCapacityUnits != nil:
		r.ReadUnits, r.WriteUnits = value(units.ReadCapacityUnits), value(units.WriteCapacityUnits)
	case c.write:
		r.WriteUnits = value(units.CapacityUnits)
	default:
		r.ReadUnits = value(units.CapacityUnits)
	}
	t.onCall(r)
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// consumed is what an answer says it cost. Failed conditions cost too, but their answers do not say so.
func consumed(out any) *types.ConsumedCapacity {
	switch o := out.(type) {
	case *dynamodb.GetItemOutput:
		return o.ConsumedCapacity
	case *dynamodb.PutItemOutput:
		return o.ConsumedCapacity
	case *dynamodb.UpdateItemOutput:
		return o.ConsumedCapacity
	case *dynamodb.DeleteItemOutput:
		return o.ConsumedCapacity
	case *dynamodb.QueryOutput:
		return o.ConsumedCapacity
	case *dynamodb.BatchWriteItemOutput:
		return only(o.ConsumedCapacity)
	case *dynamodb.TransactWriteItemsOutput:
		return only(o.ConsumedCapacity)
	}
	return nil
}

// only is the capacity of the one table that we use.
func only(tables []types.ConsumedCapacity) *types.ConsumedCapacity {
	if len(tables) != 1 {
		return nil
	}
	return &tables[0]
}
