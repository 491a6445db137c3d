package segment

const (
	defaultRecordBytes = 64 << 20
	defaultRecords     = 1 << 20
	defaultHeaders     = 1 << 20
)

// Limits bound what one batch may make a reader allocate. A field that is 0 has its default. The builder
// keeps to the defaults, so whatever it writes can be read with them.
type Limits struct {
	RecordBytes int // decompressed records of a batch; default 64 MiB
	Records     int // records in a batch, 88 bytes each once decoded; default 1,048,576
	Headers     int // record headers in a batch, 40 bytes each once decoded; default 1,048,576
}

// DefaultLimits are the limits that hold where nothing else is said.
func DefaultLimits() Limits {
	return Limits{RecordBytes: defaultRecordBytes, Records: defaultRecords, Headers: defaultHeaders}
}

func (l Limits) orDefaults() Limits {
	d := DefaultLimits()
	if l.RecordBytes > 0 {
		d.RecordBytes = l.RecordBytes
	}
	if l.Records > 0 {
		d.Records = l.Records
	}
	if l.Headers > 0 {
		d.Headers = l.Headers
	}
	return d
}

// RecordSize is the size that a record limit (max.message.bytes) is compared with, in bytes:
//
//	len(key) + len(value) + for each header: len(name) + len(value) + 2
//
// Null counts as empty. The 2 is the least that a header takes when it has neither name nor value, so that
// no number of headers is free. Neither the batch around the record nor its compression changes the size.
func RecordSize(r *Record) int {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value) + minHeaderSize
	}
	return n
}
