// Package segment is varve's bytes: Kafka record batches (format v2), the immutable segment objects that
// hold them, segment ids and object names. It knows no network, clock or table; every decoder bounds a
// length before it allocates and tells corrupt, unknown version and too large apart.
//
// docs/format.md has the byte tables.
package segment

import "fmt"

// LogID identifies one log: 16 random bytes.
type LogID [16]byte

// TopicID identifies one creation of a topic: 12 characters of 0-9a-v, random. A topic that is deleted and
// created again has another.
type TopicID string

// Validate reports ErrBadID unless the id is 12 characters of 0-9a-v.
func (t TopicID) Validate() error {
	if len(t) != 12 {
		return fmt.Errorf("%w: topic id %q has %d characters, not 12", ErrBadID, clip(string(t)), len(t))
	}
	for _, c := range []byte(t) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'v') {
			return fmt.Errorf("%w: topic id %q has a character outside 0-9a-v", ErrBadID, t)
		}
	}
	return nil
}

// Header is a record header. Names may repeat and be empty; a nil Value is null, which is not empty.
type Header struct {
	Key   string
	Value []byte
}

// Record is one record. A nil Key or Value is null, which is not the same as empty. Timestamp is in
// milliseconds since 1970. Offset is set when read.
type Record struct {
	Offset    int64
	Timestamp int64
	Key       []byte
	Value     []byte
	Headers   []Header
}

// Codec is a compression codec, numbered as in the attributes of a record batch.
type Codec uint8

const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
	codecs = iota
)

var codecNames = [codecs]string{"none", "gzip", "snappy", "lz4", "zstd"}

// String is Kafka's name of the codec.
func (c Codec) String() string {
	if c >= codecs {
		return fmt.Sprintf("codec %d", uint8(c))
	}
	return codecNames[c]
}

// TimeType says whose clock a batch's timestamps are, numbered as in the attributes of a record batch.
type TimeType uint8

const (
	CreateTime    TimeType = iota // the producer's
	LogAppendTime                 // the batch's MaxTimestamp stands for every record
)
