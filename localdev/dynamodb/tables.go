package dynamodb

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/varvelog/varve/localdev/dynamodb/storage"
	"github.com/varvelog/varve/localdev/dynamodb/wire"
)

const tableNamePattern = "[a-zA-Z0-9_.-]+"

var validTableName = regexp.MustCompile("^" + tableNamePattern + "$")

func checkTableName(name string) error {
	switch {
	case name == "":
		return constraint("null", "tableName", "Member must not be null")
	case len(name) > 255:
		return constraint("'"+name+"'", "tableName", "Member must have length less than or equal to 255")
	case !validTableName.MatchString(name):
		return constraint("'"+name+"'", "tableName", "Member must satisfy regular expression pattern: "+tableNamePattern)
	}
	return nil
}

func arn(table string) string { return "arn:aws:dynamodb:local:000000000000:table/" + table }

// describe is a TableDescription.
func (t *table) describe(status string) []byte {
	type attribute struct{ AttributeName, AttributeType string }
	type keyElement struct{ AttributeName, KeyType string }
	type throughput struct{ NumberOfDecreasesToday, ReadCapacityUnits, WriteCapacityUnits int64 }
	type billing struct{ BillingMode string }
	d := struct {
		TableName, TableArn, TableId, TableStatus string
		CreationDateTime                          int64
		ItemCount, TableSizeBytes                 int64
		AttributeDefinitions                      []attribute
		KeySchema                                 []keyElement
		ProvisionedThroughput                     throughput
		BillingModeSummary                        *billing `json:",omitempty"`
		DeletionProtectionEnabled                 bool
	}{
		TableName: t.Name, TableArn: arn(t.Name), TableId: t.ID, TableStatus: status,
		CreationDateTime: t.Created, DeletionProtectionEnabled: t.Protected,
		ProvisionedThroughput: throughput{ReadCapacityUnits: t.ReadUnits, WriteCapacityUnits: t.WriteUnits},
	}
	if t.OnDemand {
		d.BillingModeSummary = &billing{"PAY_PER_REQUEST"}
	}
	for _, a := range t.Attributes {
		d.AttributeDefinitions = append(d.AttributeDefinitions, attribute{a.Name, string(a.Kind)})
	}
	for i, a := range t.keyAttributes() {
		d.KeySchema = append(d.KeySchema, keyElement{a.Name, []string{"HASH", "RANGE"}[i]})
	}
	out, _ := json.Marshal(d) // strings, numbers and slices of them only
	return out
}

// tableNamed is a table for the operations on tables, whose errors name it.
func (c *call) tableNamed(r storage.Reader) (*table, error) {
	if err := checkTableName(c.q.table); err != nil {
		return nil, err
	}
	t, err := c.engine.schemas.load(r, c.q.table)
	if e, ok := err.(*Error); ok {
		e.Message += ": Table: " + c.q.table + " not found"
	}
	return t, err
}

func describeTable(_ context.Context, c *call) ([]byte, error) {
	var t *table
	err := c.engine.store.View(func(r storage.Reader) (err error) {
		t, err = c.tableNamed(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	var o object
	o.raw("Table", t.describe("ACTIVE"))
	return o.close(), nil
}

func deleteTable(_ context.Context, c *call) ([]byte, error) {
	var t *table
	err := c.engine.store.Update(func(w storage.Writer) (err error) {
		if t, err = c.tableNamed(w); err != nil {
			return err
		}
		if t.Protected {
			return validation("Resource cannot be deleted as it is currently protected against deletion. Disable deletion protection first.")
		}
		return w.DropTable(t.Name)
	})
	if err != nil {
		return nil, err
	}
	c.engine.history.forget(t.Name)
	var o object
	o.raw("TableDescription", t.describe("DELETING"))
	return o.close(), nil
}

const maxTableNames = 100

func listTables(_ context.Context, c *call) ([]byte, error) {
	q := struct {
		ExclusiveStartTableName string
		Limit                   *int
	}{}
	if err := json.Unmarshal(c.body, &q); err != nil {
		return nil, &wire.Error{Message: err.Error()}
	}
	limit := maxTableNames
	if q.Limit != nil {
		limit = *q.Limit
	}
	if limit < 1 || limit > maxTableNames {
		return nil, constraint(fmt.Sprintf("'%d'", limit), "limit", "Member must have value between 1 and 100")
	}
	var names []string
	err := c.engine.store.View(func(r storage.Reader) (err error) {
		names, err = r.Tables(q.ExclusiveStartTableName, limit+1)
		return err
	})
	if err != nil {
		return nil, err
	}
	var o object
	last := ""
	if len(names) > limit {
		names = slices.Clip(names[:limit])
		last = names[limit-1]
	}
	list, _ := json.Marshal(append([]string{}, names...)) // strings only
	o.raw("TableNames", list)
	if last != "" {
		o.text("LastEvaluatedTableName", last)
	}
	return o.close(), nil
}
