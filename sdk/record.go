package sdk

import (
	"time"

	"github.com/varvelog/varve/segment"
)

// Header is a record header. Names may repeat and be empty; a nil Value is null, which is not empty.
type Header = segment.Header

// Record is one record of a topic. A nil Key or Value is null, which is not the same as empty.
//
// To produce one, set Topic, and Partition only with an explicit partitioner; a zero Timestamp becomes the time at which the producer
// accepted it. The producer does not keep Key, Value and Headers after the record's promise was called, and they must not change before that.
type Record struct {
	Topic     string
	Partition int
	Offset    int64     // set when read, and when produced
	Timestamp time.Time // to the millisecond
	Key       []byte
	Value     []byte
	Headers   []Header
}
