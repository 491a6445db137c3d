package dynamodb_test

import (
	"context"
	"errors"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
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
