package dynamodb

import (
	"context"
	"slices"
	"strings"

	"github.com/varvelog/varve/localdev/dynamodb/storage"
	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// Limits of transactions.
const (
	maxTransaction      = 100
	maxTransactionBytes = 4 << 20
)

const errSameItem value.Invalid = "Transaction request cannot include multiple operations on one item"

func checkActions(q *request) error {
	switch n := len(q.actions); {
	case n == 0:
		return constraint("'[]'", "transactItems", "Member must have length greater than or equal to 1")
	case n > maxTransaction:
		return constraint("'[...]'", "transactItems", "Member must have length less than or equal to 100")
	}
	return checkReturnCapacity(q)
}

// transaction is a TransactWriteItems being performed.
type transaction struct {
	*call
	writes  []*write
	keys    []storage.Key
	reasons []Reason
	digest  string
	// replayed: the token was used for the same request less than 10 minutes ago, and nothing is done.
	replayed bool
	consumed consumption
}

// transactWrite performs TransactWriteItems: it holds its items, gives the hook a chance to let others meet them,
// then decides and writes in one go.
func transactWrite(ctx context.Context, c *call) ([]byte, error) {
	t, err := newTransaction(c)
	if err != nil {
		return nil, err
	}
	if err := c.engine.store.View(t.locate); err != nil {
		return nil, err
	}
	if !t.replayed {
		if err := t.commit(ctx); err != nil {
			return nil, err
		}
	}
	if t.replayed {
		if err := c.engine.store.View(t.replay); err != nil {
			return nil, err
		}
	}
	var o object
	o.capacities(c.q, t.consumed)
	return o.close(), nil
}

func newTransaction(c *call) (*transaction, error) {
	if err := checkActions(c.q); err != nil {
		return nil, err
	}
	if len(c.q.token) > maxToken {
		return nil, constraint("'"+c.q.token+"'", "clientRequestToken", "Member must have length less than or equal to 36")
	}
	t := &transaction{call: c, reasons: make([]Reason, len(c.q.actions)), digest: digest(c.q.actions)}
	for i, a := range c.q.actions {
		t.reasons[i].Code = "None"
		switch a.verb {
		case verbPut, verbUpdate, verbDelete, verbCheck:
		default:
			return nil, validation("Supplied action is %q, must be one of ConditionCheck, Put, Update, Delete", a.verb)
		}
		w, err := c.engine.newWrite(a.verb, a.request)
		if err != nil {
			return nil, err
		}
		switch {
		case a.verb == verbCheck && a.condition == nil:
			return nil, constraint("null", "transactItems.member.conditionCheck.conditionExpression", "Member must not be null")
		case a.verb == verbUpdate && a.update == nil:
			return nil, constraint("null", "transactItems.member.update.updateExpression", "Member must not be null")
		}
		t.writes = append(t.writes, w)
	}
	return t, nil
}

// locate finds the items. A key that does not fit its table cancels the transaction.
func (t *transaction) locate(r storage.Reader) error {
	if err := t.recall(r); err != nil || t.replayed {
		return err
	}
	seen := map[storage.Key]bool{}
	for i, w := range t.writes {
		switch err := w.locate(t.engine, r); {
		case err == nil:
			if seen[w.key] {
				return errSameItem
			}
			seen[w.key] = true
			t.keys = append(t.keys, w.key)
		case !t.cancelled(i, err):
			return err
		}
	}
	return t.cancellation()
}

// cancelled notes a validation error as the reason of one action. Other errors, and empty keys, are the whole
// request's.
func (t *transaction) cancelled(i int, err error) bool {
	answer := answerFor(err)
	if answer.Code != "ValidationException" || strings.HasPrefix(answer.Message, errEmptyKey) {
		return false
	}
	t.reasons[i] = Reason{Code: "ValidationError", Message: answer.Message}
	return true
}

// cancellation is the answer if any action has a reason, nil otherwise.
func (t *transaction) cancellation() error {
	if !slices.ContainsFunc(t.reasons, func(r Reason) bool { return r.Code != "None" }) {
		return nil
	}
	return cancellation(t.reasons)
}

func cancellation(reasons []Reason) *Error {
	codes := make([]string, len(reasons))
	for i, r := range reasons {
		codes[i] = r.Code
	}
	e := clientError("TransactionCanceledException", "Transaction cancelled, please refer cancellation reasons for specific reasons [%s]", strings.Join(codes, ", "))
	e.Reasons = reasons
	return e
}

// conflicted cancels because of the items that another transaction holds.
func (t *transaction) conflicted(conflicts []bool) error {
	for i, held := range conflicts {
		if held {
			t.reasons[i] = conflictReason
		}
	}
	return t.cancellation()
}

// commit holds the items from here to its end.
func (t *transaction) commit(ctx context.Context) error {
	conflicts, busy, ok := t.engine.locks.acquire(t.q.token, t.keys)
	if busy {
		return clientError("TransactionInProgressException", "The transaction with the given request token is already in progress.")
	}
	if !ok {
		return t.conflicted(conflicts)
	}
	defer t.engine.locks.release(t.q.token, t.keys)
	if t.fault.Prepared != nil {
		t.fault.Prepared(ctx)
	}
	return t.engine.store.Update(func(s storage.Writer) error {
		// Another process may have committed the same token since locate.
		if err := t.recall(s); err != nil || t.replayed {
			return err
		}
		return t.decide(s)
	})
}

// decide evaluates every action and writes all of them or none. They are billed either way.
func (t *transaction) decide(s storage.Writer) error {
	outcomes := make([]outcome, len(t.writes))
	size := 0
	for i, w := range t.writes {
		// The table may have been deleted since the items were first located.
		err := w.locate(t.engine, s)
		if err == nil {
			outcomes[i], err = w.evaluate(s)
		}
		if err != nil {
			if !t.cancelled(i, err) {
				return err
			}
			continue
		}
		size += outcomes[i].size
		t.bill(i, outcomes[i])
	}
	if size > maxTransactionBytes {
		return validation("Transaction request cannot be larger than %d bytes: its items have %d", maxTransactionBytes, size)
	}
	if err := t.cancellation(); err != nil {
		return err
	}
	for i, w := range t.writes {
		if err := w.store(t.engine, s, outcomes[i]); err != nil {
			return err
		}
	}
	if t.q.token == "" {
		return nil
	}
	now := t.engine.options.Now()
	return s.PutToken(t.q.token, t.digest, now, now.Add(-tokenLife))
}

// bill takes the units of one action, and notes its reason if it is throttled or refused.
func (t *transaction) bill(i int, out outcome) {
	w, units := t.writes[i], transactional*out.units
	if err := t.engine.limiter.take(w.key, units, t.engine.options.Now()); err != nil {
		t.reasons[i] = Reason{Code: "ThrottlingError", Message: answerFor(err).Message}
		return
	}
	t.engine.meter.wrote(units)
	t.consumed.add(w.table.Name, units)
	if out.refused {
		refusal := w.refusal(out)
		t.reasons[i] = Reason{Code: "ConditionalCheckFailed", Message: refusal.Message, Item: refusal.Item}
	}
}
