package sdk

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/metadata"
)

// Prepared is varve's part of a transaction that the application sends: records to be appended (Producer.Prepare), or offsets to be committed
// (Consumer.PrepareCommit), together with the application's own items, all or none. The application adds Items to its TransactWriteItems, sends that
// with its own client, in the account and region of the log's table, and calls Done with what the client returned.
//
// Nothing goes wrong if it crashes at any moment, sends late, repeatedly or never: the items can be applied once at most, and all or none of them. Each
// Prepared is ended by Done or Abandon. Its methods are for one goroutine at a time.
type Prepared struct {
	items []types.TransactWriteItem
	what  preparation
	over  bool
	told  error // by Done, since over
}

// preparation is what is prepared: records or offsets.
type preparation interface {
	// expired is why the items must not be sent any more, or nil.
	expired() error
	// settle finds out what became of the transaction, sent being what its client said. Unless it is ErrUnknown, this is for good.
	settle(ctx context.Context, sent error) error
	// release gives up what it holds of this process. It may be called again.
	release()
}

// Items are the actions to be added to the transaction, which may have 100 and 4 MB in all: one for each lane (up to 64 partitions; 8 where the topic
// was created so) that is appended to, or whose offsets are committed; at most 99. No two actions of a transaction may concern one item, so what two
// Prepared of one transaction append must be to different lanes. Ten minutes after Prepare they must not be sent any more, and Items is ErrTimedOut.
func (p *Prepared) Items() ([]types.TransactWriteItem, error) {
	if p.over {
		return nil, fmt.Errorf("items of a transaction that is over: %w", ErrClosed)
	}
	if err := p.what.expired(); err != nil {
		return nil, err
	}
	return slices.Clone(p.items), nil
}

// Done says that the transaction was sent, err being what its client returned, and finds out what became of it. nil: applied. A *NotAppliedError (ErrRefused): it
// was not, and never will be, although an attempt may still be under way; it may be prepared anew. ErrUnknown: it could not be found out in time, and Done
// may be called again, where records were prepared.
//
// An error of the client is never taken for an outcome, since clients repeat what they send in silence: a repeat may be refused of an attempt that is
// applied later. So each costs a read and a write of varve's, and an error that a condition of the application's own brought about does too.
func (p *Prepared) Done(ctx context.Context, err error) error {
	if p.over {
		return p.told
	}
	told := p.what.settle(ctx, err)
	p.what.release()
	if !errors.Is(told, ErrUnknown) {
		p.over, p.told = true, told
	}
	return told
}

// Abandon says that the transaction was not sent and will not be. It sends nothing.
func (p *Prepared) Abandon() {
	if !p.over {
		p.over, p.told = true, fmt.Errorf("abandoned: %w", ErrClosed)
		p.what.release()
	}
}

// NotAppliedError is a transaction of the application's that was not applied, and never will be. It is ErrRefused and Err.
type NotAppliedError struct {
	// Reason is what the log has against it by now; preparing anew mends all of it. "epoch": an epoch was raised, because the topic's configuration has changed
	// or another writer settled something. "floor": a sweep has passed the segment's id. "full": the lane's head was full; Done has spilled it. "spilled": so many
	// others have appended since that a transaction that was sent twice could not be told any more. "": the log has nothing against it, and Err says more.
	Reason string
	Err    error // what the client returned; nil if that was success
}

func (e *NotAppliedError) Error() string {
	switch {
	case e.Err == nil:
		return "transaction not applied: its client says that it was, but it did not have the items of this log, or went to another account or region"
	case e.Reason == "":
		return fmt.Sprintf("transaction not applied: %v", e.Err)
	}
	return fmt.Sprintf("transaction not applied: the log refuses it (%s): %v", e.Reason, e.Err)
}

// Unwrap makes it ErrRefused and the client's error.
func (e *NotAppliedError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrRefused}
	}
	return []error{ErrRefused, e.Err}
}

// unsettled is ErrUnknown, by the error that left it so and the client's.
func unsettled(err, sent error) error {
	if !errors.Is(err, ErrUnknown) {
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return fmt.Errorf("%w; the transaction's client: %w", err, sent)
}

// transactable is a table whose writes others can send, in transactions of theirs.
type transactable interface {
	Items(commits []metadata.Commit, offsets []metadata.StepOffsets) ([]types.TransactWriteItem, error)
}

func (l *Log) transactable() (transactable, error) {
	if t, ok := l.table.(transactable); ok {
		return t, nil
	}
	return nil, fmt.Errorf("items for a transaction: %w: the log must be opened on its DynamoDB table itself", ErrNotSupported)
}
