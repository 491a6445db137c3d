package dynamodb

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/varvelog/varve/localdev/dynamodb/storage"
	"github.com/varvelog/varve/localdev/dynamodb/value"
	"github.com/varvelog/varve/localdev/dynamodb/wire"
)

// createRequest is what CreateTable may ask. Index and stream parameters are there to be refused.
type createRequest struct {
	TableName                                     string
	AttributeDefinitions                          []struct{ AttributeName, AttributeType string }
	KeySchema                                     []struct{ AttributeName, KeyType string }
	BillingMode                                   string
	ProvisionedThroughput                         *struct{ ReadCapacityUnits, WriteCapacityUnits int64 }
	DeletionProtectionEnabled                     bool
	LocalSecondaryIndexes, GlobalSecondaryIndexes []json.RawMessage
	StreamSpecification                           *struct{ StreamEnabled bool }
}

func createTable(_ context.Context, c *call) ([]byte, error) {
	var q createRequest
	if err := json.Unmarshal(c.body, &q); err != nil {
		return nil, &wire.Error{Message: err.Error()}
	}
	t, err := q.table()
	if err != nil {
		return nil, err
	}
	t.Created = c.engine.options.Now().Unix()
	t.ID = fmt.Sprintf("%08x-0000-4000-8000-%012x", storage.PlaceOf(t.Name).Hash, t.Created)
	definition, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	err = c.engine.store.Update(func(w storage.Writer) error {
		existing, err := w.Table(t.Name)
		if err != nil {
			return err
		}
		if existing != nil {
			return clientError("ResourceInUseException", "Table already exists: %s", t.Name)
		}
		return w.PutTable(t.Name, definition)
	})
	if err != nil {
		return nil, err
	}
	var o object
	o.raw("TableDescription", t.describe("ACTIVE"))
	return o.close(), nil
}

// table checks a request and is the table that it describes.
func (q *createRequest) table() (*table, error) {
	if len(q.TableName) < 3 || len(q.TableName) > 255 {
		return nil, validation("TableName must be at least 3 characters long and at most 255 characters long")
	}
	if err := checkTableName(q.TableName); err != nil {
		return nil, err
	}
	switch {
	case len(q.LocalSecondaryIndexes)+len(q.GlobalSecondaryIndexes) > 0:
		return nil, validation("This engine has no secondary indexes")
	case q.StreamSpecification != nil && q.StreamSpecification.StreamEnabled:
		return nil, validation("This engine has no streams")
	}
	if err := checkEnum(q.BillingMode, "billingMode", "PROVISIONED", "PAY_PER_REQUEST"); err != nil {
		return nil, err
	}
	t := &table{Name: q.TableName, OnDemand: q.BillingMode == "PAY_PER_REQUEST", Protected: q.DeletionProtectionEnabled}
	switch p := q.ProvisionedThroughput; {
	case t.OnDemand && p != nil:
		return nil, validation("One or more parameter values were invalid: Neither ReadCapacityUnits nor WriteCapacityUnits can be specified when BillingMode is PAY_PER_REQUEST")
	case !t.OnDemand && p == nil:
		return nil, validation("One or more parameter values were invalid: ReadCapacityUnits and WriteCapacityUnits must both be specified when BillingMode is PROVISIONED")
	case p != nil && (p.ReadCapacityUnits < 1 || p.WriteCapacityUnits < 1):
		return nil, constraint(fmt.Sprintf("'%d'", min(p.ReadCapacityUnits, p.WriteCapacityUnits)), "provisionedThroughput", "Member must have value greater than or equal to 1")
	case p != nil:
		t.ReadUnits, t.WriteUnits = p.ReadCapacityUnits, p.WriteCapacityUnits
	}
	return t, q.keys(t)
}

// keys fills in the key attributes.
func (q *createRequest) keys(t *table) error {
	kinds := map[string]value.Kind{}
	for _, d := range q.AttributeDefinitions {
		if err := checkEnum(d.AttributeType, "attributeDefinitions.1.member.attributeType", "B", "N", "S"); err != nil {
			return err
		}
		kinds[d.AttributeName] = value.Kind(d.AttributeType)
		t.Attributes = append(t.Attributes, keyAttribute{d.AttributeName, value.Kind(d.AttributeType)})
	}
	if len(q.KeySchema) < 1 || len(q.KeySchema) > 2 {
		return constraint(fmt.Sprintf("'%d elements'", len(q.KeySchema)), "keySchema", "Member must have length between 1 and 2")
	}
	for i, k := range q.KeySchema {
		if want := []string{"HASH", "RANGE"}[i]; k.KeyType != want {
			return validation("Invalid KeySchema: element %d of the KeySchema is not a %s key type", i+1, want)
		}
		kind, defined := kinds[k.AttributeName]
		if !defined {
			return validation("One or more parameter values were invalid: Some index key attributes are not defined in AttributeDefinitions. Keys: [%s]", k.AttributeName)
		}
		if i == 0 {
			t.Partition = keyAttribute{k.AttributeName, kind}
		} else {
			t.Sort = &keyAttribute{k.AttributeName, kind}
		}
	}
	if t.Sort != nil && t.Sort.Name == t.Partition.Name {
		return validation("Both the Hash Key and the Range Key element in the KeySchema have the same name")
	}
	if len(kinds) != len(q.KeySchema) {
		return validation("One or more parameter values were invalid: Number of attributes in KeySchema does not exactly match number of attributes defined in AttributeDefinitions")
	}
	return nil
}
