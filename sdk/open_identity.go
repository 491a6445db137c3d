package sdk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// A log is a table and a prefix that name each other: LOG|ID in the table and varve.json under the prefix hold the same identity. The table's
// is put first. So a prefix that has one while the table has none is never the trace of a crash, but somebody else's; and a table that has one while
// the prefix has none is, as long as no topic exists: a topic is created only through a log whose two identities were seen to agree.

// identify returns the log's identity, making table and prefix one log if both are empty. A table that was lost gets the bucket's.
func identify(ctx context.Context, b Backend, e env.Env, lost bool) (metadata.Identity, error) {
	var none metadata.Identity
	// The table's is read last, because it is put first: another first Open between the two reads is then not taken for somebody else's prefix.
	inBucket, bucketHas, err := readIdentity(ctx, b.Store)
	if err != nil {
		return none, err
	}
	inTable, tableHas, err := b.Table.Identity(ctx)
	if err != nil {
		return none, err
	}
	if bucketHas && !tableHas && (!lost || inBucket.Bucket != b.Bucket || inBucket.Prefix != b.Prefix) {
		return none, wrongLog(b, &inBucket, nil)
	}
	if bucketHas && !tableHas {
		if inTable, err = b.Table.PutIdentity(ctx, inBucket); err != nil {
			return none, err
		}
		tableHas = true
	}
	if !tableHas {
		if inTable, err = b.Table.PutIdentity(ctx, newIdentity(b, e)); err != nil {
			return none, err
		}
	}
	if inTable.Bucket != b.Bucket || inTable.Prefix != b.Prefix {
		return none, wrongLog(b, only(inBucket, bucketHas), &inTable)
	}
	if !bucketHas {
		if inBucket, err = completeIdentity(ctx, b, inTable); err != nil {
			return none, err
		}
	}
	return inTable, matchIdentity(b, inBucket, inTable)
}

func newIdentity(b Backend, e env.Env) metadata.Identity {
	id := metadata.Identity{Version: metadata.FormatVersion, Bucket: b.Bucket, Prefix: b.Prefix}
	binary.BigEndian.PutUint64(id.Log[:8], e.Uint64())
	binary.BigEndian.PutUint64(id.Log[8:], e.Uint64())
	return id
}

// completeIdentity puts varve.json for a table that has its identity, and returns what is there now: another Open may have been faster.
func completeIdentity(ctx context.Context, b Backend, inTable metadata.Identity) (metadata.Identity, error) {
	topics, _, err := b.Table.Topics(ctx, "", 1)
	if err != nil {
		return inTable, err
	}
	if len(topics) > 0 {
		inBucket, ok, err := readIdentity(ctx, b.Store) // again: another first Open may have put it, and then made the topic
		if err == nil && !ok {
			err = wrongLog(b, nil, &inTable)
		}
		return inBucket, err
	}
	body, err := metadata.EncodeIdentity(inTable)
	if err != nil {
		return inTable, err
	}
	err = b.Store.Put(ctx, segment.IdentityName, body)
	if errors.Is(err, store.ErrExists) {
		var ok bool
		if inTable, ok, err = readIdentity(ctx, b.Store); err == nil && !ok {
			err = fmt.Errorf("%w: %s appeared and vanished", ErrCorrupt, segment.IdentityName)
		}
	}
	return inTable, err
}

func matchIdentity(b Backend, inBucket, inTable metadata.Identity) error {
	if inBucket != inTable {
		return wrongLog(b, &inBucket, &inTable)
	}
	if inTable.Version > metadata.FormatVersion {
		return fmt.Errorf("%w: the log has format %d, this build knows up to %d: use a newer one", metadata.ErrVersion, inTable.Version, metadata.FormatVersion)
	}
	return nil
}

// checkIdentity reads both identities again: what Open saw may have been replaced since.
func (l *Log) checkIdentity(ctx context.Context) error {
	b := Backend{Bucket: l.identity.Bucket, Prefix: l.identity.Prefix}
	inTable, tableHas, err := l.table.Identity(ctx)
	if err != nil {
		return err
	}
	inBucket, bucketHas, err := readIdentity(ctx, l.store)
	switch {
	case err != nil:
		return err
	case !tableHas || inTable != l.identity:
		return wrongLog(b, &l.identity, only(inTable, tableHas))
	case !bucketHas || inBucket != l.identity:
		return wrongLog(b, only(inBucket, bucketHas), &l.identity)
	}
	return nil
}

func only(id metadata.Identity, ok bool) *metadata.Identity {
	if !ok {
		return nil
	}
	return &id
}

func wrongLog(b Backend, inBucket, inTable *metadata.Identity) error {
	return &WrongLogError{Prefix: b.Bucket + "/" + b.Prefix, InBucket: describeIdentity(inBucket), InTable: describeIdentity(inTable)}
}

func describeIdentity(id *metadata.Identity) string {
	if id == nil {
		return "none"
	}
	return fmt.Sprintf("%x of %s/%s", id.Log, id.Bucket, id.Prefix)
}

// readIdentity reads varve.json; ok is false when there is none.
func readIdentity(ctx context.Context, s store.Store) (id metadata.Identity, ok bool, err error) {
	id, err = objects.Identity(ctx, s)
	switch {
	case errors.Is(err, store.ErrNotExist):
		return id, false, nil
	case errors.Is(err, metadata.ErrCorrupt):
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return id, err == nil, err
}
