package dynamodb

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb/expr"
	"github.com/varvelog/varve/localdev/dynamodb/storage"
	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// TestExpressionCacheIsBoundedAndHits: parsing counts the misses.
func TestExpressionCacheIsBoundedAndHits(t *testing.T) {
	var e expressions
	misses := 0
	parse := func(text string) *expr.Update {
		u, err := cached(&e, expr.Updating, text, func() (*expr.Update, error) {
			misses++
			return expr.ParseUpdate(text)
		})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	first := parse("SET a=b")
	if again := parse("SET a=b"); again != first || misses != 1 {
		t.Errorf("%d misses", misses)
	}
	for i := range 3 * maxCachedExpressions {
		parse(fmt.Sprintf("SET a%d=b", i))
		if len(e.parsed) > maxCachedExpressions {
			t.Fatalf("%d expressions kept", len(e.parsed))
		}
	}
}

func TestLimiterFillsUpAndForgets(t *testing.T) {
	now := time.Unix(1000, 0)
	l := limiter{perSecond: 10}
	k := storage.Key{Table: "t", Partition: "p"}
	steps := []struct {
		after time.Duration
		units float64
		ok    bool
	}{
		{0, 6, true}, {0, 5, false}, {0, 4, true}, {0, 1, false}, // a second's worth at once
		{100 * time.Millisecond, 1, true}, {0, 1, false}, // one unit in a tenth of a second
		{time.Hour, 25, true},                           // a large write needs a full bucket
		{time.Second, 1, false}, {time.Second, 5, true}, // and leaves a debt of 15: -5 after a second, 5 after two
		{-time.Hour, 1, false}, // a clock that goes back fills nothing
	}
	for i, s := range steps {
		now = now.Add(s.after)
		if err := l.take(k, s.units, now); (err == nil) != s.ok {
			t.Errorf("step %d: %v", i, err)
		}
	}
	now = now.Add(2 * time.Hour)
	for i := range maxBuckets + 1 {
		if err := l.take(storage.Key{Partition: fmt.Sprint(i)}, 1, now.Add(time.Duration(i)*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.buckets) > maxBuckets {
		t.Errorf("%d buckets kept", len(l.buckets))
	}
}

// TestHistoryForgets what is older than it has to keep.
func TestHistoryForgets(t *testing.T) {
	h := history{keep: time.Minute}
	now := time.Unix(1000, 0)
	for i := range 1000 {
		h.record(storage.Key{Table: "t", Sort: fmt.Sprint(i)}, value.Map{}, now.Add(time.Duration(i)*time.Second))
	}
	if n := len(h.replaced); n != 61 {
		t.Errorf("%d writes kept of 61 in the last minute", n)
	}
	h.forget("t")
	if len(h.replaced) != 0 {
		t.Error("a dropped table is remembered")
	}
}

// TestStorageErrorsAreAnswered: a locked file is a definite refusal, anything else leaves the outcome open.
func TestStorageErrorsAreAnswered(t *testing.T) {
	if e := answerFor(fmt.Errorf("begin: %w", storage.ErrBusy)); e.Code != "ThrottlingException" || e.Status != http.StatusBadRequest {
		t.Error(e)
	}
	if e := answerFor(io.ErrUnexpectedEOF); e.Code != "InternalServerError" || e.Status != http.StatusInternalServerError {
		t.Error(e)
	}
}

// FuzzRequest sends any body to any operation: there is always an answer, with a status and JSON, and no panic.
func FuzzRequest(f *testing.F) {
	names := slices.Sorted(maps.Keys(operations))
	for i, body := range []string{
		`{"TableName":"new","BillingMode":"PAY_PER_REQUEST","AttributeDefinitions":[{"AttributeName":"pk","AttributeType":"S"}],"KeySchema":[{"AttributeName":"pk","KeyType":"HASH"}]}`,
		`{"TableName":"tbl","Key":{"pk":{"S":"a"}},"UpdateExpression":"SET a=:v","ExpressionAttributeValues":{":v":{"N":"1"}},"ReturnValues":"ALL_NEW"}`,
		`{"TableName":"tbl","Item":{"pk":{"S":"a"},"l":{"L":[{"NULL":true}]}},"ConditionExpression":"attribute_not_exists(#a)","ExpressionAttributeNames":{"#a":"pk"}}`,
		`{"TableName":"tbl","KeyConditionExpression":"pk=:v","ExpressionAttributeValues":{":v":{"S":"a"}},"Limit":1,"ExclusiveStartKey":{"pk":{"S":"a"}}}`,
		`{"TableName":"tbl","Segment":1,"TotalSegments":3,"FilterExpression":"size(a)>:v","ExpressionAttributeValues":{":v":{"N":"1"}}}`,
		`{"RequestItems":{"tbl":[{"PutRequest":{"Item":{"pk":{"S":"a"}}}},{"DeleteRequest":{"Key":{"pk":{"S":"b"}}}}]}}`,
		`{"RequestItems":{"tbl":{"Keys":[{"pk":{"S":"a"}}],"ProjectionExpression":"a"}}}`,
		`{"ClientRequestToken":"t","TransactItems":[{"Put":{"TableName":"tbl","Item":{"pk":{"S":"a"}}}},{"ConditionCheck":{"TableName":"tbl","Key":{"pk":{"S":"b"}},"ConditionExpression":"attribute_exists(pk)"}}]}`,
		`{"TransactItems":[{"Get":{"TableName":"tbl","Key":{"pk":{"S":"a"}}}}]}`,
		`{"TableName":"tbl","TimeToLiveSpecification":{"AttributeName":"x","Enabled":true}}`, `{"TransactItems":[{"Put":null}]}`, `{"RequestItems":{"tbl":null}}`, `null`,
	} {
		for n := range names {
			f.Add(byte(n), body)
		}
		f.Add(byte(i), body)
	}
	f.Fuzz(func(t *testing.T, op byte, body string) {
		e, err := New(Options{Now: func() time.Time { return time.Unix(1e9, 0) }, History: time.Second, Hook: func(context.Context, Call) Fault { return Fault{Unprocessed: 1, Stale: 1} }})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		send := func(op, body string) {
			r, _ := http.NewRequest(http.MethodPost, "http://localhost/", strings.NewReader(body))
			r.Header.Set("X-Amz-Target", targetPrefix+op)
			response, err := e.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			answer, _ := io.ReadAll(response.Body)
			if !json.Valid(answer) || response.StatusCode == http.StatusInternalServerError {
				t.Fatalf("%d %s", response.StatusCode, answer)
			}
		}
		send("CreateTable", `{"TableName":"tbl","BillingMode":"PAY_PER_REQUEST","AttributeDefinitions":[{"AttributeName":"pk","AttributeType":"S"}],"KeySchema":[{"AttributeName":"pk","KeyType":"HASH"}]}`)
		send("PutItem", `{"TableName":"tbl","Item":{"pk":{"S":"a"},"a":{"N":"1"}}}`)
		send(names[int(op)%len(names)], body)
	})
}
