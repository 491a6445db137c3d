package dynamodb

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb/expr"
	"github.com/varvelog/varve/localdev/dynamodb/storage"
	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// call is one request being performed.
type call struct {
	engine *Engine
	op     string
	q      *request
	body   []byte
	signed time.Time // by the request; zero: it is not signed
	fault  Fault
}

// operation performs a call and is its answer's body. Errors become answers by answerFor.
type operation func(ctx context.Context, c *call) ([]byte, error)

var operations map[string]operation

func init() {
	operations = map[string]operation{
		"CreateTable": createTable, "DescribeTable": describeTable, "ListTables": listTables, "DeleteTable": deleteTable,
		"UpdateTimeToLive": updateTimeToLive,
		"GetItem":          getItem, "PutItem": writeItem, "UpdateItem": writeItem, "DeleteItem": writeItem,
		"Query": query, "Scan": scan,
		"BatchGetItem": batchGet, "BatchWriteItem": batchWrite,
		"TransactWriteItems": transactWrite, "TransactGetItems": transactGet,
	}
}

// perform is the call without faults before or after it. Errors are *Error.
func (c *call) perform(ctx context.Context) ([]byte, error) {
	if err := c.fresh(); err != nil {
		return nil, err
	}
	reply, err := operations[c.op](ctx, c)
	if err != nil {
		return nil, answerFor(err)
	}
	return reply, nil
}

// signatureAge is how far the time that a request was signed at may be from the service's when it arrives. It bounds how late a request can apply.
const signatureAge = 5 * time.Minute

// fresh refuses a request that was signed too long ago, or too far in the future.
func (c *call) fresh() error {
	now := c.engine.options.Now().UTC().Truncate(time.Second)
	switch {
	case c.signed.IsZero():
	case now.Sub(c.signed) > signatureAge:
		return clientError("InvalidSignatureException", "Signature expired: %s is now earlier than %s (%s - 5 min.)", stamp(c.signed), stamp(now.Add(-signatureAge)), stamp(now))
	case c.signed.Sub(now) > signatureAge:
		return clientError("InvalidSignatureException", "Signature not yet current: %s is still later than %s (%s + 5 min.)", stamp(c.signed), stamp(now.Add(signatureAge)), stamp(now))
	}
	return nil
}

// signatureTime is the form of X-Amz-Date.
const signatureTime = "20060102T150405Z"

func stamp(t time.Time) string { return t.Format(signatureTime) }

// signed is when a request was signed: by AWS Signature Version 4, the only one there is. What cannot be read as that is taken for not signed.
func signed(h http.Header) time.Time {
	t, err := time.Parse(signatureTime, h.Get("X-Amz-Date"))
	if err != nil || !strings.HasPrefix(h.Get("Authorization"), "AWS4-HMAC-SHA256 ") {
		return time.Time{}
	}
	return t
}

// faulted performs the call as the hook wants it. An error that is not an *Error is the transport's.
func (e *Engine) faulted(ctx context.Context, c *call) ([]byte, error) {
	if e.options.Hook == nil {
		return c.perform(ctx)
	}
	c.fault = e.options.Hook(ctx, c.describe())
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var reply []byte
	var err error
	switch {
	case c.fault.Late != nil:
		e.later(c)
		err = ErrConnectionLost
	case c.fault.Skip:
		err = ErrConnectionLost
	default:
		reply, err = c.perform(ctx)
	}
	if c.fault.Hold != nil {
		c.fault.Hold(ctx)
	}
	switch c.fault.Reply {
	case nil:
		return reply, err
	case ErrNoAnswer:
		<-ctx.Done()
	}
	return nil, c.fault.Reply
}

// later performs the call once its fault lets it, in a goroutine that Close waits for.
func (e *Engine) later(c *call) {
	e.closing.Lock()
	defer e.closing.Unlock()
	if e.ctx.Err() != nil {
		return
	}
	e.late.Go(func() {
		c.fault.Late(e.ctx)
		if e.ctx.Err() == nil {
			_, _ = c.perform(e.ctx) // nobody waits for the answer
		}
	})
}

// view reads the state that the call may see: now, or longer ago if it is an eventual read that the hook made stale.
func (c *call) view(consistent bool, read func(storage.Reader) error) error {
	return c.engine.store.View(func(r storage.Reader) error {
		if !consistent && c.fault.Stale > 0 {
			r = c.engine.history.asOf(r, c.engine.options.Now().Add(-c.fault.Stale))
		}
		return read(r)
	})
}

// describe is what the hook gets to see of the call.
func (c *call) describe() Call {
	d := Call{Op: c.op, Table: c.q.table, Consistent: c.consistent(), Body: c.body}
	// A table that cannot be read has no keys; the operation itself will say so.
	_ = c.engine.store.View(func(r storage.Reader) error {
		if len(c.q.actions) == 0 {
			d.Keys = c.engine.keysIn(r, c.q)
		}
		for _, a := range c.q.actions {
			d.Keys = append(d.Keys, c.engine.keysIn(r, a.request)...)
		}
		return nil
	})
	if d.Table == "" && len(c.q.actions) > 0 {
		d.Table = c.q.actions[0].table
	}
	return d
}

func (c *call) consistent() bool {
	switch c.op {
	case "GetItem", "Query", "Scan":
		return c.q.consistent
	case "BatchGetItem":
		for _, a := range c.q.actions {
			if !a.consistent {
				return false
			}
		}
	}
	return true
}

// keysIn are the keys that one request names.
func (e *Engine) keysIn(r storage.Reader, q *request) []Key {
	t, err := e.schemas.load(r, q.table)
	if err != nil {
		return nil
	}
	if q.keyCondition != nil {
		return e.queriedKey(t, q)
	}
	var keys []Key
	for _, m := range append([]value.Map{q.key, q.item}, q.keys...) {
		partition := m[t.Partition.Name]
		if partition == nil {
			continue
		}
		k := Key{Table: t.Name, Partition: keyText(partition)}
		if t.Sort != nil {
			k.Sort = keyText(m[t.Sort.Name])
		}
		keys = append(keys, k)
	}
	return keys
}

func (e *Engine) queriedKey(t *table, q *request) []Key {
	p, err := e.expressions.parse(q, expr.KeyCondition, expr.Filter, expr.Projecting)
	if err != nil {
		return nil
	}
	terms, err := p.keyCondition.KeyTerms(p.params)
	if err != nil {
		return nil
	}
	for _, term := range terms {
		if term.Attribute == t.Partition.Name && term.Op == "=" {
			return []Key{{Table: t.Name, Partition: keyText(term.Operand)}}
		}
	}
	return nil
}

// keyText is a key value as Key shows it.
func keyText(v value.Value) string {
	switch v := v.(type) {
	case value.String:
		return string(v)
	case value.Binary:
		return string(v)
	case value.Number:
		return v.String()
	}
	return ""
}

// checkEnum refuses a parameter that is given and not one of the values allowed.
func checkEnum(given, parameter string, allowed ...string) error {
	if given == "" {
		return nil
	}
	for _, a := range allowed {
		if given == a {
			return nil
		}
	}
	return constraint("'"+given+"'", parameter, fmt.Sprintf("Member must satisfy enum value set: %s", bracketed(allowed)))
}

func bracketed(list []string) string {
	out := "["
	for i, s := range list {
		if i > 0 {
			out += ", "
		}
		out += s
	}
	return out + "]"
}
