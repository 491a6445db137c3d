package dynamodb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/localdev/dynamodb"
)

// increment adds 1 to the attribute n of an item.
func (f *fixture) increment(ctx context.Context, pk string) error {
	_, err := f.client.UpdateItem(ctx, &sdk.UpdateItemInput{TableName: table, Key: key(pk, "s"), UpdateExpression: aws.String("ADD n :v"), ExpressionAttributeValues: values("v:1")})
	return err
}

// sleep waits on the bubble's clock.
func sleep(d time.Duration) func(context.Context) {
	return func(ctx context.Context) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
}

// onUpdates faults the updates of items whose partition key begins with L#, and nothing else.
func onUpdates(fault dynamodb.Fault) dynamodb.Hook {
	return func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
		if c.Op == "UpdateItem" && c.Table == "tbl" && strings.HasPrefix(c.Keys[0].Partition, "L#") {
			return fault
		}
		return dynamodb.Fault{}
	}
}

// TestFaults: what the caller sees, and what is in the table at once and a minute later.
func TestFaults(t *testing.T) {
	const changed = `n:1 pk:"L#1" sk:"s"`
	errOwn := errors.New("own")
	for _, row := range []struct {
		name        string
		fault       dynamodb.Fault
		code        string
		took        time.Duration
		at, minutes string // the item when the call returns, and in the end
	}{
		{"none", dynamodb.Fault{}, "", 0, changed, changed},
		{"throttled", dynamodb.Throttle(), "ProvisionedThroughputExceededException", 0, "", ""},
		{"500", dynamodb.ServerError(), "InternalServerError", 0, "", ""},
		{"500 though applied", dynamodb.Fault{Reply: dynamodb.InternalServerError()}, "InternalServerError", 0, changed, changed},
		{"dropped before", dynamodb.Dropped(), "transport", 0, "", ""},
		{"answer lost", dynamodb.AnswerLost(), "transport", 0, changed, changed},
		{"answer lost in silence", dynamodb.Fault{Reply: dynamodb.ErrNoAnswer}, "transport", 10 * time.Second, changed, changed},
		{"request lost in silence", dynamodb.Fault{Skip: true, Reply: dynamodb.ErrNoAnswer}, "transport", 10 * time.Second, "", ""},
		{"applied late", dynamodb.AppliedLate(sleep(time.Minute)), "transport", 0, "", changed},
		{"applied late, in silence", dynamodb.Fault{Late: sleep(5 * time.Second), Reply: dynamodb.ErrNoAnswer}, "transport", 10 * time.Second, changed, changed},
		{"answer held up", dynamodb.Fault{Hold: sleep(3 * time.Second)}, "", 3 * time.Second, changed, changed},
		{"answer held up for too long", dynamodb.Fault{Hold: sleep(time.Hour)}, "transport", 10 * time.Second, changed, changed},
		{"an error of one's own", dynamodb.Fault{Skip: true, Reply: errOwn}, "transport", 0, "", ""},
		{"skipped", dynamodb.Fault{Skip: true}, "transport", 0, "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, dynamodb.Options{Hook: onUpdates(row.fault)})
				ctx, cancel := context.WithTimeout(f.ctx(), 10*time.Second)
				defer cancel()
				if err := f.increment(ctx, "other"); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				err := f.increment(ctx, "L#1")
				if code(err) != row.code || time.Since(start) != row.took {
					t.Errorf("%v after %v", err, time.Since(start))
				}
				if row.fault.Reply == errOwn && !errors.Is(err, errOwn) {
					t.Error(err)
				}
				if row.took == 10*time.Second && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				if got := f.get("L#1", "s"); got != row.at {
					t.Errorf("at once %q, want %q", got, row.at)
				}
				time.Sleep(2 * time.Minute)
				if got := f.get("L#1", "s"); got != row.minutes {
					t.Errorf("in the end %q, want %q", got, row.minutes)
				}
			})
		})
	}
}

// TestThrottleIsTyped: the service's own reason is shown.
func TestThrottleIsTyped(t *testing.T) {
	f := newFixture(t, dynamodb.Options{Hook: onUpdates(dynamodb.Throttle())})
	var throttled *types.ProvisionedThroughputExceededException
	if err := f.increment(f.ctx(), "L#1"); !errors.As(err, &throttled) || len(throttled.ThrottlingReasons) != 1 || *throttled.ThrottlingReasons[0].Reason != "TableWriteKeyRangeThroughputExceeded" {
		t.Error(err)
	}
}

// TestConflictFault: each kind of call gets the conflict in its own form, and is not performed.
func TestConflictFault(t *testing.T) {
	f := newFixture(t, dynamodb.Options{Hook: func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
		if len(c.Keys) > 0 && strings.HasPrefix(c.Keys[0].Partition, "L#") {
			return dynamodb.Conflict(c)
		}
		return dynamodb.Fault{}
	}})
	if err := f.increment(f.ctx(), "L#1"); code(err) != "TransactionConflictException" {
		t.Error(err)
	}
	err := f.transact("", updating("L#1", "ADD n :v", "v:1"), updating("a", "ADD n :v", "v:1"))
	if got := reasons(err); !slices.Equal(got, []string{"TransactionConflict: Transaction is ongoing for the item", "None"}) {
		t.Error(got, err)
	}
	if got := f.get("a", "s"); got != "" {
		t.Error("performed:", got)
	}
}

// TestSDKRetriesThroughTheSeam: with its own retries the SDK repeats an update whose answer was lost, in silence, and
// it is applied twice. This is what varve must not let happen, so the engine must let it happen.
func TestSDKRetriesThroughTheSeam(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := 0
		f := newFixture(t, dynamodb.Options{Hook: func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
			if c.Op == "UpdateItem" && lost == 0 {
				lost++
				return dynamodb.AnswerLost()
			}
			return dynamodb.Fault{}
		}})
		retrying := sdk.New(sdk.Options{Region: "us-east-1", HTTPClient: f.engine, Credentials: aws.AnonymousCredentials{}})
		_, err := retrying.UpdateItem(f.ctx(), &sdk.UpdateItemInput{TableName: table, Key: key("a", "s"), UpdateExpression: aws.String("ADD n :v"), ExpressionAttributeValues: values("v:1")})
		if got := f.get("a", "s"); err != nil || got != `n:2 pk:"a" sk:"s"` {
			t.Error(got, err)
		}
	})
}

// TestHookSeesKeys of every kind of call.
func TestHookSeesKeys(t *testing.T) {
	var calls []dynamodb.Call
	f := newFixture(t, dynamodb.Options{Hook: func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
		calls = append(calls, c)
		return dynamodb.Fault{}
	}})
	f.createTable("num", types.ScalarAttributeTypeN, "")
	calls = nil
	f.put(`pk:"a" sk:"b"`)
	_ = f.get("a", "b")
	_ = f.increment(f.ctx(), "a")
	_, _ = f.client.DeleteItem(f.ctx(), &sdk.DeleteItemInput{TableName: aws.String("num"), Key: item("pk:1.50")})
	_, _ = f.client.Query(f.ctx(), &sdk.QueryInput{TableName: table, KeyConditionExpression: aws.String("sk>:a AND :a=pk"), ExpressionAttributeValues: values(`a:"q"`)})
	_, _ = f.client.Scan(f.ctx(), &sdk.ScanInput{TableName: table})
	_, _ = f.client.BatchGetItem(f.ctx(), &sdk.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{"tbl": {Keys: []attributes{key("x", "y"), key("z", "w")}}}})
	_ = f.transact("", putting(`pk:"t" sk:"s"`, ""), types.TransactWriteItem{Delete: &types.Delete{TableName: aws.String("num"), Key: item("pk:7")}})
	_, _ = f.client.GetItem(f.ctx(), &sdk.GetItemInput{TableName: aws.String("none"), Key: key("a", "b")})
	_, _ = f.client.GetItem(f.ctx(), &sdk.GetItemInput{TableName: table, Key: item("other:1")})
	got := each(calls, func(c dynamodb.Call) string { return fmt.Sprintf("%s %s %v %v", c.Op, c.Table, c.Consistent, c.Keys) })
	want := []string{
		"PutItem tbl true [{tbl a b}]",
		"GetItem tbl true [{tbl a b}]",
		"UpdateItem tbl true [{tbl a s}]",
		"DeleteItem num true [{num 1.5 }]",
		"Query tbl false [{tbl q }]",
		"Scan tbl false []",
		"BatchGetItem tbl false [{tbl x y} {tbl z w}]",
		"TransactWriteItems tbl true [{tbl t s} {num 7 }]",
		"GetItem none false []",
		"GetItem tbl false []",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	if !strings.Contains(string(calls[0].Body), `"TableName":"tbl"`) {
		t.Errorf("body %s", calls[0].Body)
	}
}

// TestHookDelaysInBubble: goroutines that a hook holds up do not stop others, nor the bubble's clock.
func TestHookDelaysInBubble(t *testing.T) {
	for _, file := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o := dynamodb.Options{Hook: func(ctx context.Context, c dynamodb.Call) dynamodb.Fault {
				if c.Op == "UpdateItem" {
					sleep(time.Second)(ctx)
				}
				return dynamodb.Fault{}
			}}
			if file {
				o.File = t.TempDir() + "/engine.db"
			}
			f := newFixture(t, o)
			start := time.Now()
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					for range 5 {
						if err := f.increment(f.ctx(), "a"); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			if took := time.Since(start); took != 5*time.Second {
				t.Errorf("took %v of virtual time", took)
			}
			if got := f.get("a", "s"); got != `n:40 pk:"a" sk:"s"` {
				t.Error(got)
			}
			ctx, cancel := context.WithTimeout(f.ctx(), 300*time.Millisecond)
			defer cancel()
			err := f.increment(ctx, "a")
			if !errors.Is(err, context.DeadlineExceeded) || f.get("a", "s") != `n:40 pk:"a" sk:"s"` {
				t.Errorf("a request that its sender gave up before it was performed: %v", err)
			}
		})
	}
}

// TestCloseDropsWhatIsLate: Close does not wait for a late request's time, and the request is not applied.
func TestCloseDropsWhatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dynamodb.Options{File: t.TempDir() + "/engine.db", Hook: onUpdates(dynamodb.AppliedLate(sleep(time.Hour)))})
		_ = f.increment(f.ctx(), "L#1")
		start := time.Now()
		if err := f.engine.Close(); err != nil || time.Since(start) != 0 {
			t.Error(err, time.Since(start))
		}
		if err := f.increment(f.ctx(), "other"); code(err) != "transport" {
			t.Errorf("after Close: %v", err)
		}
	})
}

// TestCloseBesideCalls: while calls become late, Close waits for those that did and drops the rest.
func TestCloseBesideCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dynamodb.Options{Hook: onUpdates(dynamodb.AppliedLate(sleep(time.Hour)))})
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if err := f.increment(f.ctx(), "L#1"); code(err) != "transport" {
					t.Error(err)
				}
			})
		}
		if err := f.engine.Close(); err != nil {
			t.Error(err)
		}
		all.Wait() // the bubble ends, so no goroutine is left
	})
}

// TestItemWriteUnits: 10 units a second for each item; virtual time refills them.
func TestItemWriteUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dynamodb.Options{ItemWriteUnits: 10})
		burst := func(pk string) (ok int) {
			for range 15 {
				switch c := code(f.increment(f.ctx(), pk)); c {
				case "":
					ok++
				case "ProvisionedThroughputExceededException":
				default:
					t.Error(c)
				}
			}
			return ok
		}
		if a, b := burst("a"), burst("b"); a != 10 || b != 10 {
			t.Errorf("%d, %d of 15 at once", a, b)
		}
		time.Sleep(500 * time.Millisecond)
		if a := burst("a"); a != 5 {
			t.Errorf("%d of 15 after half a second", a)
		}
		if got := f.get("a", "s"); got != `n:15 pk:"a" sk:"s"` {
			t.Error(got)
		}
		// Refused writes spend units too; a transaction spends double and is cancelled with a reason.
		time.Sleep(time.Second)
		for range 8 {
			_, err := f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: table, Item: key("a", "s"), ConditionExpression: aws.String("attribute_not_exists(pk)")})
			if code(err) != "ConditionalCheckFailedException" {
				t.Fatal(err)
			}
		}
		if err := f.transact("", updating("a", "ADD n :v", "v:1")); err != nil {
			t.Error(err)
		}
		err := f.transact("", updating("c", "ADD n :v", "v:1"), updating("a", "ADD n :v", "v:1"))
		if got := reasons(err); len(got) != 2 || got[0] != "None" || !strings.HasPrefix(got[1], "ThrottlingError: ") || f.get("c", "s") != "" {
			t.Errorf("%q", got)
		}
		// Of a batch, what is throttled is handed back; if that is all, the call is throttled.
		batch := func(pks ...string) (*sdk.BatchWriteItemOutput, error) {
			return f.client.BatchWriteItem(f.ctx(), &sdk.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{"tbl": each(pks, func(pk string) types.WriteRequest {
				return types.WriteRequest{PutRequest: &types.PutRequest{Item: key(pk, "s")}}
			})}})
		}
		out, err := batch("a", "d")
		if err != nil || len(out.UnprocessedItems["tbl"]) != 1 || f.get("d", "s") == "" {
			t.Error(out, err)
		}
		if _, err := batch("a"); code(err) != "ProvisionedThroughputExceededException" {
			t.Error(err)
		}
	})
}
