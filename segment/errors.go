package segment

import (
	"errors"
	"fmt"
)

// Conditions. Decoders report one of the first three, wrapped in a FormatError.
var (
	ErrCorrupt  = errors.New("corrupt")             // bytes that no version writes
	ErrVersion  = errors.New("unsupported version") // a version, flag or feature that this build does not know
	ErrTooLarge = errors.New("too large")           // well formed, but over a limit

	// ErrTransactional is a batch of a Kafka transaction, or a control batch. Whether its records count is
	// said by markers elsewhere, which varve does not keep. It is an ErrVersion too.
	ErrTransactional = fmt.Errorf("%w: transactional or control batch", ErrVersion)

	// ErrFull is a record that has no room in the open batch but would have in an empty one.
	ErrFull = errors.New("batch is full")
	// ErrEmpty is a batch or segment without records, which is never written.
	ErrEmpty = errors.New("no records")
	// ErrOrder is an extent that was added to a segment out of order, or does not fit its kind of segment.
	ErrOrder = errors.New("extent out of place")

	// ErrShortTail is the end of an object that holds less than the footer: read more of it, FooterSize says how much.
	ErrShortTail = errors.New("not all of the footer")

	ErrBadCodec = errors.New("no such codec or level")
	ErrBadID    = errors.New("malformed id")
	ErrBadName  = errors.New("malformed object name")
)

// FormatError says where a decoder stopped and why. Err is ErrCorrupt, ErrVersion, ErrTooLarge,
// ErrTransactional or ErrShortTail.
type FormatError struct {
	Part   string // what was being read: "batch", "record", "segment", "footer", "trailer"
	Field  string // which of its fields, as docs/format.md calls it
	At     int64  // byte position within what the decoder was given; for records in that of the decompressed records
	Record int    // number of the record in its batch, from 0; -1 outside records
	Reason string // what was found, and what is valid
	Err    error
}

func (e *FormatError) Error() string {
	part := e.Part
	if e.Record >= 0 {
		part = fmt.Sprintf("record %d", e.Record)
	}
	return fmt.Sprintf("%s, %s at byte %d: %v: %s", part, e.Field, e.At, e.Err, e.Reason)
}

func (e *FormatError) Unwrap() error { return e.Err }

func malformed(err error, part, field string, at int64, format string, args ...any) error {
	return &FormatError{Part: part, Field: field, At: at, Record: -1, Reason: fmt.Sprintf(format, args...), Err: err}
}
