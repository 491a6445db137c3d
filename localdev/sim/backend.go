package sim

import (
	"context"
	"errors"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/dynamo"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

const tableName = "varve"

// Rule takes something out of the protocol, outside of the code that ships: a negative control. The zero Rule leaves all in.
type Rule struct {
	Table func(*Process, metadata.Table) metadata.Table   // wraps the table of every process that is not safe
	Store func(*Process, store.Store) store.Store         // wraps its store
	Send  func(Send) Send                                 // wraps Producer.Produce
	Wire  func(p *Process, op string, body []byte) []byte // changes its requests to the table
}

// driver opens a process's connections.
type driver struct{ p *Process }

func (driver) Schemes() []string { return []string{"mem"} }

func (d driver) Open(_ context.Context, _ *url.URL, o sdk.DriverOptions) (sdk.Backend, error) {
	w := d.p.world
	t, err := dynamo.Open(dynamo.Config{AWS: w.aws(line(d)), TableName: tableName, Env: o.Env, OnCall: o.OnTable})
	if err != nil {
		return sdk.Backend{}, err
	}
	seen := watched{t, d.p}
	b := sdk.Backend{Table: recorder{seen, seen}, Store: bucket{d.p.network, d.p}, Bucket: "sim"}
	without := w.scenario.Without
	if without.Table != nil && !d.p.life.Safe {
		b.Table = recorder{without.Table(d.p, seen), seen}
	}
	if without.Store != nil && !d.p.life.Safe {
		b.Store = without.Store(d.p, b.Store)
	}
	return b, nil
}

// signing lets requests be signed, so that none is performed long after it was made.
var signing = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "sim", SecretAccessKey: "sim"}, nil
})

func (w *World) aws(c aws.HTTPClient) aws.Config {
	return aws.Config{Region: "us-east-1", HTTPClient: c, BaseEndpoint: aws.String("http://engine"), Credentials: signing,
		APIOptions: []func(*middleware.Stack) error{w.lighten}}
}

// lighten takes from the SDK's calls what makes a third of their cost and of which the engine sees nothing: where the service is and how a request is signed, but for
// the time of that; headers and books that nobody reads.
func (w *World) lighten(s *middleware.Stack) error {
	for _, id := range []string{"ResolveAuthScheme", "GetIdentity", "DiscoverEndpoint", "disableHTTPS", "ComputePayloadHash", "setLegacyContextSigningOptions"} {
		s.Finalize.Remove(id) // not every operation has each of them
	}
	for _, id := range []string{"ClientRequestID", "UserAgent", "RecursionDetection"} {
		s.Build.Remove(id)
	}
	for _, id := range []string{"RecordResponseTiming", "RequestResponseLogger"} {
		s.Deserialize.Remove(id)
	}
	s.Finalize.Remove("ResolveEndpointV2")
	_, err := s.Finalize.Swap("Signing", middleware.FinalizeMiddlewareFunc("Signing", w.date))
	return err
}

// date takes a request to the engine, dated as if it were signed now.
func (w *World) date(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
	r := in.Request.(*smithyhttp.Request)
	r.URL.Scheme, r.URL.Host = "http", "engine"
	r.Header.Set("X-Amz-Date", w.clock().UTC().Format("20060102T150405Z"))
	return next.HandleFinalize(ctx, in)
}

// table is the table as nobody in the world has it: nothing goes wrong.
func (w *World) table() metadata.Table {
	t, err := dynamo.Open(dynamo.Config{AWS: w.aws(w.engine.Load()), TableName: tableName, Env: w.env})
	w.must(err)
	return t
}

// observer counts how commits are settled.
type observer struct{ p *Process }

func (o observer) OnSettle(e sdk.SettleEvent) {
	if o.p.Alive() {
		o.p.Note("settled: %s", e.Branch)
		o.p.world.Count("settled: " + e.Branch)
	}
}

// watched sees what a process's calls of the table bring.
type watched struct {
	metadata.Table
	p *Process
}

func (t watched) image(h *metadata.Head) {
	if h != nil && h.Next-h.First > metadata.MaxHeadEntries {
		t.p.world.Bad(About{By: t.p.Name}, "a head has %d entries", h.Next-h.First)
	}
}

func (t watched) refused(err error, commits ...metadata.Commit) {
	var refused *metadata.RefusedError
	switch {
	case errors.As(err, &refused):
		t.image(refused.Head)
		for _, c := range commits {
			if c.Lane == refused.Lane {
				t.p.world.Count("refused: " + metadata.WhyRefused(c, refused.Head).String())
			}
		}
	case errors.Is(err, metadata.ErrContended):
		t.p.world.Count("refused: conflict")
	}
}

func (t watched) Head(ctx context.Context, l metadata.LaneID, c metadata.Consistency) (*metadata.Head, error) {
	h, err := t.Table.Head(ctx, l, c)
	t.image(h)
	return h, err
}

func (t watched) Commit(ctx context.Context, c metadata.Commit) (*metadata.Head, error) {
	h, err := t.Table.Commit(ctx, c)
	t.image(h)
	t.refused(err, c)
	t.cut(err, c)
	return h, err
}

// cut counts segments of several requests of which some are refused: the others go again without them.
func (t watched) cut(err error, c metadata.Commit) {
	var refused *metadata.RefusedError
	if !errors.As(err, &refused) || refused.Head == nil || metadata.WhyRefused(c, refused.Head) != metadata.ReasonProducer {
		return
	}
	failed, all := map[int]int{}, map[int]int{}
	for _, f := range c.FailedProducers(refused.Head) {
		failed[f.Entry]++
	}
	for _, s := range c.Producers {
		all[s.Entry]++
	}
	for entry, n := range failed {
		if n < all[entry] {
			t.p.world.Count("once: cut again")
		}
	}
}

func (t watched) EvictProducers(ctx context.Context, image *metadata.Head, floor metadata.ProducerID, ids ...metadata.ProducerID) (*metadata.Head, error) {
	h, err := t.Table.EvictProducers(ctx, image, floor, ids...)
	if err == nil {
		t.p.world.Count("once: room made")
	}
	return h, err
}

func (t watched) CommitAll(ctx context.Context, token string, commits []metadata.Commit) error {
	err := t.Table.CommitAll(ctx, token, commits)
	t.refused(err, commits...)
	return err
}

func (t watched) SetStart(ctx context.Context, l metadata.LaneID, slot metadata.Slot, start int64) (*metadata.State, error) {
	t.p.world.moves(startMove{by: t.p.Name, lane: l, slot: slot, to: start})
	return t.Table.SetStart(ctx, l, slot, start)
}

func (t watched) PutSmall(ctx context.Context, id segment.ID, body []byte) error {
	if t.p.putAgain(id.String(), body) {
		t.p.world.Count("minted anew")
	}
	err := t.Table.PutSmall(ctx, id, body)
	if err == nil {
		t.p.world.Count("small segment")
	}
	return err
}

func (t watched) Trim(ctx context.Context, l metadata.LaneID, from, to int64, ids []segment.ID) (*metadata.Head, error) {
	h, err := t.Table.Trim(ctx, l, from, to, ids)
	t.image(h)
	if errors.Is(err, metadata.ErrChanged) && t.p.Alive() {
		t.p.world.Count("spill by another")
	}
	return h, err
}
