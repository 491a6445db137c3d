package otel

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/varvelog/varve/sdk"
)

// Inject puts the trace context of ctx into the record's headers, as W3C Trace Context has it: traceparent, and tracestate if there is one. Those that are
// there are replaced. Without a valid span in ctx the record stays as it is. Headers go through the log unchanged.
func Inject(ctx context.Context, r *sdk.Record) {
	propagation.TraceContext{}.Inject(ctx, (*carrier)(r))
}

// Extract is the trace context in the record's headers, not valid if there is none that can be read. Who handles one record continues the trace
// (trace.ContextWithRemoteSpanContext); who handles many links to them (trace.WithLinks).
func Extract(r *sdk.Record) trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(), (*carrier)(r))
	return trace.SpanContextFromContext(ctx)
}

// carrier is a record's headers.
type carrier sdk.Record

func (c *carrier) Get(key string) string {
	for _, h := range c.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

func (c *carrier) Set(key, value string) {
	others := make([]sdk.Header, 0, len(c.Headers)+2) // records may share the array that they have
	others = append(others, c.Headers...)
	others = slices.DeleteFunc(others, func(h sdk.Header) bool { return h.Key == key })
	c.Headers = append(others, sdk.Header{Key: key, Value: []byte(value)})
}

func (c *carrier) Keys() []string {
	keys := make([]string, len(c.Headers))
	for i, h := range c.Headers {
		keys[i] = h.Key
	}
	return keys
}
