package dynamodb

import (
	"context"
	"errors"
	"time"
)

// Hook sees every call before the engine performs it and says what is to go wrong with it. It runs in the
// caller's goroutine, no lock is held, and it may block: this is how a request is delayed. ctx is the request's;
// once it is done the call fails as a transport would, without having been performed. nil faults nothing.
// It is called concurrently.
type Hook func(ctx context.Context, call Call) Fault

// Call is one request as the engine decoded it. It must not be changed.
type Call struct {
	// Op is the operation without version, e.g. "UpdateItem".
	Op string
	// Table is the table of a single-table operation, and of the first key of a batch or transaction.
	Table string
	// Keys are the items that the call names, in the order of the request. A Query has one, without sort key;
	// Scan and the table operations have none. Keys that do not fit their table's schema are left out.
	Keys []Key
	// Consistent is false for a read that may be stale.
	Consistent bool
	// Body is the request's JSON.
	Body []byte
}

// Key is the primary key of one item: text as it is, a number in canonical decimal, binary as raw bytes.
type Key struct {
	Table     string
	Partition string
	Sort      string // empty if the table has no sort key
}

// Fault is what befalls one call. The zero Fault is none. Its fields combine: {Late: w, Reply: ErrNoAnswer} is a
// request that arrives long after its sender has given up.
type Fault struct {
	// Skip: the call is never performed.
	Skip bool
	// Late: the call is performed when Late returns, in a goroutine of its own; Reply must say what the caller
	// sees instead of the answer. Its context ends when the engine is closed; then nothing is performed.
	Late func(ctx context.Context)
	// Reply replaces the answer: *Error is answered by the service, ErrNoAnswer keeps the caller waiting until
	// its context ends, any other error is what the transport returns (ErrConnectionLost, for one). nil with
	// Skip or Late means ErrConnectionLost.
	Reply error
	// Prepared is called while a TransactWriteItems holds its items: others that touch them meet a conflict.
	Prepared func(ctx context.Context)
	// Hold is called after the call was performed and before it is answered.
	Hold func(ctx context.Context)
	// Stale: an eventual GetItem, BatchGetItem, Query or Scan sees the state of that long ago, as far back as
	// Options.History reaches.
	Stale time.Duration
	// Unprocessed is how many of the actions of a BatchWriteItem or keys of a BatchGetItem, counted from the
	// end, are handed back unprocessed.
	Unprocessed int
}

// ErrConnectionLost is a transport error: nobody knows whether the request arrived.
var ErrConnectionLost = errors.New("dynamodb: connection reset by the hook")

// ErrNoAnswer lets the caller wait until its context ends.
var ErrNoAnswer = errors.New("dynamodb: no answer, by the hook")

// Throttle refuses the call as a hot key would; nothing is performed.
func Throttle() Fault { return Fault{Skip: true, Reply: keyRangeThrottled("")} }

// Conflict refuses the call as if another transaction held its items: TransactionConflictException, or for a
// transaction TransactionCanceledException with that reason for its first action. Nothing is performed.
func Conflict(call Call) Fault {
	if call.Op != "TransactWriteItems" && call.Op != "TransactGetItems" {
		return Fault{Skip: true, Reply: errConflict()}
	}
	reasons := make([]Reason, max(1, len(call.Keys)))
	for i := range reasons {
		reasons[i] = Reason{Code: "None"}
	}
	reasons[0] = conflictReason
	return Fault{Skip: true, Reply: cancellation(reasons)}
}

// ServerError answers 500 without performing the call. (A Fault with only Reply: InternalServerError() answers
// 500 although the call was performed.)
func ServerError() Fault { return Fault{Skip: true, Reply: InternalServerError()} }

// Dropped loses the request: it is never performed, and the connection breaks.
func Dropped() Fault { return Fault{Skip: true, Reply: ErrConnectionLost} }

// AnswerLost performs the call; its answer is lost with the connection.
func AnswerLost() Fault { return Fault{Reply: ErrConnectionLost} }

// AppliedLate breaks the connection at once and performs the call when wait returns.
func AppliedLate(wait func(ctx context.Context)) Fault {
	return Fault{Late: wait, Reply: ErrConnectionLost}
}

// StaleBy lets an eventual read see the state of d ago.
func StaleBy(d time.Duration) Fault { return Fault{Stale: d} }
