// Package otel shows a log's work to OpenTelemetry: spans and metrics of what a log asks of its bucket, its table or its functions, and trace contexts in the
// headers of records.
//
//	hooks, err := otel.New(otel.Options{})
//	log, err := sdk.Open(ctx, url, sdk.WithHooks(hooks))
//
// Attributes of metrics have few values: services, operations, outcomes. Never a partition, a key, an object or a lane; topics are on the spans of producers
// only.
package otel

import (
	"context"
	"errors"
	"time"

	api "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/sdk"
)

// scope names what made a span or a metric.
const scope = "github.com/varvelog/varve/sdk/otel"

// Options say where spans and metrics go.
type Options struct {
	Tracer trace.TracerProvider // nil: the global one
	Meter  metric.MeterProvider // nil: the global one
	Env    env.Env              // for varve's own tests; the zero value is env.System()
}

// Hooks observes logs (sdk.WithHooks), any number of them. What happens in them has no caller's context, since one commit is of many callers: its spans are
// roots. Produce makes spans of single records.
type Hooks struct {
	env    env.Env
	tracer trace.Tracer

	produced, put, committed, settled, fetched, requested metric.Float64Histogram
	putBytes, putRecords, fetchedBytes, requests, lost    metric.Int64Counter
	readUnits, writeUnits                                 metric.Float64Counter
}

// New makes the hooks. The error is the meter's.
func New(o Options) (*Hooks, error) {
	if o.Tracer == nil {
		o.Tracer = api.GetTracerProvider()
	}
	if o.Meter == nil {
		o.Meter = api.GetMeterProvider()
	}
	if o.Env.Clock == nil {
		o.Env = env.System()
	}
	m := &meter{Meter: o.Meter.Meter(scope)}
	h := &Hooks{
		env: o.Env, tracer: o.Tracer.Tracer(scope),
		produced:     m.seconds("varve.produce.duration", "From Produce to the promise."),
		put:          m.seconds("varve.put.duration", "One segment put, retries included."),
		committed:    m.seconds("varve.commit.duration", "One update of a lane's head, or one request to append."),
		settled:      m.seconds("varve.settle.duration", "Settling a commit of unknown outcome."),
		fetched:      m.seconds("varve.fetch.duration", "One read of records."),
		requested:    m.seconds("varve.request.duration", "One call of store, table or function."),
		putBytes:     m.count("varve.put.size", "By", "Bytes of segments put."),
		putRecords:   m.count("varve.put.records", "{record}", "Records of segments put."),
		fetchedBytes: m.count("varve.fetch.size", "By", "Bytes of segments read."),
		requests:     m.count("varve.requests", "{request}", "Requests to store, table or function, retries included."),
		lost:         m.count("varve.reset.records", "{offset}", "Offsets that were removed before a reader had read them."),
	}
	h.readUnits, h.writeUnits = m.units("varve.table.read_units", "Read units of the table."), m.units("varve.table.write_units", "Write units of the table.")
	return h, m.err
}

// meter makes instruments and keeps their errors.
type meter struct {
	metric.Meter
	err error
}

func (m *meter) seconds(name, what string) metric.Float64Histogram {
	h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what))
	m.err = errors.Join(m.err, err)
	return h
}

func (m *meter) count(name, unit, what string) metric.Int64Counter {
	c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
	m.err = errors.Join(m.err, err)
	return c
}

func (m *meter) units(name, what string) metric.Float64Counter {
	c, err := m.Float64Counter(name, metric.WithUnit("{unit}"), metric.WithDescription(what))
	m.err = errors.Join(m.err, err)
	return c
}

// Attributes.
const (
	outcomeKey = attribute.Key("varve.outcome") // applied, not_applied, unknown; or ok, failed
	branchKey  = attribute.Key("varve.branch")  // by which a commit was settled
	serviceKey = attribute.Key("varve.service") // store, table, http
	opKey      = attribute.Key("varve.operation")
	topicKey   = attribute.Key("messaging.destination.name")
)

// over makes a span of what has just ended, and measures it. Attributes of both are few; extra is the span's alone.
func (h *Hooks) over(name string, kind trace.SpanKind, took time.Duration, err error, m metric.Float64Histogram, attributes []attribute.KeyValue, extra ...attribute.KeyValue) {
	ctx, now := context.Background(), h.env.Now()
	_, span := h.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithTimestamp(now.Add(-took)), trace.WithAttributes(attributes...), trace.WithAttributes(extra...))
	fail(span, err)
	span.End(trace.WithTimestamp(now))
	m.Record(ctx, took.Seconds(), metric.WithAttributes(attributes...))
}

func fail(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
}

// okay is the outcome of what is not appended.
func okay(err error) []attribute.KeyValue {
	if err != nil {
		return []attribute.KeyValue{outcomeKey.String("failed")}
	}
	return []attribute.KeyValue{outcomeKey.String("ok")}
}

func outcome(o sdk.Outcome) []attribute.KeyValue {
	name := "not_applied"
	switch o {
	case sdk.Applied:
		name = "applied"
	case sdk.Unknown:
		name = "unknown"
	}
	return []attribute.KeyValue{outcomeKey.String(name)}
}

// OnPut implements sdk.PutHook.
func (h *Hooks) OnPut(e sdk.PutEvent) {
	h.over("varve put", trace.SpanKindClient, e.Duration, e.Err, h.put, okay(e.Err), attribute.Int("varve.bytes", e.Bytes), attribute.Int("varve.records", e.Records))
	if e.Err == nil {
		h.putBytes.Add(context.Background(), int64(e.Bytes))
		h.putRecords.Add(context.Background(), int64(e.Records))
	}
}

// OnCommit implements sdk.CommitHook.
func (h *Hooks) OnCommit(e sdk.CommitEvent) {
	h.over("varve commit", trace.SpanKindClient, e.Duration, e.Err, h.committed, outcome(e.Outcome), attribute.Int("varve.segments", e.Segments), attribute.Int("varve.attempt", e.Attempts))
}

// OnSettle implements sdk.SettleHook.
func (h *Hooks) OnSettle(e sdk.SettleEvent) {
	h.over("varve settle", trace.SpanKindInternal, e.Duration, nil, h.settled, []attribute.KeyValue{branchKey.String(e.Branch)})
}

// OnFetch implements sdk.FetchHook.
func (h *Hooks) OnFetch(e sdk.FetchEvent) {
	h.over("varve fetch", trace.SpanKindClient, e.Duration, e.Err, h.fetched, okay(e.Err), attribute.Int("varve.bytes", e.Bytes), attribute.Int("varve.extents", e.Extents))
	h.fetchedBytes.Add(context.Background(), int64(e.Bytes))
}

// OnReset implements sdk.ResetHook.
func (h *Hooks) OnReset(e sdk.ResetEvent) { h.lost.Add(context.Background(), max(e.To-e.From, 0)) }

// OnRequest implements sdk.RequestHook. It makes no span: those of put, commit and fetch have the requests that matter.
func (h *Hooks) OnRequest(e sdk.RequestEvent) {
	ctx := context.Background()
	of := attribute.NewSet(serviceKey.String(e.Service), opKey.String(e.Op), okay(e.Err)[0])
	h.requested.Record(ctx, e.Duration.Seconds(), metric.WithAttributeSet(of))
	h.requests.Add(ctx, int64(e.Requests), metric.WithAttributeSet(of))
	if e.ReadUnits > 0 {
		h.readUnits.Add(ctx, e.ReadUnits, metric.WithAttributeSet(of))
	}
	if e.WriteUnits > 0 {
		h.writeUnits.Add(ctx, e.WriteUnits, metric.WithAttributeSet(of))
	}
}

// Produce begins a span of a record that is about to be produced, as a child of ctx's, and puts it into the record's headers. The promise that it returns ends the
// span and calls the given one, which may be nil:
//
//	producer.Produce(ctx, r, hooks.Produce(ctx, r, promise))
//
// A span for each record is much where there are many: Inject alone costs no span.
func (h *Hooks) Produce(ctx context.Context, r *sdk.Record, promise func(*sdk.Record, error)) func(*sdk.Record, error) {
	start := h.env.Mono()
	ctx, span := h.tracer.Start(ctx, "send "+r.Topic, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		attribute.String("messaging.system", "varve"), attribute.String("messaging.operation.type", "send"), topicKey.String(r.Topic)))
	Inject(ctx, r)
	return func(r *sdk.Record, err error) {
		of := outcome(sdk.OutcomeOf(err))
		span.SetAttributes(of...)
		fail(span, err)
		span.End()
		h.produced.Record(ctx, (h.env.Mono() - start).Seconds(), metric.WithAttributes(of...))
		if promise != nil {
			promise(r, err)
		}
	}
}
