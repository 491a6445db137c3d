package dynamo_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/internal/env"
	engine "github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/dynamo"
	"github.com/varvelog/varve/segment"
)

func TestOpenRefuses(t *testing.T) {
	for field, c := range map[string]dynamo.Config{
		"table name": {AWS: local(nil), Env: env.System()},
		"region":     {AWS: aws.Config{}, TableName: "t", Env: env.System()},
		"Env":        {AWS: local(nil), TableName: "t"},
	} {
		if _, err := dynamo.Open(c); !errors.Is(err, metadata.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// A floor that a sweep has set: new topics begin with it, and commits are tested by their smallest id.
func TestFloors(t *testing.T) {
	r := newRig(t)
	floor := entry(10, 1, 0).ID
	r.put(attrs{"pk": str("LOG"), "sk": str("FLOOR"), "floor": str(floor.String())})
	got, err := r.table.Floor(r.ctx)
	r.ok(err)
	if got != floor {
		t.Fatal(got)
	}
	r.is(r.table.CreateTopic(r.ctx, topic("t", "lane"), segment.ID{}), metadata.ErrChanged) // read before the sweep
	r.ok(r.table.CreateTopic(r.ctx, topic("t", "lane"), floor))
	h := r.head("lane")
	s, err := r.table.State(r.ctx, "lane", metadata.Strong)
	r.ok(err)
	if h.Floor != floor || s.Floor != floor {
		t.Fatalf("head %v, state %v, want %v", h.Floor, s.Floor, floor)
	}
	for name, entries := range map[string][]metadata.Entry{
		"at":            {entry(10, 1, 0)},
		"below":         {entry(9, 1, 0)},
		"one of three":  {entry(12, 1, 0), entry(9, 1, 0), entry(13, 1, 0)},
		"the last only": {entry(12, 1, 0), entry(10, 1, 0)},
	} {
		c := commitTo(h, entries...)
		_, err := r.table.Commit(r.ctx, c)
		var refused *metadata.RefusedError
		if !errors.As(err, &refused) || metadata.WhyRefused(c, refused.Head) != metadata.ReasonFloor {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = r.table.Commit(r.ctx, commitTo(h, entry(12, 1, 0), entry(11, 1, 0)))
	r.ok(err)
}

// What OnCall is told: one report a request, units as the service counted them, what went wrong.
func TestOnCall(t *testing.T) {
	r := newRig(t)
	h := r.head(r.lane("lane"))
	r.next()
	_, err := r.table.Commit(r.ctx, commitTo(h, entry(1, 1, 0)))
	r.ok(err)
	_, err = r.table.Commit(r.ctx, commitTo(h, entry(1, 1, 0)))
	if err == nil {
		t.Fatal("twice")
	}
	r.head("lane")
	_, err = r.table.Head(r.ctx, "lane", metadata.Eventual)
	r.ok(err)
	r.ok(r.table.CommitAll(r.ctx, "token", []metadata.Commit{commitTo(h, entry(2, 1, 0))}))
	for i, want := range []metadata.Call{{Op: "Commit", Lane: "lane", WriteUnits: 1}, {Op: "Commit", Lane: "lane", Err: metadata.ErrChanged},
		{Op: "Head", Lane: "lane", ReadUnits: 1}, {Op: "Head", Lane: "lane", ReadUnits: 0.5}, {Op: "CommitAll", WriteUnits: 2}} {
		got := r.calls[i]
		if !errors.Is(got.Err, want.Err) || got.Duration < 0 {
			t.Errorf("call %d: %+v", i, got)
		}
		got.Err, got.Duration, want.Err = nil, 0, nil
		if got != want {
			t.Errorf("call %d: %+v, want %+v", i, got, want)
		}
	}
	if len(r.calls) != 5 {
		t.Errorf("%d reports of 5 requests", len(r.calls))
	}
}

func TestEnsureTable(t *testing.T) {
	t.Run("two at once", func(t *testing.T) {
		c := onEngine(t, engine.Options{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := openTable(t, dynamo.Config{AWS: c}).EnsureTable(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		out, err := sdk.NewFromConfig(c).DescribeTable(t.Context(), &sdk.DescribeTableInput{TableName: aws.String("varve")})
		if err != nil || out.Table.BillingModeSummary.BillingMode != types.BillingModePayPerRequest {
			t.Fatal(out, err)
		}
	})
	t.Run("no table", func(t *testing.T) {
		table := openTable(t, dynamo.Config{AWS: onEngine(t, engine.Options{})})
		if _, err := table.Head(t.Context(), "lane", metadata.Strong); !errors.Is(err, metadata.ErrNoTable) {
			t.Fatal(err)
		}
	})
	t.Run("other keys", func(t *testing.T) {
		c := onEngine(t, engine.Options{})
		_, err := sdk.NewFromConfig(c).CreateTable(t.Context(), &sdk.CreateTableInput{TableName: aws.String("varve"), BillingMode: types.BillingModePayPerRequest,
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: "S"}, {AttributeName: aws.String("sk"), AttributeType: "N"}},
			KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: "HASH"}, {AttributeName: aws.String("sk"), KeyType: "RANGE"}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := openTable(t, dynamo.Config{AWS: c}).EnsureTable(t.Context()); !errors.Is(err, metadata.ErrInvalid) {
			t.Fatal(err)
		}
	})
	describe := func(status string) string {
		return `{"Table":{"TableStatus":"` + status + `","AttributeDefinitions":[{"AttributeName":"pk","AttributeType":"S"},{"AttributeName":"sk","AttributeType":"S"}],` +
			`"KeySchema":[{"AttributeName":"pk","KeyType":"HASH"},{"AttributeName":"sk","KeyType":"RANGE"}]}}`
	}
	for ready, want := range map[int]error{10: nil, 1 << 30: metadata.ErrUnavailable} {
		t.Run(fmt.Sprintf("usable at request %d", ready), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var creations int
				table, _ := scripted(t, func(n int, req *http.Request) (*http.Response, error) {
					switch {
					case operation(req) == "CreateTable":
						creations++
						return reply(200, "{}")
					case creations == 0:
						return reply(400, refusal("ResourceNotFoundException"))
					case n < ready:
						return reply(200, describe("CREATING"))
					}
					return reply(200, describe("ACTIVE"))
				})
				start := time.Now()
				if err := table.EnsureTable(t.Context()); !errors.Is(err, want) || creations != 1 {
					t.Errorf("%v after %d creations", err, creations)
				}
				if took := time.Since(start); took > 3*time.Minute {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// The service's clock, not ours, and carried on between answers.
func TestServiceTimeFromAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := 3 * time.Hour
		c := onEngine(t, engine.Options{Now: func() time.Time { return time.Now().Add(ahead) }})
		table := openTable(t, dynamo.Config{AWS: c})
		if _, ok := table.ServiceTime(); ok {
			t.Error("a time before the first answer")
		}
		if err := table.EnsureTable(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			got, ok := table.ServiceTime()
			if d := time.Now().Add(ahead).Sub(got); !ok || d < 0 || d > time.Second {
				t.Errorf("%v, off by %v", got, d)
			}
			time.Sleep(10 * time.Minute)
		}
	})
	// A proxy's answer is not the service's.
	table, _ := scripted(t, func(int, *http.Request) (*http.Response, error) {
		r, _ := reply(400, refusal("ValidationException"))
		r.Header.Set("Date", "Mon, 02 Jan 2006 15:04:05 GMT")
		return r, nil
	})
	table.Head(t.Context(), "lane", metadata.Strong)
	if now, ok := table.ServiceTime(); ok {
		t.Errorf("%v from an answer that is not a success", now)
	}
}

// Connections are kept for as many callers as there are: a second burst makes none.
func TestConnectionPool(t *testing.T) {
	e, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	const callers = 64
	var mu sync.Mutex
	opened, waiting := 0, 0
	all := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		waiting++
		gate := all
		if waiting == callers {
			close(all)
			all, waiting = make(chan struct{}), 0
		}
		mu.Unlock()
		select { // until all are under way, so that each has a connection of its own
		case <-gate:
		case <-req.Context().Done():
		}
		e.ServeHTTP(w, req)
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			mu.Lock()
			opened++
			mu.Unlock()
		}
	}
	server.Start()
	defer server.Close()
	c := local(nil)
	c.BaseEndpoint = &server.URL
	table := openTable(t, dynamo.Config{AWS: c})
	for burst := range 2 {
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				if _, err := table.Head(ctx, "lane", metadata.Strong); !errors.Is(err, metadata.ErrNoTable) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		mu.Lock()
		if opened > callers+callers/4 { // some may be opened and not needed
			t.Errorf("%d connections after burst %d of %d calls", opened, burst+1, callers)
		}
		mu.Unlock()
	}
}

// A redirect is not followed: whoever sent it may have passed the request on.
func TestRedirectIsNotFollowed(t *testing.T) {
	var arrived int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		arrived++
		http.Redirect(w, req, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	c := local(nil)
	c.BaseEndpoint = &server.URL
	_, err := openTable(t, dynamo.Config{AWS: c}).Commit(t.Context(), commitTo(aHead, entry(1, 1, 0)))
	if !errors.Is(err, metadata.ErrOutcomeUnknown) || arrived != 1 {
		t.Errorf("%v, %d requests arrived", err, arrived)
	}
}
