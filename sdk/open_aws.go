package sdk

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/dynamo"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/s3"
)

// smallBytes is up to where a segment costs no more in the table than in the bucket: with its key it takes four write units at most, and four again when it
// is deleted, which is the price of a PUT.
const smallBytes = 4000

// awsDriver opens aws:// URLs: S3 or a look-alike, and DynamoDB.
type awsDriver struct{}

func (awsDriver) Schemes() []string { return []string{"aws"} }

func (awsDriver) Open(ctx context.Context, u *url.URL, o DriverOptions) (Backend, error) {
	a, err := parseAWSURL(u)
	if err != nil {
		return Backend{}, err
	}
	table, err := a.openTable(ctx, o)
	if err != nil {
		return Backend{}, err
	}
	bucket, err := s3.Open(ctx, s3.Config{
		Bucket: a.bucket, Prefix: a.prefix, Endpoint: a.s3Endpoint, Region: a.region, Profile: a.s3Profile, Compat: a.compat, Env: o.Env,
	})
	if err != nil {
		return Backend{}, err
	}
	return Backend{Table: table, Store: store.Observe(bucket, o.Env, o.OnStore), Lifecycle: bucket, Presigner: bucket, Bucket: a.bucket, Prefix: a.prefix, SmallSegments: smallBytes, Close: bucket.Close}, nil
}

// openTable makes sure that the table is there. A table that is missing is only created if that was asked for.
func (a awsURL) openTable(ctx context.Context, o DriverOptions) (*dynamo.Table, error) {
	load := []func(*config.LoadOptions) error{config.WithSharedConfigProfile(a.dynamoProfile), config.WithLogger(logging.Nop{})}
	if a.region != "" {
		load = append(load, config.WithRegion(a.region))
	}
	c, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, fmt.Errorf("%w: AWS configuration: %w", ErrInvalid, err)
	}
	if a.dynamoEndpoint != "" {
		c.BaseEndpoint = aws.String(a.dynamoEndpoint)
	}
	table, err := dynamo.Open(dynamo.Config{AWS: c, TableName: a.table, Env: o.Env, OnCall: o.OnTable})
	if err != nil {
		return nil, err
	}
	if o.CreateTable {
		return table, table.EnsureTable(ctx)
	}
	if _, _, err := table.Identity(ctx); errors.Is(err, metadata.ErrNoTable) {
		return nil, fmt.Errorf("%w: table %q in region %q: %w; if the name is right, open with WithCreateTable (varve: --create-table) to create it",
			ErrNoLog, a.table, c.Region, err)
	}
	return table, nil // whatever else is wrong with it shows in the next request
}
