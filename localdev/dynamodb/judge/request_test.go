package judge

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

type attributes = map[string]types.AttributeValue

// request is one request, or one action of a batch or transaction. Empty and nil fields are not sent.
type request struct {
	op    string // the operation, or the action's name: Put, Update, Delete, ConditionCheck, Get
	table string

	item, key attributes
	keys      []attributes // of one table of BatchGetItem

	condition, filter, keyCondition, update, projection string

	names  map[string]string
	values attributes

	returnValues, onFailure string
	consistent              bool

	limit          *int32
	start          attributes // ExclusiveStartKey
	descending     bool
	selection      string
	segment, total *int32
	// pages: read page by page to the end. The pages of a Scan end where each implementation likes.
	pages bool

	token string
	parts []*request

	create *tableRequest // of CreateTable, UpdateTimeToLive and ListTables

	used  []string // functions, operators, clauses and parameters: the rows of the coverage table
	fault string   // the one thing that is wrong on purpose, "" if nothing is
}

// tableRequest is what the operations on tables ask beside a name.
type tableRequest struct {
	schema     schema
	onDemand   bool
	throughput int64 // 0: not sent
	protected  bool
	extra      bool // an attribute is defined that no key uses
	ttl        string
	enabled    bool
	startTable string
}

// schema is a table's keys; sort is empty if there is no sort key.
type schema struct {
	name            string
	partition, sort types.ScalarAttributeType
}

func (s schema) keyNames() []string {
	if s.sort == "" {
		return []string{"pk"}
	}
	return []string{"pk", "sk"}
}

// keyOf is the key of an item, nil if it has none.
func (s schema) keyOf(item attributes) attributes {
	key := attributes{}
	for _, name := range s.keyNames() {
		if item[name] == nil {
			return nil
		}
		key[name] = item[name]
	}
	return key
}

// isWrite reports whether the operation changes items.
func (r *request) isWrite() bool {
	switch r.op {
	case "PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems":
		return true
	}
	return false
}

// actions are the request itself, or its parts.
func (r *request) actions() []*request {
	if len(r.parts) > 0 {
		return r.parts
	}
	return []*request{r}
}

// String is the request in the notation of the replay.
func (r *request) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", r.op, r.table)
	show := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "\n      %s: %s", name, text)
		}
	}
	for _, m := range []struct {
		name string
		m    attributes
	}{{"Item", r.item}, {"Key", r.key}, {"ExclusiveStartKey", r.start}} {
		if m.m != nil {
			show(m.name, notation(m.m))
		}
	}
	for _, key := range r.keys {
		show("Key", notation(key))
	}
	show("ConditionExpression", r.condition)
	show("UpdateExpression", r.update)
	show("KeyConditionExpression", r.keyCondition)
	show("FilterExpression", r.filter)
	show("ProjectionExpression", r.projection)
	if r.names != nil {
		show("ExpressionAttributeNames", fmt.Sprint(r.names))
	}
	if r.values != nil {
		show("ExpressionAttributeValues", notation(r.values))
	}
	show("ReturnValues", r.returnValues)
	show("ReturnValuesOnConditionCheckFailure", r.onFailure)
	show("Select", r.selection)
	show("ClientRequestToken", r.token)
	for name, n := range map[string]*int32{"Limit": r.limit, "Segment": r.segment, "TotalSegments": r.total} {
		if n != nil {
			show(name, fmt.Sprint(*n))
		}
	}
	for name, on := range map[string]bool{"ScanIndexForward": r.descending, "page by page": r.pages} {
		if on {
			show(name, strconv.FormatBool(name != "ScanIndexForward"))
		}
	}
	if r.create != nil {
		show("table", fmt.Sprintf("%+v", *r.create))
	}
	for _, part := range r.parts {
		show("-", strings.ReplaceAll(part.String(), "\n", "\n    "))
	}
	return b.String()
}

// notation shows an item: names ascending, sets sorted, numbers as they came.
func notation(m attributes) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, name+"="+notationOf(m[name]))
	}
	return "{" + strings.Join(parts, " ") + "}"
}

func notationOf(v types.AttributeValue) string {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return shortened(strconv.Quote(v.Value))
	case *types.AttributeValueMemberN:
		return v.Value
	case *types.AttributeValueMemberB:
		return shortened("b" + strconv.Quote(string(v.Value)))
	case *types.AttributeValueMemberBOOL:
		return strconv.FormatBool(v.Value)
	case *types.AttributeValueMemberNULL:
		return "null"
	case *types.AttributeValueMemberL:
		return "[" + strings.Join(each(v.Value, notationOf), " ") + "]"
	case *types.AttributeValueMemberM:
		return notation(v.Value)
	case *types.AttributeValueMemberSS:
		return members(each(v.Value, strconv.Quote))
	case *types.AttributeValueMemberNS:
		return members(v.Value)
	case *types.AttributeValueMemberBS:
		return members(each(v.Value, func(b []byte) string { return "b" + strconv.Quote(string(b)) }))
	}
	return fmt.Sprintf("%T", v)
}

func members(list []string) string {
	return "<" + strings.Join(slices.Sorted(slices.Values(list)), " ") + ">"
}

// shortened keeps values that are large on purpose out of the output; its length stands for the rest.
func shortened(s string) string {
	if len(s) <= 200 {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", s[:40], len(s))
}

func each[T, U any](list []T, f func(T) U) []U {
	out := make([]U, len(list))
	for i, e := range list {
		out[i] = f(e)
	}
	return out
}

// hasNumber reports whether a number is written like this anywhere in the request.
func (r *request) hasNumber(written string) bool {
	return regexp.MustCompile(`(^|[ \[<=])` + regexp.QuoteMeta(written) + `($|[ \]>}\n])`).MatchString(r.String())
}
