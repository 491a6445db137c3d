// Package wire is what goes over HTTP between varve's functions and their clients: paths, headers, JSON shapes, error codes, and the frames of the binary form. Both
// sides import it, so that they agree; docs/openapi.yaml describes it to everybody else.
//
// A body of the type BatchesType is frames, one after another, each of them
//
//	partition int32 (-1: chosen by key) · length uint32 · that many bytes of one Kafka RecordBatch v2
//
// in big endian.
package wire

import (
	"encoding/binary"
	"fmt"
)

// Types of bodies.
const (
	JSONType    = "application/json"
	BatchesType = "application/vnd.varve.batches"
)

// Headers.
const (
	ProducerIDHeader = "Varve-Producer-Id"       // of a request that a retry applies once: decimal int64
	SequenceHeader   = "Varve-Producer-Sequence" // with it: 1, 2, 3 … of this producer in this lane
	IfEndHeader      = "Varve-If-End-Offset"     // with both: append only if the partition ends there,
	IfTokenHeader    = "Varve-If-Token"          // and has this fencing token
	NextHeader       = "Varve-Next-Offset"
	StartHeader      = "Varve-Start-Offset"
	EndHeader        = "Varve-End-Offset"
	PositionsHeader  = "Varve-Positions" // partition:next:start:end, separated by commas
	TopicIDHeader    = "Varve-Topic-Id"  // of the topic that records are of; in a request to append, which must be no other of that name
)

// Limits. They are the same on a laptop and in a function, whose platform takes no more.
const (
	MaxBody      = 4 << 20 // bytes of a request's body
	MaxRecords   = 20_000  // records of one request
	MaxInflated  = 4 << 20 // bytes of a request's records when they are decompressed
	MaxFetch     = 4 << 20 // bytes of records that one answer has, unless one batch or record is larger
	MaxAnswer    = 6000000 // bytes of an answer in JSON: what Lambda returns of one that is not streamed, and a little to spare
	MaxListed    = 1000    // names of one answer
	MaxPositions = 256     // partitions of one fetch
	MaxCommits   = 4096    // partitions of one commit
	Version      = 1       // of the whole of it
)

// ByKey stands in a frame for a partition that the record's key decides.
const ByKey = -1

const frameHeader = 8

// AppendFrame appends a frame to dst.
func AppendFrame(dst []byte, partition int32, batch []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(partition))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(batch)))
	return append(dst, batch...)
}

// FrameError is bytes that are no frames.
type FrameError struct {
	At     int // byte of the body at which the frame begins
	Reason string
}

func (e *FrameError) Error() string {
	return fmt.Sprintf("frame at byte %d: %s; a frame is a partition (int32), a length (uint32) and that many bytes of a record batch, big endian", e.At, e.Reason)
}

// Frames cuts a body into its frames and calls each with them in turn, until it fails. The batches alias the body, and nobody has looked at them yet. What is no
// frame is a *FrameError.
func Frames(body []byte, each func(partition int32, batch []byte) error) error {
	for at := 0; at < len(body); {
		rest := body[at:]
		if len(rest) < frameHeader {
			return &FrameError{at, fmt.Sprintf("%d bytes are left, its header has %d", len(rest), frameHeader)}
		}
		partition, n := int32(binary.BigEndian.Uint32(rest)), int64(binary.BigEndian.Uint32(rest[4:]))
		if n > int64(len(rest)-frameHeader) {
			return &FrameError{at, fmt.Sprintf("length %d, but %d bytes follow", n, len(rest)-frameHeader)}
		}
		if partition < ByKey {
			return &FrameError{at, fmt.Sprintf("partition %d; it is 0 or more, or -1 for the one that the key decides", partition)}
		}
		if err := each(partition, rest[frameHeader:frameHeader+n:frameHeader+n]); err != nil {
			return err
		}
		at += frameHeader + int(n)
	}
	return nil
}
