package judge

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// answer is what a request came to, in a form that can be compared.
type answer struct {
	code    string // "" for success, "transport" if no service answered
	message string
	meaning string // of the message, "?" if it says nothing that is known here
	// fields are the parts of the answer by their names: an attribute each, "yes" for an item or map as such.
	fields map[string]string
}

// outcome is success, or the code and the meaning.
func (a answer) outcome() string {
	switch {
	case a.code == "":
		return "ok"
	case a.meaning == "":
		return a.code
	}
	return a.code + ": " + a.meaning
}

func (a answer) item(at string, m attributes) {
	if m == nil {
		return
	}
	a.fields[at] = "yes"
	for name, v := range m {
		a.fields[at+"."+name] = notationOf(v)
	}
}

// items are in the order in which they came, or in one that each implementation has.
func (a answer) items(at string, items []attributes, ordered bool) {
	if !ordered {
		items = slices.Clone(items)
		slices.SortFunc(items, func(x, y attributes) int { return strings.Compare(plain(notation(x)), plain(notation(y))) })
	}
	a.fields[at] = fmt.Sprint(len(items))
	for i, m := range items {
		a.item(fmt.Sprintf("%s[%d]", at, i), m)
	}
}

// answerOf brings an output or error of the SDK into that form.
func answerOf(out any, err error) answer {
	a := answer{fields: map[string]string{}}
	if err != nil {
		a.failure(err)
		return a
	}
	switch out := out.(type) {
	case *sdk.PutItemOutput:
		a.item("Attributes", out.Attributes)
	case *sdk.UpdateItemOutput:
		a.item("Attributes", out.Attributes)
	case *sdk.DeleteItemOutput:
		a.item("Attributes", out.Attributes)
	case *sdk.GetItemOutput:
		a.item("Item", out.Item)
	case *sdk.QueryOutput:
		a.items("Items", out.Items, true)
		a.counts(out.Count, out.ScannedCount)
		a.item("LastEvaluatedKey", out.LastEvaluatedKey)
	case *sdk.ScanOutput:
		a.items("Items", out.Items, false)
		a.counts(out.Count, out.ScannedCount)
		a.item("LastEvaluatedKey", out.LastEvaluatedKey)
	case *sdk.BatchGetItemOutput:
		for table, items := range out.Responses {
			a.items("Responses."+table, items, false)
		}
		a.fields["UnprocessedKeys"] = fmt.Sprint(len(out.UnprocessedKeys))
	case *sdk.BatchWriteItemOutput:
		a.fields["UnprocessedItems"] = fmt.Sprint(len(out.UnprocessedItems))
	case *sdk.TransactGetItemsOutput:
		a.items("Responses", each(out.Responses, func(r types.ItemResponse) attributes { return r.Item }), true)
	default:
		a.table(out)
	}
	return a
}

func (a answer) counts(count, scanned int32) {
	a.fields["Count"], a.fields["ScannedCount"] = fmt.Sprint(count), fmt.Sprint(scanned)
}

func (a answer) table(out any) {
	var d *types.TableDescription
	switch out := out.(type) {
	case *sdk.CreateTableOutput:
		d = out.TableDescription
	case *sdk.DescribeTableOutput:
		d = out.Table
	case *sdk.DeleteTableOutput:
		a.fields["TableName"] = aws.ToString(out.TableDescription.TableName)
		return
	case *sdk.ListTablesOutput:
		a.fields["TableNames"] = strings.Join(out.TableNames, " ")
		a.fields["LastEvaluatedTableName"] = aws.ToString(out.LastEvaluatedTableName)
		return
	case *sdk.UpdateTimeToLiveOutput:
		s := out.TimeToLiveSpecification
		a.fields["TimeToLive"] = fmt.Sprint(aws.ToString(s.AttributeName), " ", aws.ToBool(s.Enabled))
		return
	default:
		return
	}
	a.fields["TableName"] = aws.ToString(d.TableName)
	for i, k := range d.KeySchema {
		a.fields[fmt.Sprintf("KeySchema[%d]", i)] = aws.ToString(k.AttributeName) + " " + string(k.KeyType)
	}
	for _, k := range d.AttributeDefinitions {
		a.fields["AttributeDefinitions."+aws.ToString(k.AttributeName)] = string(k.AttributeType)
	}
	if d.BillingModeSummary != nil {
		a.fields["BillingMode"] = string(d.BillingModeSummary.BillingMode)
	}
	if p := d.ProvisionedThroughput; p != nil {
		a.fields["ProvisionedThroughput"] = fmt.Sprint(aws.ToInt64(p.ReadCapacityUnits), " ", aws.ToInt64(p.WriteCapacityUnits))
	}
	a.fields["DeletionProtectionEnabled"] = fmt.Sprint(aws.ToBool(d.DeletionProtectionEnabled))
}

func (a *answer) failure(err error) {
	var api smithy.APIError
	a.code, a.message = "transport", err.Error()
	if !errors.As(err, &api) || api.ErrorCode() == "" {
		return
	}
	a.code, a.message = api.ErrorCode(), api.ErrorMessage()
	var refused *types.ConditionalCheckFailedException
	if errors.As(err, &refused) {
		a.item("Item", refused.Item)
		return
	}
	var cancelled *types.TransactionCanceledException
	if errors.As(err, &cancelled) {
		for i, r := range cancelled.CancellationReasons {
			at := fmt.Sprintf("reasons[%d]", i)
			a.fields[at] = aws.ToString(r.Code)
			if *r.Code == "ValidationError" {
				a.fields[at] += ": " + meaningOf(aws.ToString(r.Message))
			}
			a.item(at+".Item", r.Item)
		}
		return
	}
	if a.code == "ValidationException" {
		a.meaning = meaningOf(a.message)
	}
}

// difference is one field in which engine and judge differ.
type difference struct {
	judge  string
	r      *request
	before string // the items that the request named, as they were
	field  string
	// engine and judged are the field as each has it, "" if it has not.
	engine, judged string
	// answers of both, whole.
	engineAnswer, judgeAnswer answer
}

func (d *difference) String() string {
	return fmt.Sprintf("%s differs in %s\n  engine: %s\n  judge:  %s\n  engine answered: %s\n  judge answered:  %s\n  replay: tables of -seed, these items and this request\n    items: %s\n    %s",
		d.judge, d.field, d.engine, d.judged, d.engineAnswer.show(), d.judgeAnswer.show(), d.before, d.r)
}

func (a answer) show() string {
	if a.code != "" {
		return a.outcome() + " — " + shortened(a.message)
	}
	return "ok"
}

// compare lists the fields in which two answers differ. If one succeeded and the other did not, that is all.
func compare(engine, judge answer) []difference {
	if engine.outcome() != judge.outcome() {
		return []difference{{field: "outcome", engine: engine.outcome(), judged: judge.outcome()}}
	}
	return compareFields(engine.fields, judge.fields)
}

func compareFields(engine, judge map[string]string) []difference {
	var out []difference
	all := maps.Clone(engine)
	maps.Copy(all, judge)
	for _, field := range slices.Sorted(maps.Keys(all)) {
		if engine[field] != judge[field] {
			out = append(out, difference{field: field, engine: engine[field], judged: judge[field]})
		}
	}
	return out
}

// decimal is a number within a notation, in whatever form.
var decimal = regexp.MustCompile(`(^|[ \[<=])([+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?)`)

// plain is a notation with its numbers in one form. It is what differs beyond the form of numbers.
func plain(notation string) string {
	return decimal.ReplaceAllStringFunc(notation, func(s string) string {
		m := decimal.FindStringSubmatch(s)
		return m[1] + canonical(m[2])
	})
}

func canonical(number string) string {
	if n, ok := new(big.Rat).SetString(number); ok {
		return n.RatString()
	}
	return number
}
