package sdk

import (
	"fmt"
	"time"
)

// Position is a place in a partition, as a Reader's start or stop: Earliest, Latest, AtOffset or AtTime.
type Position struct {
	kind   positionKind
	offset int64
	time   time.Time
}

type positionKind uint8

const (
	noPosition positionKind = iota // as a stop: none, go on with what is appended
	earliest
	latest
	atOffset
	atTime
	startFail // of a Consumer only
)

var (
	// Earliest is the log start.
	Earliest = Position{kind: earliest}
	// Latest is the end of the partition at the moment when the reader is made.
	Latest = Position{kind: latest}
)

// AtOffset is the record with this offset.
func AtOffset(offset int64) Position { return Position{kind: atOffset, offset: offset} }

// AtTime is the first record, in the order of offsets, whose index timestamp is at or after t; Latest if there is none. The index timestamp is
// the record's own, but at most an hour after it was appended (in the archive, after the last of its extent was), so that one record from the far future does
// not spoil the search.
func AtTime(t time.Time) Position { return Position{kind: atTime, time: t} }

func (p Position) String() string {
	switch p.kind {
	case earliest:
		return "earliest"
	case latest:
		return "latest"
	case atOffset:
		return fmt.Sprintf("offset %d", p.offset)
	case atTime:
		return p.time.Format(time.RFC3339Nano)
	case startFail:
		return "fail"
	}
	return "none"
}

// ResetPolicy is what a reader does when retention or a deletion of records has overtaken it.
type ResetPolicy uint8

const (
	ResetFail     ResetPolicy = iota // report a *RangeError (ErrExpired) and halt the partition
	ResetEarliest                    // go on at the log start
	ResetLatest                      // go on at the end
)

// ReaderOption changes one setting of a reader.
type ReaderOption func(*readerConfig)

// readerConfig is every setting. Defaults are in defaultReaderConfig, checks in check.
type readerConfig struct {
	partitions  []int // nil: all
	from, to    Position
	fromOffsets map[int]int64
	goesOn      bool // all before fromOffsets has been read, or is not wanted
	toOffsets   map[int]int64
	wait        time.Duration // negative: until ctx is done
	pollBytes   int
	bufferBytes int
	prefetch    int
	reset       ResetPolicy
	skipHoles   bool
	recycle     bool
}

func defaultReaderConfig(near bool) readerConfig {
	c := readerConfig{from: Earliest, wait: -1, pollBytes: 8 << 20, bufferBytes: 36 << 20, prefetch: 8}
	if near {
		c.pollBytes, c.bufferBytes, c.prefetch = 4<<20, 8<<20, 4
	}
	return c
}

// check returns a *FieldError for the first setting that makes no sense.
func (c *readerConfig) check() error {
	bad := func(field string, value any, valid string) error {
		return &FieldError{Field: field, Value: fmt.Sprint(value), Valid: valid}
	}
	switch {
	case c.from.kind == noPosition || c.from.kind == startFail:
		return bad("start", c.from, "earliest, latest, an offset or a time")
	case c.to.kind == earliest || c.to.kind == startFail:
		return bad("stop", c.to, "latest, an offset or a time")
	case c.from.kind == atOffset && c.from.offset < 0:
		return bad("start offset", c.from.offset, "0 or more")
	case c.to.kind == atOffset && c.to.offset < 0:
		return bad("stop offset", c.to.offset, "0 or more")
	case c.pollBytes < 1:
		return bad("poll bytes", c.pollBytes, "1 or more")
	case c.bufferBytes < 1:
		return bad("read buffer bytes", c.bufferBytes, "1 or more")
	case c.prefetch < 1 || c.prefetch > maxPrefetch:
		return bad("prefetch", c.prefetch, fmt.Sprintf("1 to %d", maxPrefetch))
	case c.reset > ResetLatest:
		return bad("reset policy", c.reset, "ResetFail, ResetEarliest or ResetLatest")
	}
	return nil
}

// maxPrefetch bounds the requests that one reader has open at a store.
const maxPrefetch = 256

// ReadPartitions limits the reader to these partitions. Default all that the topic has when the reader is made.
func ReadPartitions(partitions ...int) ReaderOption {
	return func(c *readerConfig) { c.partitions = partitions }
}

// From sets where every partition starts. Default Earliest. A relative start becomes a number once, in NewReader: what is appended after
// that is read, however long the first Poll is in coming.
func From(p Position) ReaderOption { return func(c *readerConfig) { c.from = p } }

// FromOffsets sets where single partitions start; the others start as From says.
func FromOffsets(offsets map[int]int64) ReaderOption {
	return func(c *readerConfig) { c.fromOffsets = offsets }
}

// goingOn says that FromOffsets are where somebody was who has read what is before them, not offsets that he was told of records.
func goingOn() ReaderOption { return func(c *readerConfig) { c.goesOn = true } }

// To makes the reader bounded: it stops before this position, in each partition, and Poll then returns io.EOF. Latest is the end as it is
// when the reader is made; so is an AtTime after the last record. Default none: the reader follows the log.
func To(p Position) ReaderOption { return func(c *readerConfig) { c.to = p } }

// ToOffsets sets where single partitions stop; the others stop, or follow, as To says.
func ToOffsets(offsets map[int]int64) ReaderOption {
	return func(c *readerConfig) { c.toOffsets = offsets }
}

// WithWait bounds how long Poll waits for a record before it returns without any. Default: until its ctx is done. 0 does not wait for records
// to be appended, only for those that are known and being fetched.
func WithWait(d time.Duration) ReaderOption {
	return func(c *readerConfig) { c.wait = max(d, 0) }
}

// WithPollBytes bounds the bytes of records (uncompressed) that one Poll returns. A single record larger than this is returned alone. Default
// 8 MiB; 4 MiB where the log is a directory.
func WithPollBytes(n int) ReaderOption { return func(c *readerConfig) { c.pollBytes = n } }

// WithReadBuffer bounds the bytes of segments (as stored) that are fetched ahead and not yet returned, and likewise the memory of batches that
// are decoded and not yet wholly returned. One extent, or one batch, larger than this is read alone; archive extents are read in
// ranges of up to half of this, or an eighth more, 64 KiB at least, and of each partition that is read there the beginning of a batch that goes on in the next range comes on
// top. All readers of a log share up to 16 MiB more, of small segments. Default 36 MiB, which is four segments as producers make them; 8 MiB where the log is a directory, whose requests are so quick
// that what counts is the processor's cache.
func WithReadBuffer(n int) ReaderOption { return func(c *readerConfig) { c.bufferBytes = n } }

// WithPrefetch bounds the range requests under way at once. Default 8; 4 where the log is a directory.
func WithPrefetch(n int) ReaderOption { return func(c *readerConfig) { c.prefetch = n } }

// OnExpired says what to do when an offset turns out to be below the log start. Default ResetFail. What was missed is told to ResetHook either
// way. An offset past the end is always an error, ErrOutOfRange.
func OnExpired(p ResetPolicy) ReaderOption { return func(c *readerConfig) { c.reset = p } }

// SkipHoles lets a partition go on after an object that should be there and is not: the *DataError is still reported, once, and the offsets
// that it names are passed over. Default: the partition halts. Data that is there but damaged always halts it.
func SkipHoles() ReaderOption { return func(c *readerConfig) { c.skipHoles = true } }

// RecycleRecords lets the reader use the memory of what Poll returned again at the next Poll. Default: records stay valid for ever.
func RecycleRecords() ReaderOption { return func(c *readerConfig) { c.recycle = true } }
