// Package dynamo keeps a log's metadata in one DynamoDB table: the adapter of package metadata's contract.
//
// One layer repeats requests, and it is this one: the SDK's own retries are off for every call. Commit and
// CommitAll are sent once; whatever may be repeated is, within repeatFor, with jittered growing pauses and
// without a budget that calls share, so that a storm of throttles cannot make healthy calls fail. What each
// error of the service means is decided in errors.go, and nowhere else.
//
// It works against AWS and anything that speaks its protocol.
package dynamo

import (
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
)

// Config is what Open needs.
type Config struct {
	// AWS gives region, credentials, and where they are not the usual ones BaseEndpoint and HTTPClient. Its retry settings are not
	// used. A client made here, or a BuildableClient, gets a pool of idleConns connections.
	AWS       aws.Config
	TableName string
	Env       env.Env
	// OnCall is told of each request after its answer, in the goroutine that made it. nil: nobody is.
	OnCall func(metadata.Call)
}

// Table is a metadata.Table on one DynamoDB table. It is safe for concurrent use and needs no closing.
type Table struct {
	env    env.Env
	name   string
	onCall func(metadata.Call)
	http   httpClient
	client *dynamodb.Client

	credentials *renewing
	time        serviceTime
}

var _ metadata.Table = (*Table)(nil)

// idleConns is how many connections stay open between calls: one for each of 64 producers' goroutines. With the usual 10 most calls of a
// burst would begin with a TLS handshake.
const idleConns = 64

// Open checks the configuration and returns the table; it sends nothing.
func Open(c Config) (*Table, error) {
	switch {
	case c.TableName == "":
		return nil, &metadata.FieldError{Field: "table name", Valid: "the name of a DynamoDB table"}
	case c.AWS.Region == "":
		return nil, &metadata.FieldError{Field: "region", Valid: "the table's AWS region, such as eu-central-1"}
	case c.Env.Clock == nil || c.Env.Rand == nil:
		return nil, fmt.Errorf("%w: dynamo.Config.Env has no clock or no source of chance", metadata.ErrInvalid)
	}
	t := &Table{env: c.Env, name: c.TableName, onCall: c.OnCall, http: pooled(c.AWS.HTTPClient), credentials: newRenewing(c.AWS.Credentials)}
	if t.credentials != nil {
		c.AWS.Credentials = t.credentials
	}
	t.client = dynamodb.NewFromConfig(c.AWS, func(o *dynamodb.Options) {
		o.Retryer = aws.NopRetryer{}
		o.RetryMaxAttempts = 1
		o.DisableValidateResponseChecksum = true // exchange.read does it, and unlike the SDK's check it fails the call
	})
	return t, nil
}

// pooled is the given client, or one of ours, with a pool that is large enough if we may set it.
func pooled(given aws.HTTPClient) httpClient {
	buildable, ok := given.(*awshttp.BuildableClient)
	if given == nil {
		buildable, ok = awshttp.NewBuildableClient(), true
	}
	if !ok {
		return given
	}
	return buildable.WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConnsPerHost = max(t.MaxIdleConnsPerHost, idleConns)
		t.MaxIdleConns = max(t.MaxIdleConns, 2*idleConns)
	})
}

// Time limits. The service answers in some 5 to 20 ms; what takes longer is a new connection, fresh credentials, or trouble.
const (
	// itemTimeout is for one attempt at one item. Commit has nothing else: long enough for a TLS handshake with a lost packet and a
	// credentials fetch, short enough that a lost answer is settled well within a producer's two minutes.
	itemTimeout = 3 * time.Second
	// pageTimeout is for an attempt that reads up to a megabyte, or writes 25 items.
	pageTimeout = 10 * time.Second
	// transactTimeout is for an attempt at a transaction: the service may first spend some 5 s on finishing one that it was left in doubt about.
	transactTimeout = 10 * time.Second
	// repeatFor bounds a call that is repeated, all attempts and pauses together: enough for a table that splits a hot partition or a service that
	// restarts, and well within the two minutes after which a producer gives up.
	repeatFor = 20 * time.Second
	// firstPause doubles up to lastPause; each pause is drawn from its upper half.
	firstPause = 25 * time.Millisecond
	lastPause  = time.Second
	// createTimeout is how long a new table may take to become usable; AWS needs some 10 to 30 s.
	createTimeout = 3 * time.Minute
)
