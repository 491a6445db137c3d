package dynamodb_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/localdev/dynamodb"
)

func TestTableLifeCycle(t *testing.T) {
	created := time.Unix(1_700_000_000, 0)
	eachStorage(t, dynamodb.Options{Now: func() time.Time { return created }}, func(f *fixture) {
		_, err := f.client.DescribeTable(f.ctx(), &sdk.DescribeTableInput{TableName: aws.String("life")})
		var missing *types.ResourceNotFoundException
		if !errors.As(err, &missing) || missing.ErrorMessage() != "Requested resource not found: Table: life not found" {
			f.Error(err)
		}
		f.createTable("life", types.ScalarAttributeTypeN, types.ScalarAttributeTypeB)
		out, err := f.client.DescribeTable(f.ctx(), &sdk.DescribeTableInput{TableName: aws.String("life")})
		if err != nil {
			f.Fatal(err)
		}
		d := out.Table
		if d.TableStatus != types.TableStatusActive || !d.CreationDateTime.Equal(created) || *d.TableName != "life" || !strings.HasSuffix(*d.TableArn, ":table/life") ||
			d.BillingModeSummary.BillingMode != types.BillingModePayPerRequest || *d.KeySchema[0].AttributeName != "pk" || d.KeySchema[1].KeyType != types.KeyTypeRange || d.AttributeDefinitions[1].AttributeType != types.ScalarAttributeTypeB {
			f.Errorf("%+v", d)
		}
		_, err = f.client.CreateTable(f.ctx(), &sdk.CreateTableInput{TableName: aws.String("life"), BillingMode: types.BillingModePayPerRequest,
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS}}, KeySchema: []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}}})
		var inUse *types.ResourceInUseException
		if !errors.As(err, &inUse) || inUse.ErrorMessage() != "Table already exists: life" {
			f.Error(err)
		}
		it := item(`pk:1 sk:b"x"`)
		if _, err := f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: aws.String("life"), Item: it}); err != nil {
			f.Fatal(err)
		}
		gone, err := f.client.DeleteTable(f.ctx(), &sdk.DeleteTableInput{TableName: aws.String("life")})
		if err != nil || gone.TableDescription.TableStatus != types.TableStatusDeleting {
			f.Error(gone, err)
		}
		_, err = f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: aws.String("life"), Item: it})
		if !errors.As(err, &missing) || missing.ErrorMessage() != "Requested resource not found" {
			f.Error(err)
		}
		if _, err := f.client.DeleteTable(f.ctx(), &sdk.DeleteTableInput{TableName: aws.String("life")}); !errors.As(err, &missing) {
			f.Error(err)
		}
		// A new table of the same name is empty, with keys of its own.
		f.createTable("life", types.ScalarAttributeTypeS, "")
		scan, err := f.client.Scan(f.ctx(), &sdk.ScanInput{TableName: aws.String("life")})
		if err != nil || scan.Count != 0 {
			f.Error(scan, err)
		}
		if _, err := f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: aws.String("life"), Item: item(`pk:"a"`)}); err != nil {
			f.Error(err)
		}
	})
}

func TestCreateTableRefusals(t *testing.T) {
	f := newFixture(t, dynamodb.Options{})
	create := func(change func(*sdk.CreateTableInput)) string {
		in := &sdk.CreateTableInput{TableName: aws.String("new"), BillingMode: types.BillingModePayPerRequest,
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS}},
			KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}}}
		change(in)
		_, err := f.client.CreateTable(f.ctx(), in)
		return text(err)
	}
	sort := types.KeySchemaElement{AttributeName: aws.String("sk"), KeyType: types.KeyTypeRange}
	for i, row := range []struct{ got, want string }{
		{create(func(in *sdk.CreateTableInput) { in.TableName = aws.String("ab") }), "TableName must be at least 3 characters long"},
		{create(func(in *sdk.CreateTableInput) { in.TableName = aws.String("a/b") }), "Member must satisfy regular expression pattern"},
		{create(func(in *sdk.CreateTableInput) {
			in.GlobalSecondaryIndexes = []types.GlobalSecondaryIndex{{IndexName: aws.String("gsi"), KeySchema: in.KeySchema, Projection: &types.Projection{}}}
		}), "This engine has no secondary indexes"},
		{create(func(in *sdk.CreateTableInput) {
			in.LocalSecondaryIndexes = []types.LocalSecondaryIndex{{IndexName: aws.String("lsi"), KeySchema: in.KeySchema, Projection: &types.Projection{}}}
		}), "This engine has no secondary indexes"},
		{create(func(in *sdk.CreateTableInput) {
			in.StreamSpecification = &types.StreamSpecification{StreamEnabled: aws.Bool(true)}
		}), "This engine has no streams"},
		{create(func(in *sdk.CreateTableInput) { in.KeySchema = append(in.KeySchema, sort) }), "Some index key attributes are not defined in AttributeDefinitions. Keys: [sk]"},
		{create(func(in *sdk.CreateTableInput) { in.KeySchema = []types.KeySchemaElement{sort} }), "Invalid KeySchema: element 1 of the KeySchema is not a HASH key type"},
		{create(func(in *sdk.CreateTableInput) { in.KeySchema = append(in.KeySchema, in.KeySchema[0]) }), "element 2 of the KeySchema is not a RANGE key type"},
		{create(func(in *sdk.CreateTableInput) {
			in.KeySchema = append(in.KeySchema, types.KeySchemaElement{AttributeName: aws.String("pk"), KeyType: types.KeyTypeRange})
		}), "have the same name"},
		{create(func(in *sdk.CreateTableInput) { in.AttributeDefinitions[0].AttributeType = "SS" }), "Member must satisfy enum value set: [B, N, S]"},
		{create(func(in *sdk.CreateTableInput) {
			in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: aws.String("x"), AttributeType: types.ScalarAttributeTypeS})
		}), "Number of attributes in KeySchema does not exactly match"},
		{create(func(in *sdk.CreateTableInput) { in.BillingMode = types.BillingModeProvisioned }), "ReadCapacityUnits and WriteCapacityUnits must both be specified"},
		{create(func(in *sdk.CreateTableInput) {
			in.ProvisionedThroughput = &types.ProvisionedThroughput{ReadCapacityUnits: aws.Int64(1), WriteCapacityUnits: aws.Int64(1)}
		}), "Neither ReadCapacityUnits nor WriteCapacityUnits can be specified"},
		{create(func(*sdk.CreateTableInput) {}), ""},
	} {
		if (row.want == "") != (row.got == "") || !strings.Contains(row.got, row.want) {
			t.Errorf("%d: %q, want %q", i, row.got, row.want)
		}
	}
}

func TestListTables(t *testing.T) {
	eachStorage(t, dynamodb.Options{}, func(f *fixture) {
		want := []string{"tbl"}
		for i := range 5 {
			name := fmt.Sprintf("more.%d", i)
			f.createTable(name, types.ScalarAttributeTypeS, "")
			want = append(want, name)
		}
		slices.Sort(want)
		for limit := int32(1); limit <= 7; limit++ {
			in := &sdk.ListTablesInput{Limit: &limit}
			var got []string
			for {
				out, err := f.client.ListTables(f.ctx(), in)
				if err != nil {
					f.Fatal(err)
				}
				got = append(got, out.TableNames...)
				if in.ExclusiveStartTableName = out.LastEvaluatedTableName; in.ExclusiveStartTableName == nil {
					break
				}
			}
			if !slices.Equal(got, want) {
				f.Errorf("limit %d: %q", limit, got)
			}
		}
		if _, err := f.client.ListTables(f.ctx(), &sdk.ListTablesInput{Limit: aws.Int32(101)}); code(err) != "ValidationException" {
			f.Error(err)
		}
	})
}

func TestTimeToLiveIsStoredOnly(t *testing.T) {
	eachStorage(t, dynamodb.Options{}, func(f *fixture) {
		set := func(enabled bool) (string, *types.TimeToLiveSpecification) {
			out, err := f.client.UpdateTimeToLive(f.ctx(), &sdk.UpdateTimeToLiveInput{TableName: table, TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String("exp"), Enabled: &enabled}})
			if err != nil {
				return message(err), nil
			}
			return "", out.TimeToLiveSpecification
		}
		if got, spec := set(true); got != "" || !*spec.Enabled || *spec.AttributeName != "exp" {
			f.Error(got, spec)
		}
		if got, _ := set(true); got != "TimeToLive is already enabled" {
			f.Error(got)
		}
		f.put(`pk:"a" sk:"s" exp:1`)
		if f.get("a", "s") == "" {
			f.Error("an item expired")
		}
		if got, _ := set(false); got != "" {
			f.Error(got)
		}
		if got, _ := set(false); got != "TimeToLive is already disabled" {
			f.Error(got)
		}
	})
}
