package dynamo

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// Attributes of LOG|ID. LOG|FLOOR has attrFloor.
const (
	attrLog    = "log" // 32 hexadecimal digits
	attrFormat = "format"
	attrBucket = "bucket"
	attrPrefix = "prefix"
)

// Identity implements metadata.LogKeeper.
func (t *Table) Identity(ctx context.Context) (metadata.Identity, bool, error) {
	c := reading("Identity", "", metadata.IdentityKey())
	it, err := t.get(ctx, c, true)
	if err != nil || it == nil {
		return metadata.Identity{}, false, err
	}
	id, err := c.identity(it)
	return id, err == nil, err
}

// PutIdentity implements metadata.LogKeeper.
func (t *Table) PutIdentity(ctx context.Context, id metadata.Identity) (metadata.Identity, error) {
	c := writing("PutIdentity", "", metadata.IdentityKey())
	it := keyOf(c.key)
	it[attrLog], it[attrFormat] = text(hex.EncodeToString(id.Log[:])), number(int64(id.Version))
	it[attrBucket], it[attrPrefix] = text(id.Bucket), text(id.Prefix)
	there, err := t.putIfAbsent(ctx, c, it)
	if err != nil || there == nil {
		return id, err
	}
	return c.identity(there)
}

func (c *call) identity(it item) (id metadata.Identity, err error) {
	f := &fields{key: c.key, item: it}
	id.Version = int(f.number(attrFormat, 1, 1<<31))
	if id.Version > metadata.FormatVersion {
		f.bad(attrFormat, metadata.ErrVersion, "is %d, this build has %d", id.Version, metadata.FormatVersion)
	}
	id.Bucket, id.Prefix = f.text(attrBucket), f.text(attrPrefix)
	log := f.text(attrLog)
	if n, err := hex.Decode(id.Log[:], []byte(log[:min(len(log), 2*len(id.Log))])); err != nil || n != len(id.Log) || len(log) != 2*n {
		f.bad(attrLog, metadata.ErrCorrupt, "is %q, not %d hexadecimal digits", clip(log), 2*len(id.Log))
	}
	if f.err != nil {
		return metadata.Identity{}, c.error("", f.err)
	}
	return id, nil
}

// Floor implements metadata.LogKeeper.
func (t *Table) Floor(ctx context.Context) (segment.ID, error) {
	c := reading("Floor", "", metadata.FloorKey())
	it, err := t.get(ctx, c, true)
	if err != nil || it == nil {
		return segment.ID{}, err
	}
	f := &fields{key: c.key, item: it}
	floor := f.id(attrFloor)
	if f.err != nil {
		return segment.ID{}, c.error("", f.err)
	}
	return floor, nil
}

// EnsureTable implements metadata.LogKeeper.
func (t *Table) EnsureTable(ctx context.Context) error {
	c := reading("EnsureTable", "", metadata.Key{}).within(pageTimeout)
	for p := t.patience(createTimeout); ; {
		out, err := repeat(ctx, t, c, t.client.DescribeTable, &dynamodb.DescribeTableInput{TableName: &t.name})
		switch {
		case errors.Is(err, metadata.ErrNoTable):
			if err := t.createTable(ctx); err != nil {
				return err
			}
		case err != nil:
			return err
		case out.Table == nil:
			return c.error("", fmt.Errorf("%w: an answer without table %q", metadata.ErrUnavailable, t.name))
		case out.Table.TableStatus == types.TableStatusActive:
			return c.fits(out.Table)
		}
		if !p.pause(ctx) {
			return gaveUp(ctx, c.error("", fmt.Errorf("%w: table %q is not usable yet", metadata.ErrUnavailable, t.name)))
		}
	}
}

// createTable creates the table; that another creates it at the same time is fine.
func (t *Table) createTable(ctx context.Context) error {
	c := writing("EnsureTable", "", metadata.Key{}).within(pageTimeout)
	_, err := attempt(ctx, t, c, c.timeout, t.client.CreateTable, &dynamodb.CreateTableInput{
		TableName:   &t.name,
		BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String("sk"), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String("sk"), KeyType: types.KeyTypeRange},
		},
	})
	if err != nil && repeatable(err) {
		return nil // the next look at the table tells
	}
	return err
}

// fits refuses a table that was made for something else.
func (c *call) fits(table *types.TableDescription) error {
	kinds := map[string]types.ScalarAttributeType{}
	for _, a := range table.AttributeDefinitions {
		kinds[value(a.AttributeName)] = a.AttributeType
	}
	roles := map[string]types.KeyType{}
	for _, k := range table.KeySchema {
		roles[value(k.AttributeName)] = k.KeyType
	}
	if len(roles) != 2 || roles["pk"] != types.KeyTypeHash || roles["sk"] != types.KeyTypeRange ||
		kinds["pk"] != types.ScalarAttributeTypeS || kinds["sk"] != types.ScalarAttributeTypeS {
		return c.error("", fmt.Errorf("%w: table %q was made for something else: its keys are not strings pk (hash) and sk (range)",
			metadata.ErrInvalid, value(table.TableName)))
	}
	return nil
}
