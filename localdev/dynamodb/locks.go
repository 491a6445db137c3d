package dynamodb

import (
	"sync"

	"github.com/varvelog/varve/localdev/dynamodb/storage"
)

// locks are the items and tokens of the transactions between prepare and commit. Nobody waits for them: who meets
// one gets a conflict.
type locks struct {
	mu     sync.Mutex
	items  map[storage.Key]bool
	tokens map[string]bool
}

// acquire holds all keys and the token, or none of them: then conflicts says which keys were held already, and busy
// whether the token was.
func (l *locks) acquire(token string, keys []storage.Key) (conflicts []bool, busy, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if token != "" && l.tokens[token] {
		return nil, true, false
	}
	conflicts = make([]bool, len(keys))
	ok = true
	for i, k := range keys {
		if l.items[k] {
			conflicts[i], ok = true, false
		}
	}
	if !ok {
		return conflicts, false, false
	}
	if l.items == nil {
		l.items, l.tokens = map[storage.Key]bool{}, map[string]bool{}
	}
	for _, k := range keys {
		l.items[k] = true
	}
	if token != "" {
		l.tokens[token] = true
	}
	return nil, false, true
}

func (l *locks) release(token string, keys []storage.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range keys {
		delete(l.items, k)
	}
	delete(l.tokens, token)
}

func (l *locks) held(k storage.Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.items[k]
}

// conflictReason is why a transaction is cancelled that meets another.
var conflictReason = Reason{Code: "TransactionConflict", Message: "Transaction is ongoing for the item"}

// errConflict is what a single write gets that meets a transaction.
func errConflict() error {
	return clientError("TransactionConflictException", "%s", conflictReason.Message)
}
