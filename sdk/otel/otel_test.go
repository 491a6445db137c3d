package otel_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/sdk/otel"
)

// telemetry is what was exported.
type telemetry struct {
	hooks  *otel.Hooks
	spans  *tracetest.InMemoryExporter
	tracer trace.TracerProvider
	reader *metric.ManualReader
}

func newTelemetry(t *testing.T) *telemetry {
	x := &telemetry{spans: tracetest.NewInMemoryExporter(), reader: metric.NewManualReader()}
	x.tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(x.spans))
	var err error
	x.hooks, err = otel.New(otel.Options{Tracer: x.tracer, Meter: metric.NewMeterProvider(metric.WithReader(x.reader))})
	must(t, err)
	return x
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// named are the spans of that name.
func (x *telemetry) named(name string) (all tracetest.SpanStubs) {
	for _, s := range x.spans.GetSpans() {
		if s.Name == name {
			all = append(all, s)
		}
	}
	return all
}

// point is one series of a metric: its attributes as text, and its sum or, of a histogram, its count.
type point struct {
	attributes string
	value      float64
}

func (x *telemetry) metrics(t *testing.T) map[string][]point {
	t.Helper()
	var all metricdata.ResourceMetrics
	must(t, x.reader.Collect(t.Context(), &all))
	points := map[string][]point{}
	text := func(s attribute.Set) string { return s.Encoded(attribute.DefaultEncoder()) }
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					points[m.Name] = append(points[m.Name], point{text(p.Attributes), float64(p.Count)})
				}
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					points[m.Name] = append(points[m.Name], point{text(p.Attributes), float64(p.Value)})
				}
			case metricdata.Sum[float64]:
				for _, p := range d.DataPoints {
					points[m.Name] = append(points[m.Name], point{text(p.Attributes), p.Value})
				}
			default:
				t.Fatalf("%s is a %T", m.Name, d)
			}
		}
	}
	return points
}

// A record carries its trace through produce, store and read, among its other headers; spans and metrics tell of the put, the commit and the fetch; and
// no metric has an attribute of many values.
func TestALogIsSeen(t *testing.T) {
	x, ctx := newTelemetry(t), t.Context()
	log, err := sdk.Open(ctx, "mem://", sdk.WithDriver(embedded.Driver()), sdk.WithHooks(x.hooks))
	must(t, err)
	defer log.Close()
	_, err = log.Admin().CreateTopic(ctx, sdk.NewTopic{Name: "orders", Partitions: 3})
	must(t, err)
	p, err := log.NewProducer()
	must(t, err)
	parent, caller := x.tracer.Tracer("test").Start(ctx, "caller")
	r := &sdk.Record{Topic: "orders", Key: []byte("secret-key"), Value: []byte("v"), Headers: []sdk.Header{{Key: "a", Value: []byte{0, 255}}, {Key: "traceparent", Value: []byte("old")}, {Key: "b"}}}
	told := make(chan error, 1)
	p.Produce(ctx, r, x.hooks.Produce(parent, r, func(_ *sdk.Record, err error) { told <- err }))
	must(t, <-told)
	must(t, p.Close(ctx))
	caller.End()

	sent := x.named("send orders")
	if len(sent) != 1 || sent[0].Parent.SpanID() != caller.SpanContext().SpanID() || sent[0].SpanKind != trace.SpanKindProducer {
		t.Fatalf("spans of the record: %+v", sent)
	}
	reader, err := log.NewReader(ctx, "orders", sdk.To(sdk.Latest))
	must(t, err)
	defer reader.Close()
	var got []sdk.Record
	for {
		fetches, err := reader.Poll(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		for _, f := range fetches {
			got = append(got, f.Records...)
		}
	}
	if len(got) != 1 {
		t.Fatalf("read %v", got)
	}
	if c := otel.Extract(&got[0]); c.TraceID() != sent[0].SpanContext.TraceID() || c.SpanID() != sent[0].SpanContext.SpanID() || !c.IsSampled() || !c.IsRemote() {
		t.Errorf("the record says %v, the span is %v", c, sent[0].SpanContext)
	}
	if h := got[0].Headers; len(h) != 3 || h[0].Key != "a" || string(h[0].Value) != "\x00\xff" || h[1].Key != "b" || h[1].Value != nil || h[2].Key != "traceparent" {
		t.Errorf("headers %v", h)
	}
	for name, kind := range map[string]trace.SpanKind{"varve put": trace.SpanKindClient, "varve commit": trace.SpanKindClient, "varve fetch": trace.SpanKindClient} {
		spans := x.named(name)
		if len(spans) != 1 || spans[0].SpanKind != kind || spans[0].EndTime.Before(spans[0].StartTime) || spans[0].Status.Code == codes.Error {
			t.Errorf("%s: %+v", name, spans)
		}
	}
	points := x.metrics(t)
	for name, want := range map[string]point{
		"varve.produce.duration": {"varve.outcome=applied", 1},
		"varve.put.duration":     {"varve.outcome=ok", 1},
		"varve.put.records":      {"", 1},
		"varve.commit.duration":  {"varve.outcome=applied", 1},
		"varve.fetch.duration":   {"varve.outcome=ok", 1},
	} {
		if got := points[name]; len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if !slices.ContainsFunc(points["varve.requests"], func(p point) bool {
		return p.attributes == "varve.operation=Commit,varve.outcome=ok,varve.service=table" && p.value == 1
	}) || len(points["varve.table.write_units"]) == 0 || len(points["varve.put.size"]) == 0 || len(points["varve.fetch.size"]) == 0 {
		t.Errorf("requests: %v", points)
	}
	lowCardinality(t, points)
}

// lowCardinality checks that no series is of a topic, a partition, a lane, an object or a key.
func lowCardinality(t *testing.T, points map[string][]point) {
	t.Helper()
	for name, series := range points {
		for _, p := range series {
			for pair := range strings.SplitSeq(p.attributes, ",") {
				key, _, _ := strings.Cut(pair, "=")
				if !slices.Contains([]string{"", "varve.outcome", "varve.branch", "varve.service", "varve.operation"}, key) || strings.Contains(p.attributes, "orders") {
					t.Errorf("%s has %s", name, p.attributes)
				}
			}
		}
	}
}

// What goes wrong is told apart: a failure, an outcome that is not known, how it was settled, and what a reader has lost.
func TestWhatGoesWrong(t *testing.T) {
	x, oops := newTelemetry(t), errors.New("oops")
	x.hooks.OnPut(sdk.PutEvent{Object: "r7d/intake/00/orders", Bytes: 7, Records: 3, Duration: time.Second, Err: oops})
	x.hooks.OnCommit(sdk.CommitEvent{Lane: "orders-0", Segments: 1, Attempts: 2, Duration: 2 * time.Second, Outcome: sdk.Unknown, Err: oops})
	x.hooks.OnCommit(sdk.CommitEvent{Lane: "orders-0", Outcome: sdk.NotApplied, Err: oops})
	x.hooks.OnSettle(sdk.SettleEvent{Lane: "orders-0", Branch: "found in head", Duration: time.Second})
	x.hooks.OnFetch(sdk.FetchEvent{Object: "orders", Err: oops})
	x.hooks.OnReset(sdk.ResetEvent{Topic: "orders", Partition: 7, From: 10, To: 25})
	x.hooks.OnRequest(sdk.RequestEvent{Service: "http", Op: "Produce", Lane: "orders-0", Requests: 1, Err: oops})
	r := &sdk.Record{Topic: "orders"}
	x.hooks.Produce(t.Context(), r, nil)(r, sdk.ErrUnknown)
	for _, name := range []string{"varve put", "varve fetch", "send orders"} {
		if s := x.named(name); len(s) != 1 || s[0].Status.Code != codes.Error {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if s := x.named("varve commit"); len(s) != 2 || s[0].EndTime.Sub(s[0].StartTime) != 2*time.Second {
		t.Errorf("commits: %+v", s)
	}
	points := x.metrics(t)
	for name, want := range map[string][]point{
		"varve.put.duration":     {{"varve.outcome=failed", 1}},
		"varve.commit.duration":  {{"varve.outcome=not_applied", 1}, {"varve.outcome=unknown", 1}},
		"varve.settle.duration":  {{"varve.branch=found in head", 1}},
		"varve.fetch.duration":   {{"varve.outcome=failed", 1}},
		"varve.reset.records":    {{"", 15}},
		"varve.requests":         {{"varve.operation=Produce,varve.outcome=failed,varve.service=http", 1}},
		"varve.produce.duration": {{"varve.outcome=unknown", 1}},
	} {
		got := points[name]
		slices.SortFunc(got, func(a, b point) int { return strings.Compare(a.attributes, b.attributes) })
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if _, there := points["varve.put.records"]; there {
		t.Error("records of a put that failed are counted")
	}
	lowCardinality(t, points)
}

// Inject leaves a record alone without a span, and other records' headers alone with one. Extract takes nonsense for nothing.
func TestHeaders(t *testing.T) {
	shared := make([]sdk.Header, 1, 8)
	shared[0] = sdk.Header{Key: "a"}
	r, other := &sdk.Record{Headers: shared}, &sdk.Record{Headers: shared}
	otel.Inject(context.Background(), r)
	if len(r.Headers) != 1 || otel.Extract(r).IsValid() {
		t.Errorf("without a span: %v", r.Headers)
	}
	state, err := trace.ParseTraceState("vendor=1")
	must(t, err)
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceState: state, TraceFlags: trace.FlagsSampled})
	for range 2 {
		otel.Inject(trace.ContextWithSpanContext(t.Context(), span), r)
	}
	if len(r.Headers) != 3 || string(r.Headers[1].Value)+string(r.Headers[2].Value) != "vendor=1"+"00-01000000000000000000000000000000-0200000000000000-01" &&
		string(r.Headers[1].Value)+string(r.Headers[2].Value) != "00-01000000000000000000000000000000-0200000000000000-01"+"vendor=1" {
		t.Errorf("headers %q", r.Headers)
	}
	if got := otel.Extract(r); !got.Equal(span.WithRemote(true)) {
		t.Errorf("extracted %v", got)
	}
	if len(other.Headers) != 1 || shared[:2][1].Key != "" {
		t.Errorf("the other record has %v", shared[:2])
	}
	for _, bad := range []string{"", "x", "00-0-0-0", strings.Repeat("0", 10000), "ff-01000000000000000000000000000000-0200000000000000-01", "00-00000000000000000000000000000000-0200000000000000-01"} {
		if got := otel.Extract(&sdk.Record{Headers: []sdk.Header{{Key: "traceparent", Value: []byte(bad)}}}); got.IsValid() {
			t.Errorf("%q is taken for %v", bad, got)
		}
	}
}
