package dynamo

import (
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// expr is an update under construction: SET, ADD and REMOVE clauses, and conditions joined by AND. Every attribute name goes through a
// placeholder, so that no reserved word matters; placeholders are two or three characters, since a clause text may have 4 KB.
type expr struct {
	names             map[string]string
	places            map[string]string // attribute name -> placeholder
	values            item
	set, add, removed []string
	conditions        []string
}

func newExpr() *expr {
	return &expr{names: map[string]string{}, places: map[string]string{}, values: item{}}
}

// name is the placeholder of an attribute.
func (x *expr) name(attr string) string {
	p, ok := x.places[attr]
	if !ok {
		p = "#" + strconv.FormatInt(int64(len(x.names)), 36)
		x.names[p], x.places[attr] = attr, p
	}
	return p
}

// value is the placeholder of a new value.
func (x *expr) value(v types.AttributeValue) string {
	p := ":" + strconv.FormatInt(int64(len(x.values)), 36)
	x.values[p] = v
	return p
}

func (x *expr) num(n int64) string { return x.value(number(n)) }

// assign sets an attribute to what an operand says.
func (x *expr) assign(attr, operand string) { x.set = append(x.set, x.name(attr)+"="+operand) }

func (x *expr) increase(attr string, n int64) {
	x.add = append(x.add, x.name(attr)+" "+x.num(n))
}

func (x *expr) remove(attr string) { x.removed = append(x.removed, x.name(attr)) }

// require adds conditions.
func (x *expr) require(conditions ...string) { x.conditions = append(x.conditions, conditions...) }

func (x *expr) is(attr string, v types.AttributeValue) string { return x.name(attr) + "=" + x.value(v) }
func (x *expr) isNumber(attr string, n int64) string          { return x.is(attr, number(n)) }
func (x *expr) under(attr string, v types.AttributeValue) string {
	return x.name(attr) + "<" + x.value(v)
}
func (x *expr) exists(attr string) string { return "attribute_exists(" + x.name(attr) + ")" }
func (x *expr) absent(attr string) string { return "attribute_not_exists(" + x.name(attr) + ")" }

// absentOrUnder is the condition of whatever only grows: floors, starts.
func (x *expr) absentOrUnder(attr string, v types.AttributeValue) string {
	return "(" + x.absent(attr) + " OR " + x.under(attr, v) + ")"
}

// unchanged is the condition that an attribute is as it was, 0 standing for none.
func (x *expr) unchanged(attr string, was int64) string {
	if was != 0 {
		return x.isNumber(attr, was)
	}
	return "(" + x.absent(attr) + " OR " + x.isNumber(attr, 0) + ")"
}

func (x *expr) text() *string {
	var clauses []string
	for _, c := range []struct {
		word  string
		parts []string
	}{{"SET ", x.set}, {"ADD ", x.add}, {"REMOVE ", x.removed}} {
		if len(c.parts) > 0 {
			clauses = append(clauses, c.word+strings.Join(c.parts, ","))
		}
	}
	return optional(strings.Join(clauses, " "))
}

func (x *expr) condition() *string { return optional(strings.Join(x.conditions, " AND ")) }

func (x *expr) given() item {
	if len(x.values) == 0 {
		return nil // an empty map is refused by the service
	}
	return x.values
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// update is the expression as an UpdateItem that answers with the new image, or with the old one if the condition fails.
func (t *Table) update(c *call, x *expr) *dynamodb.UpdateItemInput {
	return &dynamodb.UpdateItemInput{
		TableName:                           &t.name,
		Key:                                 keyOf(c.key),
		UpdateExpression:                    x.text(),
		ConditionExpression:                 x.condition(),
		ExpressionAttributeNames:            x.names,
		ExpressionAttributeValues:           x.given(),
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		ReturnConsumedCapacity:              types.ReturnConsumedCapacityTotal,
	}
}
