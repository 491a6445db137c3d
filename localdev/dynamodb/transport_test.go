package dynamodb_test

import (
	"context"
	"errors"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/varvelog/varve/localdev/dynamodb"
)

func TestAnswerHeaders(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.FixedZone("", 3600))
	f := newFixture(t, dynamodb.Options{Now: func() time.Time { return now }})
	for _, body := range []string{`{"TableName":"tbl"}`, `{"TableName":"none"}`} {
		r := f.raw("DynamoDB_20120810.DescribeTable", body)
		sum := strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(r.body))), 10)
		if r.header.Get("X-Amz-Crc32") != sum || r.header.Get("Date") != "Wed, 04 Mar 2026 04:06:07 GMT" || r.header.Get("Content-Type") != "application/x-amz-json-1.0" ||
			r.header.Get("Content-Length") != strconv.Itoa(len(r.body)) || r.header.Get("X-Amzn-Requestid") == "" {
			t.Errorf("%v", r.header)
		}
	}
}

// TestOldSignatures: a request that was signed over five minutes ago, or will be, is refused and changes nothing, also when it is late for the sender's standing still or on its way. The SDK
// takes it for a clock that is off.
func TestOldSignatures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offset, late time.Duration
		f := newFixture(t, dynamodb.Options{
			Now: func() time.Time { return time.Now().Add(offset) },
			Hook: func(context.Context, dynamodb.Call) dynamodb.Fault {
				time.Sleep(late)
				return dynamodb.Fault{}
			},
		})
		client := sdk.NewFromConfig(aws.Config{
			Region: "us-east-1", HTTPClient: f.engine, Retryer: func() aws.Retryer { return aws.NopRetryer{} },
			Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
		})
		for pk, c := range map[string]struct {
			offset, late time.Duration
			refused      bool
		}{"now": {}, "late": {0, 5 * time.Minute, false}, "too late": {0, 5*time.Minute + time.Second, true}, "behind": {301 * time.Second, 0, true}, "ahead": {-301 * time.Second, 0, true}} {
			offset, late = c.offset, c.late
			_, err := client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: table, Item: key(pk, "s")})
			if c.refused != (code(err) == "InvalidSignatureException") || !c.refused && err != nil {
				t.Errorf("%s: %v", pk, err)
			}
			offset, late = 0, 0
			if out, err := f.client.GetItem(f.ctx(), &sdk.GetItemInput{TableName: table, Key: key(pk, "s")}); err != nil || c.refused != (out.Item == nil) {
				t.Errorf("%s: %v, %v", pk, out.Item, err)
			}
			client = sdk.New(client.Options()) // it notes how far its clock is off
		}
	})
}

// TestOverAPort: the same client over a socket; where the hook breaks the connection, the socket breaks.
func TestOverAPort(t *testing.T) {
	f := newFixture(t, dynamodb.Options{Hook: onUpdates(dynamodb.AnswerLost())})
	server := httptest.NewServer(f.engine)
	defer server.Close()
	client := sdk.New(sdk.Options{Region: "us-east-1", BaseEndpoint: &server.URL, Credentials: aws.AnonymousCredentials{}, Retryer: aws.NopRetryer{}})
	for pk, want := range map[string]string{"a": "", "L#1": "transport"} {
		_, err := client.UpdateItem(f.ctx(), &sdk.UpdateItemInput{TableName: table, Key: key(pk, "s"), UpdateExpression: aws.String("SET v=:v"), ExpressionAttributeValues: values(`v:"é"`)})
		if code(err) != want {
			t.Errorf("%s: %v", pk, err)
		}
		out, err := client.GetItem(f.ctx(), &sdk.GetItemInput{TableName: table, Key: key(pk, "s"), ConsistentRead: aws.Bool(true)})
		if err != nil || notationOf(out.Item) != `pk:"`+pk+`" sk:"s" v:"é"` {
			t.Error(out, err)
		}
	}
}

func TestCancelledRequest(t *testing.T) {
	f := newFixture(t, dynamodb.Options{})
	cause := errors.New("the user went away")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Amz-Target", "DynamoDB_20120810.ListTables")
	if _, err := f.engine.Do(r); !errors.Is(err, cause) {
		t.Error(err)
	}
}
