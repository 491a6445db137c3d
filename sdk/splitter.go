package sdk

import (
	"fmt"

	"github.com/varvelog/varve/metadata/walk"
	"github.com/varvelog/varve/segment"
)

const (
	batchHeaderBytes = 61
	// maxSplitBatch is the longest batch that is put together from several ranges: one with as many bytes as a decoder takes, and a little.
	maxSplitBatch = 65 << 20
)

// splitter cuts an extent into its batches, from bytes that come range by range wherever those end, and sees to it that together the batches are what the
// index says: as many bytes, as many records, each at its place. So bytes of another segment, sound in themselves, are not taken for the extent's.
type splitter struct {
	extent walk.Extent
	passed
	rest  []byte // bytes that were added and not cut yet
	carry []byte // before them: the beginning of a batch that goes on in them, or in what is added next
}

// passed is what a splitter knows of the batches that it has cut.
type passed struct {
	at     int64 // their bytes
	next   int64 // least offset of the next batch
	count  int64 // their records
	latest int64 // their largest timestamp, 0 at least
}

func newSplitter(e walk.Extent) *splitter { return &splitter{extent: e, passed: passed{next: e.Base}} }

// add adds the bytes that follow those added before.
func (s *splitter) add(b []byte) {
	if len(s.rest) == 0 {
		s.rest = b
	} else {
		s.rest = append(s.rest[:len(s.rest):len(s.rest)], b...)
	}
}

// done tells whether the extent was cut up wholly.
func (s *splitter) done() bool { return s.at == s.extent.Bytes }

// cut cuts the next batch off and returns its first offset. The batch is nil when more bytes have to be added before. After an error nothing can be cut.
func (s *splitter) cut() (batch []byte, h segment.BatchHeader, base int64, err error) {
	batch, err = s.whole()
	if batch == nil || err != nil {
		return nil, h, 0, err
	}
	if h, err = segment.ParseBatchHeader(batch); err == nil {
		base, err = s.pass(&h)
	}
	return batch, h, base, err
}

// whole is the bytes of the next batch.
func (s *splitter) whole() (batch []byte, err error) {
	left := s.extent.Bytes - s.at
	if len(s.carry) == 0 && int64(len(s.rest)) == left {
		batch, s.rest, err = segment.SplitBatch(s.rest)
		return batch, err
	}
	first := s.ahead(min(batchHeaderBytes, left))
	if first == nil {
		return nil, nil
	}
	h, err := segment.ParseBatchHeader(first)
	switch {
	case err != nil:
		return nil, err
	case int64(h.Length) > left:
		return nil, fmt.Errorf("%w: batch of %d bytes, the extent has %d left", segment.ErrCorrupt, h.Length, left)
	case h.Length > maxSplitBatch:
		return nil, fmt.Errorf("%w: batch of %d bytes, limit %d", segment.ErrTooLarge, h.Length, maxSplitBatch)
	}
	if batch = s.ahead(int64(h.Length)); batch == nil {
		return nil, nil
	}
	if len(s.carry) > 0 {
		s.carry = nil
	} else {
		s.rest = s.rest[h.Length:]
	}
	return batch, nil
}

// ahead is the next n bytes, which are not taken away, or nil while they are not all there.
func (s *splitter) ahead(n int64) []byte {
	if len(s.carry) == 0 && int64(len(s.rest)) >= n {
		return s.rest[:n:n]
	}
	more := min(max(n-int64(len(s.carry)), 0), int64(len(s.rest)))
	s.carry = append(s.carry, s.rest[:more]...)
	if s.rest = s.rest[more:]; len(s.rest) == 0 {
		s.rest = nil // for the next bytes may be long in coming, and it keeps all of these
	}
	if int64(len(s.carry)) < n {
		return nil
	}
	return s.carry[:n:n]
}

// pass takes the next batch into the account, and returns its first offset.
func (s *splitter) pass(h *segment.BatchHeader) (base int64, err error) {
	e := &s.extent
	base = h.BaseOffset
	if !e.Archived() {
		base += e.Base
		if base != s.next || h.LastOffsetDelta != h.Count-1 {
			return base, fmt.Errorf("%w: batch of records %d to %d, with %d of them, where record %d should be",
				segment.ErrCorrupt, h.BaseOffset, h.BaseOffset+int64(h.LastOffsetDelta), h.Count, s.count)
		}
	}
	next := base + int64(h.LastOffsetDelta) + 1
	if base < s.next || e.Archived() && next > e.End {
		return base, fmt.Errorf("%w: batch with offsets %d to %d, possible are %d to %d", segment.ErrCorrupt, base, next-1, s.next, e.End-1)
	}
	s.at, s.next, s.count, s.latest = s.at+int64(h.Length), next, s.count+int64(h.Count), max(s.latest, h.MaxTimestamp)
	if s.done() {
		return base, s.total()
	}
	return base, nil
}

// total compares the sums with the index. The latest time, in milliseconds, tells apart even intake segments that are alike in all else; in the archive,
// whose batches may have lost the record that it was of, it is a bound.
func (s *splitter) total() error {
	e := &s.extent
	latest := indexTime(e, s.latest)
	switch {
	case s.count != e.Count:
		return fmt.Errorf("%w: %d records, the index says %d", segment.ErrCorrupt, s.count, e.Count)
	case latest < e.MaxTime, latest != e.MaxTime && !e.Archived():
		return fmt.Errorf("%w: latest time %d, the index says %d", segment.ErrCorrupt, latest, e.MaxTime)
	}
	return nil
}

// checkExtent goes over the headers of all batches of an extent.
func checkExtent(b []byte, e walk.Extent) error {
	s := newSplitter(e)
	if s.add(b); s.done() {
		return s.total()
	}
	for !s.done() {
		if _, _, _, err := s.cut(); err != nil {
			return err
		}
	}
	return nil
}
