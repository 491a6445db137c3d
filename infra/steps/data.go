package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/varvelog/varve/sdk"
)

// whoami says whose credentials are used, and what to do if there are none.
func whoami(ctx context.Context, _ []string, out io.Writer) error {
	c, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	if c.Region == "" {
		c.Region = "us-east-1"
	}
	who, err := sts.NewFromConfig(c).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return fmt.Errorf("no usable AWS credentials: set AWS_PROFILE, or log in with `aws sso login`, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: %w", err)
	}
	fmt.Fprintf(out, "account %s, as %s\n", aws.ToString(who.Account), aws.ToString(who.Arn))
	return nil
}

// makeLog makes bucket and table one log: what the functions, which may not, find when they are called.
func makeLog(ctx context.Context, args []string, _ io.Writer) error {
	log, err := sdk.Open(ctx, args[0])
	if err != nil {
		return err
	}
	return log.Close()
}

// data is where a log's data is.
type data struct{ bucket, table, region string }

func parseLog(raw string) (d data, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		return d, err
	}
	d = data{bucket: u.Host, table: u.Query().Get("table"), region: u.Query().Get("region")}
	if u.Scheme != "aws" || d.bucket == "" || d.table == "" || d.region == "" {
		return d, fmt.Errorf("log %q: want aws://BUCKET/PREFIX?table=TABLE&region=REGION", raw)
	}
	return d, nil
}

// deleteData deletes the bucket, with every version of every object, and then the table. It may be run again after any failure.
func deleteData(ctx context.Context, args []string, out io.Writer) error {
	d, err := parseLog(args[0])
	if err != nil {
		return err
	}
	c, err := config.LoadDefaultConfig(ctx, config.WithRegion(d.region))
	if err != nil {
		return err
	}
	n, err := deleteBucket(ctx, c, d.bucket)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", d.bucket, err)
	}
	fmt.Fprintf(out, "bucket %s deleted, with %d versions of objects\n", d.bucket, n)
	if err := deleteTable(ctx, dynamodb.NewFromConfig(c), d.table); err != nil {
		return fmt.Errorf("table %s: %w", d.table, err)
	}
	fmt.Fprintf(out, "table %s deleted\n", d.table)
	return nil
}

func deleteBucket(ctx context.Context, c aws.Config, bucket string) (n int, err error) {
	client, err := bucketClient(ctx, c)
	if err != nil {
		return 0, err
	}
	listing, stop := context.WithCancel(ctx)
	defer stop()
	versions := make(chan minio.ObjectInfo)
	var listed error
	go func() {
		defer close(versions)
		for o := range client.ListObjectsIter(listing, bucket, minio.ListObjectsOptions{Recursive: true, WithVersions: true}) {
			if o.Err != nil {
				listed = o.Err
				return
			}
			select {
			case versions <- o:
				n++
			case <-listing.Done():
				return
			}
		}
	}()
	for e := range client.RemoveObjects(ctx, bucket, versions, minio.RemoveObjectsOptions{}) {
		err = errors.Join(err, fmt.Errorf("%s: %w", e.ObjectName, e.Err))
	}
	stop()
	for range versions { // until the listing has ended
	}
	switch minio.ToErrorResponse(listed).Code {
	case "":
	case "NoSuchBucket":
		return 0, nil
	default:
		return n, listed
	}
	if err != nil {
		return n, err
	}
	return n, client.RemoveBucket(ctx, bucket)
}

// bucketClient is a client of S3 with the configuration's region, credentials and endpoint.
func bucketClient(ctx context.Context, c aws.Config) (*minio.Client, error) {
	keys, err := c.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, err
	}
	o := &minio.Options{Creds: credentials.NewStaticV4(keys.AccessKeyID, keys.SecretAccessKey, keys.SessionToken), Region: c.Region, Secure: true}
	host := "s3." + c.Region + ".amazonaws.com"
	if endpoint := aws.ToString(c.BaseEndpoint); endpoint != "" {
		u, err := url.Parse(endpoint)
		if err != nil {
			return nil, err
		}
		host, o.Secure, o.BucketLookup = u.Host, strings.EqualFold(u.Scheme, "https"), minio.BucketLookupPath
	}
	return minio.New(host, o)
}

const tableTimeout = 5 * time.Minute

func deleteTable(ctx context.Context, client *dynamodb.Client, table string) error {
	_, err := client.UpdateTable(ctx, &dynamodb.UpdateTableInput{TableName: &table, DeletionProtectionEnabled: aws.Bool(false)})
	var gone *types.ResourceNotFoundException
	if errors.As(err, &gone) {
		return nil
	}
	if err != nil {
		return err
	}
	described := &dynamodb.DescribeTableInput{TableName: &table}
	if err := dynamodb.NewTableExistsWaiter(client).Wait(ctx, described, tableTimeout); err != nil {
		return err
	}
	if _, err := client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &table}); err != nil {
		return err
	}
	return dynamodb.NewTableNotExistsWaiter(client).Wait(ctx, described, tableTimeout)
}
