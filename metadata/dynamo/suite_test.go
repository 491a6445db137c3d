package dynamo_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/varvelog/varve/internal/env"
	engine "github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/dynamo"
	"github.com/varvelog/varve/metadata/metatest"
)

// endpointVariable names a server that speaks DynamoDB's protocol; "aws" is DynamoDB itself, by the usual credentials and region.
const endpointVariable = "VARVE_TEST_DYNAMODB_ENDPOINT"

func onEngine(t testing.TB, o engine.Options) aws.Config {
	t.Helper()
	e, err := engine.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return local(e)
}

func local(client aws.HTTPClient) aws.Config {
	return aws.Config{Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""), HTTPClient: client}
}

func openTable(t testing.TB, c dynamo.Config) *dynamo.Table {
	t.Helper()
	if c.Env.Clock == nil {
		c.Env = env.System()
	}
	if c.TableName == "" {
		c.TableName = "varve"
	}
	table, err := dynamo.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestSuiteInMemory(t *testing.T) { runSuite(t, onEngine(t, engine.Options{})) }

// runSuite runs it on one server for all tables, as an endpoint is: request tokens are the server's.
func runSuite(t *testing.T, aws aws.Config) {
	tables := 0
	metatest.Run(t, func(t *testing.T, onCall func(metadata.Call)) metadata.Table {
		tables++
		return fresh(t, dynamo.Config{AWS: aws, TableName: fmt.Sprintf("varve-%d", tables), OnCall: onCall})
	})
}

func TestSuiteAtEndpoint(t *testing.T) {
	endpoint := os.Getenv(endpointVariable)
	if endpoint == "" {
		t.Logf("%s is not set: the suite has run against no other server", endpointVariable)
		return
	}
	aws := at(t, endpoint)
	run := time.Now().UnixNano()
	n := 0
	metatest.Run(t, func(t *testing.T, onCall func(metadata.Call)) metadata.Table {
		n++
		name := fmt.Sprintf("varve-test-%d-%d", run, n)
		t.Cleanup(func() {
			client := dynamodb.NewFromConfig(aws)
			if _, err := client.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &name}); err != nil {
				t.Errorf("table %s is left: %v", name, err)
			}
		})
		return fresh(t, dynamo.Config{AWS: aws, TableName: name, OnCall: onCall})
	})
}

func at(t *testing.T, endpoint string) aws.Config {
	if endpoint == "aws" {
		c, err := config.LoadDefaultConfig(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := local(nil)
	c.Region, c.BaseEndpoint = "us-east-1", &endpoint
	return c
}

func fresh(t *testing.T, c dynamo.Config) *dynamo.Table {
	table := openTable(t, c)
	if err := table.EnsureTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	return table
}
