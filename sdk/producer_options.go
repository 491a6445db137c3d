package sdk

import (
	"math"
	"strconv"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/lane"
	"github.com/varvelog/varve/segment"
)

// ProducerOption changes one setting of a producer.
type ProducerOption func(*producerConfig)

// producerConfig is every setting. Defaults are in defaultProducerConfig, checks in check.
type producerConfig struct {
	lingerFloor      time.Duration
	lingerCeiling    time.Duration
	latencyTarget    time.Duration // 0: none
	requestBudget    float64       // commits per second; 0: none
	segmentBytes     int
	flushBytes       int // encoded, uncompressed, that one flush must not exceed, and its records; over HTTP it becomes requests of bounded size
	flushRecords     int
	smallSegments    int // bytes, 0: none
	bufferBytes      int
	maxInFlight      int
	deliveryDeadline time.Duration
	codec            segment.Codec
	partitioner      Partitioner
}

func defaultProducerConfig() producerConfig {
	return producerConfig{
		lingerFloor:      5 * time.Millisecond,
		lingerCeiling:    250 * time.Millisecond,
		segmentBytes:     8 << 20,
		flushBytes:       math.MaxInt,
		flushRecords:     math.MaxInt,
		bufferBytes:      192 << 20,
		maxInFlight:      8,
		deliveryDeadline: 2 * time.Minute,
		codec:            segment.Zstd,
		partitioner:      KeyPartitioner(),
	}
}

// check returns a *FieldError for the first setting that makes no sense.
func (c *producerConfig) check() error {
	bad := func(field string, value any, valid string) error {
		return &FieldError{Field: field, Value: formatSetting(value), Valid: valid}
	}
	switch {
	case c.lingerFloor < 0:
		return bad("linger floor", c.lingerFloor, "0 or more")
	case c.lingerCeiling < c.lingerFloor:
		return bad("linger ceiling", c.lingerCeiling, "at least the floor, "+c.lingerFloor.String())
	case c.latencyTarget < 0:
		return bad("latency target", c.latencyTarget, "0 (none) or more")
	case c.requestBudget < 0 || c.requestBudget > 0 && c.latencyTarget > 0:
		return bad("request budget", c.requestBudget, "0 (none) or more, and not together with a latency target")
	case c.segmentBytes < minSegmentBytes || c.segmentBytes > maxSegmentBytes:
		return bad("segment bytes", c.segmentBytes, "64 KiB to 256 MiB")
	case c.smallSegments < 0 || c.smallSegments > metadata.MaxSmallBytes:
		return bad("small segments", c.smallSegments, "0 (none) to 256 KiB")
	case c.bufferBytes < 1:
		return bad("buffer bytes", c.bufferBytes, "1 or more")
	case c.maxInFlight < 1 || c.maxInFlight > 256:
		return bad("flushes in flight", c.maxInFlight, "1 to 256")
	case c.deliveryDeadline <= 0:
		return bad("delivery deadline", c.deliveryDeadline, "more than 0")
	case c.codec > segment.Zstd:
		return bad("compression", int(c.codec), "one of the codecs of package segment")
	case c.partitioner == nil:
		return bad("partitioner", "nil", "a partitioner")
	}
	return nil
}

// settleBudget is how long after the delivery deadline a commit whose outcome is unknown may still be settled.
func (c *producerConfig) settleBudget() time.Duration {
	return min(lane.DefaultSettleBudget, c.deliveryDeadline/4)
}

const (
	minSegmentBytes = 64 << 10
	maxSegmentBytes = 256 << 20 // one PUT, held in memory while it is sent
)

func formatSetting(v any) string {
	switch v := v.(type) {
	case time.Duration:
		return v.String()
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case int:
		return strconv.Itoa(v)
	case string:
		return v
	}
	return "?"
}

// WithLinger bounds how long a flush waits for more records after its first. Default 5 ms to 250 ms. Between the two
// the wait adapts: cost follows the number of flushes, not bytes (a flush per second is about $17 a month), so it grows
// while segments stay small or the table throttles, and shrinks when bytes fill them. Equal values fix it; 0 and 0
// flushes at once.
func WithLinger(floor, ceiling time.Duration) ProducerOption {
	return func(c *producerConfig) { c.lingerFloor, c.lingerCeiling = floor, ceiling }
}

// WithLatencyTarget lets the linger take whatever of d the put and the commit leave over, as measured, still between
// floor and ceiling: the fewest requests for an acknowledgement within about d. Default none. Excludes
// WithRequestBudget.
func WithLatencyTarget(d time.Duration) ProducerOption {
	return func(c *producerConfig) { c.latencyTarget = d }
}

// WithRequestBudget keeps the producer at about this many commits per second, over all lanes, by lingering as long as
// that takes: it may go beyond the ceiling. Segments that bytes fill go out regardless. Default none. Excludes
// WithLatencyTarget.
func WithRequestBudget(commitsPerSecond float64) ProducerOption {
	return func(c *producerConfig) { c.requestBudget = commitsPerSecond }
}

// WithSegmentBytes flushes as soon as this many bytes (uncompressed) are waiting. Default 8 MiB, from 64 KiB to 256
// MiB. More than half of the buffer makes uploads and filling take turns. Over HTTP it is at most 2 MiB: a request is.
func WithSegmentBytes(n int) ProducerOption {
	return func(c *producerConfig) { c.segmentBytes = n }
}

// WithSmallSegments stores a flush that comes to at most this many bytes, compressed, in the table instead of the bucket: it is acknowledged after two
// round trips to the table, in milliseconds where a PUT takes tens of them. Compaction moves it to the bucket. Every started KiB is a write unit, and one
// more when it is deleted, so that up to about 4 KB this costs no more than a PUT. Default 4,000 on aws://, where that is so; none on file:// and mem://,
// where a file is as fast and what is written to the table waits its turn. At most 256 KiB; 0 is none.
func WithSmallSegments(n int) ProducerOption {
	return func(c *producerConfig) { c.smallSegments = n }
}

// WithBufferBytes bounds the memory of records that were accepted and whose promises were not called, those being
// uploaded included. A record takes twice its size, because its bytes exist as the caller's and as encoded, and about
// 200 bytes; a flush takes 16 KiB. When the buffer is full everything waiting is flushed at once, and Produce waits for
// room. A single record larger than this is accepted alone. Default 192 MiB: eight full segments on their way, one that gathers, and some to spare.
func WithBufferBytes(n int) ProducerOption {
	return func(c *producerConfig) { c.bufferBytes = n }
}

// WithMaxInFlight bounds how many flushes are uploaded at once. Commits of a lane are in order all the same. While all
// are busy, records gather in the next one. Default 8.
func WithMaxInFlight(n int) ProducerOption {
	return func(c *producerConfig) { c.maxInFlight = n }
}

// WithDeliveryDeadline is how long a record may wait and be tried, counted from the first record of its flush. Then it
// fails with ErrTimedOut, which says that it is not in the log. If the answer to its commit was lost, up to a quarter
// of the deadline more, at most 30 s, goes into finding out; ErrUnknown says that this failed too. Default 2 minutes.
func WithDeliveryDeadline(d time.Duration) ProducerOption {
	return func(c *producerConfig) { c.deliveryDeadline = d }
}

// WithCompression sets the codec of record batches. Default zstd at its fastest. A batch that does not get smaller is
// stored uncompressed.
func WithCompression(codec segment.Codec) ProducerOption {
	return func(c *producerConfig) { c.codec = codec }
}

// WithPartitioner sets how a record's partition is chosen. Default KeyPartitioner.
func WithPartitioner(p Partitioner) ProducerOption {
	return func(c *producerConfig) { c.partitioner = p }
}
