// Package embedded opens logs that need no service: file:// keeps one in a directory, objects as files and the table in SQLite behind the DynamoDB
// engine of localdev/dynamodb; mem:// keeps one in memory. They run the very code that runs on S3 and DynamoDB:
//
//	log, err := sdk.Open(ctx, "file://./.varve", sdk.WithDriver(embedded.Driver()), sdk.WithCreateTable())
//
// WithCreateTable makes the directory if there is no log in it; without it that is sdk.ErrNoLog. Every mem:// is made when it is opened.
// Several processes may use one directory at the same time. What was acknowledged survives a loss of power. Logs in memory are for tests, yours
// too, and work inside testing/synctest.
package embedded

import (
	"context"
	"errors"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata/dynamo"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment/store"
)

// The one table of an embedded log, and what stands for the bucket in its identity: no path, so that the directory may be moved.
const (
	tableName = "varve"
	bucket    = "embedded"
)

// Driver returns the driver of file:// and mem:// URLs. Every mem:// that it opens is a log of its own, gone when it is closed.
func Driver() sdk.Driver { return driver{} }

type driver struct{}

func (driver) Schemes() []string { return []string{"file", "mem"} }

func (driver) Open(ctx context.Context, u *url.URL, o sdk.DriverOptions) (sdk.Backend, error) {
	if u.Scheme == "mem" {
		m, err := NewMemory(MemoryOptions{})
		if err != nil {
			return sdk.Backend{}, err
		}
		b, err := m.Open(ctx, u, o)
		b.Close = m.Close
		return closing(b, err)
	}
	path, err := directory(u)
	if err != nil {
		return sdk.Backend{}, err
	}
	return openDirectory(ctx, path, dynamodb.Options{}, o)
}

// region is one that the SDK's endpoint rules know: for any other they are worked out anew with each request.
const region = "us-east-1"

// assemble puts engine and objects together as one log and makes its table if there is none.
func assemble(ctx context.Context, engine *dynamodb.Engine, objects store.Store, o sdk.DriverOptions) (sdk.Backend, error) {
	table, err := dynamo.Open(dynamo.Config{
		AWS: clientOf(engine), TableName: tableName, Env: o.Env, OnCall: o.OnTable,
	})
	if err != nil {
		return sdk.Backend{}, err
	}
	b := sdk.Backend{Table: table, Store: store.Observe(objects, o.Env, o.OnStore), Bucket: bucket}
	return b, table.EnsureTable(ctx)
}

// clientOf is the configuration of a client of the engine, which looks at no signature: requests have none.
func clientOf(engine *dynamodb.Engine) aws.Config {
	return aws.Config{Region: region, Credentials: aws.AnonymousCredentials{}, HTTPClient: engine, BaseEndpoint: aws.String("http://embedded")}
}

// closing closes the backend if it could not be opened.
func closing(b sdk.Backend, err error) (sdk.Backend, error) {
	if err == nil {
		return b, nil
	}
	if b.Close != nil {
		err = errors.Join(err, b.Close())
	}
	return sdk.Backend{}, err
}
