package dynamodb_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/varvelog/varve/localdev/dynamodb"
)

// fixture is an engine with the SDK's client in front of it and a table "tbl" with string keys pk, sk.
type fixture struct {
	*testing.T
	engine *dynamodb.Engine
	client *sdk.Client
}

var table = aws.String("tbl")

// eachStorage runs a test on an engine in memory and on one on a file.
func eachStorage(t *testing.T, o dynamodb.Options, test func(f *fixture)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) { test(newFixture(t, o)) })
	t.Run("sqlite", func(t *testing.T) {
		o.File = filepath.Join(t.TempDir(), "engine.db")
		test(newFixture(t, o))
	})
}

func newFixture(t *testing.T, o dynamodb.Options) *fixture {
	t.Helper()
	engine, err := dynamodb.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	f := &fixture{T: t, engine: engine, client: clientOf(engine)}
	f.createTable("tbl", types.ScalarAttributeTypeS, types.ScalarAttributeTypeS)
	return f
}

// clientOf is the SDK's client on an engine, without retries.
func clientOf(engine aws.HTTPClient) *sdk.Client {
	return sdk.NewFromConfig(aws.Config{
		Region:      "us-east-1",
		Credentials: aws.AnonymousCredentials{}, // some engines have clocks of another year
		HTTPClient:  engine,
		Retryer:     func() aws.Retryer { return aws.NopRetryer{} },
	})
}

// createTable makes a table with the keys pk and, unless sort is empty, sk.
func (f *fixture) createTable(name string, partition, sort types.ScalarAttributeType) {
	f.Helper()
	in := &sdk.CreateTableInput{
		TableName:            &name,
		BillingMode:          types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: partition}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}},
	}
	if sort != "" {
		in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: aws.String("sk"), AttributeType: sort})
		in.KeySchema = append(in.KeySchema, types.KeySchemaElement{AttributeName: aws.String("sk"), KeyType: types.KeyTypeRange})
	}
	if _, err := f.client.CreateTable(f.ctx(), in); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) ctx() context.Context { return context.Background() }

// put writes an item, given in notation, and get reads one back in notation; "" if there is none.
func (f *fixture) put(notation string) {
	f.Helper()
	if _, err := f.client.PutItem(f.ctx(), &sdk.PutItemInput{TableName: table, Item: item(notation)}); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) get(pk, sk string) string {
	f.Helper()
	out, err := f.client.GetItem(f.ctx(), &sdk.GetItemInput{TableName: table, Key: key(pk, sk), ConsistentRead: aws.Bool(true)})
	if err != nil {
		f.Fatal(err)
	}
	if out.Item == nil {
		return ""
	}
	return notationOf(out.Item)
}

type attributes = map[string]types.AttributeValue

func key(pk, sk string) attributes {
	return attributes{"pk": &types.AttributeValueMemberS{Value: pk}, "sk": &types.AttributeValueMemberS{Value: sk}}
}

// code is the service's error code, "" for success, "transport" for an error that no service answered.
func code(err error) string {
	var api smithy.APIError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &api):
		return api.ErrorCode()
	}
	return "transport"
}

// message is the service's error message.
func message(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorMessage()
	}
	return fmt.Sprint(err)
}

// The tests write values in a notation of their own: 12.5, "text", b"bytes", true, null, [list], {map: of},
// <"string" "set">, <1 2>, <b"x">. An item is a map without its braces; names end with a colon, spaces separate.

func item(notation string) attributes {
	p := notationParser{notation}
	m := p.members("")
	if p.rest != "" {
		panic("notation: " + p.rest)
	}
	return m
}

func val(notation string) types.AttributeValue {
	p := notationParser{notation}
	return p.value()
}

type notationParser struct{ rest string }

func (p *notationParser) skip() { p.rest = strings.TrimLeft(p.rest, " ") }

func (p *notationParser) accept(prefix string) bool {
	p.skip()
	rest, ok := strings.CutPrefix(p.rest, prefix)
	p.rest = rest
	return ok
}

func (p *notationParser) members(end string) attributes {
	m := attributes{}
	for p.skip(); p.rest != "" && (end == "" || !p.accept(end)); p.skip() {
		name, rest, ok := strings.Cut(p.rest, ":")
		if !ok {
			panic("notation: " + p.rest)
		}
		p.rest = rest
		m[name] = p.value()
	}
	return m
}

func (p *notationParser) elements(end string) []types.AttributeValue {
	list := []types.AttributeValue{}
	for !p.accept(end) {
		list = append(list, p.value())
	}
	return list
}

func (p *notationParser) value() types.AttributeValue {
	switch {
	case p.accept("["):
		return &types.AttributeValueMemberL{Value: p.elements("]")}
	case p.accept("{"):
		return &types.AttributeValueMemberM{Value: p.members("}")}
	case p.accept("<"):
		return set(p.elements(">"))
	case p.accept("null"):
		return &types.AttributeValueMemberNULL{Value: true}
	case p.accept("true"):
		return &types.AttributeValueMemberBOOL{Value: true}
	case p.accept("false"):
		return &types.AttributeValueMemberBOOL{Value: false}
	case strings.HasPrefix(p.rest, `"`):
		return &types.AttributeValueMemberS{Value: p.quoted()}
	case p.accept("b"):
		return &types.AttributeValueMemberB{Value: []byte(p.quoted())}
	}
	end := strings.IndexAny(p.rest, " ]}>")
	if end < 0 {
		end = len(p.rest)
	}
	number := p.rest[:end]
	p.rest = p.rest[end:]
	return &types.AttributeValueMemberN{Value: number}
}

func (p *notationParser) quoted() string {
	quoted, err := strconv.QuotedPrefix(p.rest)
	if err != nil {
		panic("notation: " + p.rest)
	}
	p.rest = p.rest[len(quoted):]
	text, _ := strconv.Unquote(quoted)
	return text
}

func set(members []types.AttributeValue) types.AttributeValue {
	ss, ns, bs := &types.AttributeValueMemberSS{}, &types.AttributeValueMemberNS{}, &types.AttributeValueMemberBS{}
	for _, v := range members {
		switch v := v.(type) {
		case *types.AttributeValueMemberS:
			ss.Value = append(ss.Value, v.Value)
		case *types.AttributeValueMemberN:
			ns.Value = append(ns.Value, v.Value)
		case *types.AttributeValueMemberB:
			bs.Value = append(bs.Value, v.Value)
		}
	}
	switch {
	case len(ns.Value) > 0:
		return ns
	case len(bs.Value) > 0:
		return bs
	}
	return ss
}

// notationOf is the notation of an item, names ascending.
func notationOf(m attributes) string {
	parts := []string{}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, name+":"+notationOfValue(m[name]))
	}
	return strings.Join(parts, " ")
}

func notationOfValue(v types.AttributeValue) string {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return strconv.Quote(v.Value)
	case *types.AttributeValueMemberN:
		return v.Value
	case *types.AttributeValueMemberB:
		return "b" + strconv.Quote(string(v.Value))
	case *types.AttributeValueMemberBOOL:
		return strconv.FormatBool(v.Value)
	case *types.AttributeValueMemberNULL:
		return "null"
	case *types.AttributeValueMemberL:
		return "[" + strings.Join(each(v.Value, notationOfValue), " ") + "]"
	case *types.AttributeValueMemberM:
		return "{" + notationOf(v.Value) + "}"
	case *types.AttributeValueMemberSS:
		return "<" + strings.Join(each(v.Value, strconv.Quote), " ") + ">"
	case *types.AttributeValueMemberNS:
		return "<" + strings.Join(v.Value, " ") + ">"
	case *types.AttributeValueMemberBS:
		return "<" + strings.Join(each(v.Value, func(b []byte) string { return "b" + strconv.Quote(string(b)) }), " ") + ">"
	}
	return fmt.Sprintf("%T", v)
}

func each[T, U any](list []T, f func(T) U) []U {
	out := make([]U, len(list))
	for i, e := range list {
		out[i] = f(e)
	}
	return out
}

// placeholders makes an ExpressionAttributeNames of "#a=name #b=other"; nil if there are none.
func placeholders(list string) map[string]string {
	if list == "" {
		return nil
	}
	names := map[string]string{}
	for pair := range strings.FieldsSeq(list) {
		key, name, _ := strings.Cut(pair, "=")
		names[key] = name
	}
	return names
}

// values makes an ExpressionAttributeValues of an item's notation whose names lack the colon in front: "a:1" is :a.
func values(notation string) attributes {
	if notation == "" {
		return nil
	}
	out := attributes{}
	for name, v := range item(notation) {
		out[":"+name] = v
	}
	return out
}

// rawResponse is an answer as it comes over the wire.
type rawResponse struct {
	status     int
	code, body string
	header     http.Header
}

// raw sends a body that the SDK would not make.
func (f *fixture) raw(target, body string) rawResponse {
	f.Helper()
	r, err := http.NewRequest(http.MethodPost, "http://localhost/", strings.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	r.Header.Set("X-Amz-Target", target)
	response, err := f.engine.Do(r)
	if err != nil {
		f.Fatal(err)
	}
	content, err := io.ReadAll(response.Body)
	if err != nil {
		f.Fatal(err)
	}
	out := rawResponse{status: response.StatusCode, body: string(content), header: response.Header}
	var failure struct {
		Type string `json:"__type"`
	}
	if err := json.Unmarshal(content, &failure); err != nil {
		f.Fatalf("%s: %v", content, err)
	}
	_, out.code, _ = strings.Cut(failure.Type, "#")
	return out
}

// reasons are those of a cancelled transaction, each "Code" or "Code: message", with the item if there is one.
func reasons(err error) []string {
	var cancelled *types.TransactionCanceledException
	if !errors.As(err, &cancelled) {
		return nil
	}
	return each(cancelled.CancellationReasons, func(r types.CancellationReason) string {
		out := aws.ToString(r.Code)
		if r.Message != nil {
			out += ": " + *r.Message
		}
		if r.Item != nil {
			out += " " + notationOf(r.Item)
		}
		return out
	})
}
