package forward

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/varvelog/varve/sdk"
)

// message makes a message of a record.
func (r *run) message(ctx context.Context, record *sdk.Record) (m Message, err error) {
	body, err := record.MarshalJSON()
	if err != nil {
		return Message{}, err
	}
	if m.Body = allowed(body); len(m.Body) > r.maxBytes {
		return Message{}, fmt.Errorf("%w: %d bytes as JSON, at most %d", ErrTooLarge, len(m.Body), r.maxBytes)
	}
	if !r.queue.FIFO() {
		return m, nil
	}
	id, err := r.topicID(ctx, record.Topic)
	if err != nil {
		return Message{}, err
	}
	m.Group = group(record)
	m.ID = fmt.Sprintf("%s/%d/%d", id, record.Partition, record.Offset)
	return m, nil
}

// allowed escapes the two characters of JSON that a message may not have.
func allowed(body []byte) string {
	body = bytes.ReplaceAll(body, []byte("\ufffe"), []byte(`\ufffe`))
	return string(bytes.ReplaceAll(body, []byte("\uffff"), []byte(`\uffff`)))
}

// group is the message group of a record: the same for one key of a topic, and for all records of a partition without one.
func group(r *sdk.Record) string {
	h := sha256.New()
	h.Write([]byte(r.Topic))
	if r.Key != nil {
		h.Write([]byte{0})
		h.Write(r.Key)
	} else {
		h.Write([]byte{1})
		h.Write([]byte(strconv.Itoa(r.Partition)))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// topicID is the id of the topic that has the name now. Offsets of a topic that was created anew begin at 0 again: by its name alone its records would be taken for
// those of the old one.
func (r *run) topicID(ctx context.Context, name string) (string, error) {
	if id, ok := r.ids[name]; ok {
		return id, nil
	}
	t, err := r.log.Admin().Topic(ctx, name)
	if err != nil {
		return "", err
	}
	r.ids[name] = t.ID
	return t.ID, nil
}
