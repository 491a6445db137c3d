package sdk

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/group"
)

// commitFinished commits what is finished and not committed yet.
func (c *Consumer) commitFinished(ctx context.Context) error {
	return c.commitWhere(ctx, func(o *ownership) int64 { return o.finished })
}

// Commit commits everything that Poll has returned so far, whether it is finished or not. Partitions that are not held any more are named by the error
// (ErrNotHeld), the others are committed.
func (c *Consumer) Commit(ctx context.Context) error {
	return c.commitWhere(ctx, func(o *ownership) int64 { return o.delivered })
}

func (c *Consumer) commitWhere(ctx context.Context, next func(*ownership) int64) error {
	var offsets []group.Offset
	c.mu.Lock()
	for p, o := range c.owned {
		if n := next(o); n > o.committed {
			offsets = append(offsets, group.Offset{Partition: p, Lease: o.lease, Offset: n})
		}
	}
	c.mu.Unlock()
	return c.commit(ctx, offsets)
}

// CommitOffset is an offset to commit: of the next record to be read. Metadata, at most 256 bytes of UTF-8, is kept with it.
type CommitOffset struct {
	Offset   int64
	Metadata string
}

// check returns a *FieldError for what cannot be committed for any partition.
func (o CommitOffset) check(tp TopicPartition) error {
	bad := func(field, value, valid string) error {
		return &FieldError{Topic: tp.Topic, Partition: tp.Partition, Field: field, Value: value, Valid: valid}
	}
	switch {
	case o.Offset < 0:
		return bad("offset", strconv.FormatInt(o.Offset, 10), "0 or more")
	case len(o.Metadata) > metadata.MaxCommitMetadata || !utf8.ValidString(o.Metadata):
		return bad("metadata", o.Metadata, fmt.Sprintf("at most %d bytes of UTF-8", metadata.MaxCommitMetadata))
	}
	return nil
}

// CommitOffsets commits offsets of partitions that are held. One that is lower than what is committed is ErrBehind, one that is not held ErrNotHeld, one that
// makes no sense a *FieldError; the others are committed. An offset past the partition's end is taken as it is: nobody looks. Who begins there is told so
// (ErrOutOfRange), once, and nothing is read before a Seek or a reset.
func (c *Consumer) CommitOffsets(ctx context.Context, offsets map[TopicPartition]CommitOffset) error {
	wanted, failed := c.wanted(offsets)
	return errors.Join(failed, c.commit(ctx, wanted))
}

func (c *Consumer) commit(ctx context.Context, offsets []group.Offset) error {
	if len(offsets) == 0 {
		return nil
	}
	done, err := c.member.Commit(ctx, offsets)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range done {
		if own := c.owned[o.Partition]; own != nil && own.lease == o.Lease {
			own.committed = max(own.committed, o.Offset)
		}
	}
	if err != nil {
		return groupError(c.group, err)
	}
	return nil
}
