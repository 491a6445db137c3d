// Package objects reads segments wherever they are. A segment's id says where that is: an intake object, an archive object of a topic, or an item of the
// table. Readers, compaction and verify ask here by id; object names are for messages, and for people to give back. The few objects that say something of
// the log itself, its identity and its eras, are read here too.
package objects

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// Segment is which segment. Make one with Of, so that equal ones are equal.
type Segment struct {
	ID    segment.ID
	Topic segment.TopicID // of an archive segment, empty for others: they hold records of many topics
}

// Of is the segment of that id, in which the topic has records.
func Of(topic segment.TopicID, id segment.ID) Segment {
	if id.Place() != segment.Archived {
		topic = ""
	}
	return Segment{ID: id, Topic: topic}
}

// Name is the object's name, or the item's key, such as "D#3f|0123456789abcdefghij".
func (s Segment) Name() string {
	switch s.ID.Place() {
	case segment.Archived:
		return segment.ArchiveName(s.Topic, s.ID)
	case segment.InTable:
		return metadata.SmallKey(s.ID).String()
	}
	return segment.IntakeName(s.ID)
}

// Parse reads what Name printed. Anything else is segment.ErrBadName.
func Parse(name string) (Segment, error) {
	var s Segment
	if pk, sk, item := strings.Cut(name, "|"); item {
		id, err := metadata.ParseSegmentKey(metadata.Key{PK: pk, SK: sk})
		if err != nil {
			return s, fmt.Errorf("%w: %w", segment.ErrBadName, err)
		}
		s.ID = id
	} else {
		p, err := segment.ParseName(name)
		if err != nil {
			return s, err
		}
		s = Segment{ID: p.ID, Topic: p.Topic}
	}
	if got := s.Name(); got != name {
		return s, fmt.Errorf("%w: segment %s is in place %d, its name is %q", segment.ErrBadName, s.ID, s.ID.Place(), got)
	}
	return s, nil
}

// Table is what of the table has segments in it.
type Table interface {
	Small(ctx context.Context, id segment.ID) ([]byte, error)
}

// Reader reads segments of one log. Safe for concurrent use.
type Reader struct {
	bucket store.Getter
	table  Table
}

// NewReader reads from the two places.
func NewReader(bucket store.Getter, table Table) *Reader { return &Reader{bucket, table} }

// Get returns bytes [off, off+n) of the segment, as store.Getter's Get does: appended to dst[:0] where its capacity allows, n < 0 to the end,
// store.ErrShort, and store.ErrNotExist for a segment that is not there, be it no object or no item. Other errors are those of the store, or of the table.
// A segment in the table is read whole, by one strong read, whatever the range.
func (r *Reader) Get(ctx context.Context, s Segment, off, n int64, dst []byte) ([]byte, error) {
	return r.GetStream(ctx, s, off, n, dst, nil)
}

// GetStream is Get, and unless seen is nil it shows what has come of the range, as store.GetStream does.
func (r *Reader) GetStream(ctx context.Context, s Segment, off, n int64, dst []byte, seen func([]byte)) ([]byte, error) {
	if s.ID.Place() != segment.InTable {
		return store.GetStream(ctx, r.bucket, s.Name(), off, n, dst, seen)
	}
	b, err := r.small(ctx, store.OpGet, s)
	if err != nil {
		return nil, err
	}
	end, err := store.Range(off, n, int64(len(b)))
	if err != nil {
		return nil, store.Fail(store.OpGet, s.Name(), err)
	}
	if b = b[off:end:end]; len(b) <= cap(dst) {
		b = append(dst[:0], b...)
	}
	if seen != nil {
		store.Show(b, seen)
	}
	return b, nil
}

// Size is how many bytes the segment has. A segment in the table is read for it.
func (r *Reader) Size(ctx context.Context, s Segment) (int64, error) {
	if s.ID.Place() != segment.InTable {
		info, err := r.bucket.Stat(ctx, s.Name())
		return info.Size, err
	}
	b, err := r.small(ctx, store.OpStat, s)
	return int64(len(b)), err
}

func (r *Reader) small(ctx context.Context, op store.Op, s Segment) ([]byte, error) {
	b, err := r.table.Small(ctx, s.ID)
	if errors.Is(err, metadata.ErrNoSegment) {
		return nil, store.Fail(op, s.Name(), fmt.Errorf("%w: %w", store.ErrNotExist, err))
	}
	return b, err
}
