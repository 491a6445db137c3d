package produce

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/varvelog/varve/functions/internal/api"
	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// read reads the records of a request. Their partition is wire.ByKey where the request gives none.
func read(c *api.Call, topic string) (records []*sdk.Record, err error) {
	contentType, body, err := c.Body(wire.JSONType, wire.BatchesType)
	if err != nil {
		return nil, err
	}
	if contentType == wire.JSONType {
		records, err = readJSON(body, nil)
	} else {
		records, err = readBatches(body)
	}
	if err == nil && len(records) == 0 {
		err = noRecords()
	}
	for _, r := range records {
		r.Topic, r.Offset = topic, 0
	}
	return records, err
}

func noRecords() error { return api.BadField("records", "none", "at least one") }

// readJSON reads {"records":[…]} and, where topics is given, "topics" beside it.
func readJSON(body []byte, topics *[]wire.TopicMeant) (records []*sdk.Record, err error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	if err := expect(dec, json.Delim('{')); err != nil {
		return nil, err
	}
	for seen := map[string]bool{}; dec.More(); {
		name, err := nextName(dec)
		switch {
		case err != nil:
		case seen[name]:
			err = api.BadField("body", fmt.Sprintf("%q twice", name), bodyWanted)
		case name == "records":
			records, err = readRecords(dec)
		case name == "topics" && topics != nil:
			*topics, err = readTopics(dec)
		default:
			err = unexpected(dec, name)
		}
		if err != nil {
			return nil, err
		}
		seen[name] = true
	}
	if err := expect(dec, json.Delim('}')); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, api.BadField("body", "more after its end", bodyWanted)
	}
	return records, nil
}

// readRecords reads one record at a time, so that too many of them are noticed before they fill the memory.
func readRecords(dec *json.Decoder) (records []*sdk.Record, err error) {
	if err := expect(dec, json.Delim('[')); err != nil {
		return nil, err
	}
	for dec.More() {
		if len(records) == wire.MaxRecords {
			return nil, tooMany()
		}
		r, err := nextJSON(dec, len(records))
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, expect(dec, json.Delim(']'))
}

func readTopics(dec *json.Decoder) (topics []wire.TopicMeant, err error) {
	var raw json.RawMessage
	if err = dec.Decode(&raw); err == nil {
		err = wire.Names(raw, "name", "topic_id")
	}
	if err == nil {
		err = json.Unmarshal(raw, &topics)
	}
	if err == nil && len(topics) > wire.MaxListed {
		err = fmt.Errorf("%d of them", len(topics))
	}
	for i := range topics {
		if err == nil && topics[i].ID == "" {
			err = fmt.Errorf("no topic_id of %q", topics[i].Name)
		}
	}
	if err != nil {
		return nil, api.BadField("topics", shortened(err.Error()), fmt.Sprintf(`at most %d of {"name":…,"topic_id":…}`, wire.MaxListed))
	}
	return topics, nil
}

const bodyWanted = `{"records":[RECORD, …]}, each as docs/record-json.md has it`

func expect(dec *json.Decoder, want json.Token) error {
	got, err := next(dec)
	if err == nil && got != want {
		err = unexpected(dec, got)
	}
	return err
}

func nextName(dec *json.Decoder) (string, error) {
	got, err := next(dec)
	name, ok := got.(string)
	if err == nil && !ok {
		err = unexpected(dec, got)
	}
	return name, err
}

func next(dec *json.Decoder) (json.Token, error) {
	got, err := dec.Token()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, api.BadField("body", fmt.Sprintf("ends at byte %d", dec.InputOffset()), bodyWanted)
	case err != nil:
		return nil, api.BadField("body", err.Error(), bodyWanted)
	}
	return got, nil
}

func unexpected(dec *json.Decoder, got json.Token) error {
	return api.BadField("body", shortened(fmt.Sprintf("%v at byte %d", got, dec.InputOffset())), bodyWanted)
}

func nextJSON(dec *json.Decoder, i int) (*sdk.Record, error) {
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return nil, badRecord(i, err)
	}
	if string(raw) == "null" { // which encoding/json takes for any value
		return nil, badRecord(i, &sdk.FieldError{Field: "record", Value: "null", Valid: "an object; docs/record-json.md has its fields"})
	}
	r := new(sdk.Record)
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, badRecord(i, err)
	}
	var given struct {
		Partition *int `json:"partition"`
	}
	if err := json.Unmarshal(raw, &given); err != nil {
		return nil, badRecord(i, err)
	}
	switch {
	case given.Partition == nil:
		r.Partition = wire.ByKey
	case *given.Partition < 0:
		return nil, badRecord(i, &sdk.FieldError{Field: "partition", Value: strconv.Itoa(*given.Partition), Valid: "0 or more; or leave it out, and the key decides"})
	}
	return r, nil
}

// longestReason bounds what an answer says of a record, in bytes.
const longestReason = 400

// shortened is what an answer says of a record: it may quote what a client sent, megabytes of it.
func shortened(said string) string {
	if len(said) > longestReason {
		said = strings.ToValidUTF8(said[:longestReason], "") + "…"
	}
	return said
}

// badRecord says that the i-th record cannot be read, and so nothing of the request is done.
func badRecord(i int, err error) error {
	e := api.ErrorOf(err)
	if e.Code == wire.Internal || e.Code == wire.BadRequest { // encoding/json's own, or the SDK's
		e.Code = wire.BadRecord
	}
	e.Message = fmt.Sprintf("record %d: %s; nothing was appended", i, shortened(err.Error()))
	e.Record = &i
	return e
}

func tooMany() error {
	limit := int64(wire.MaxRecords)
	return &wire.Error{Code: wire.TooLarge, Message: fmt.Sprintf("more than %d records, nothing was appended: send fewer at a time", limit), Limit: &limit}
}

// readBatches reads frames. What all batches of a request decompress to is bounded together.
func readBatches(body []byte) (records []*sdk.Record, err error) {
	var decoder segment.Decoder
	left := wire.MaxInflated
	err = wire.Frames(body, func(partition int32, batch []byte) error {
		if left <= 0 || len(records) == wire.MaxRecords {
			return tooInflated(len(records))
		}
		decoder.Limits = segment.Limits{RecordBytes: left, Records: wire.MaxRecords - len(records), Headers: wire.MaxInflated / 2}
		decoded, err := decoder.Decode(batch, 0, nil)
		switch {
		case errors.Is(err, segment.ErrTooLarge):
			return tooInflated(len(records))
		case err != nil:
			return badRecord(len(records), err)
		}
		for i := range decoded {
			r := &decoded[i]
			left -= segment.RecordSize(r) + leastRecord
			records = append(records, &sdk.Record{Partition: int(partition), Timestamp: timestamp(r.Timestamp), Key: r.Key, Value: r.Value, Headers: r.Headers})
		}
		return nil
	})
	return records, err
}

// leastRecord is what a record takes in a batch besides its key, value and headers.
const leastRecord = 7

// timestamp is a batch's: -1 is Kafka's none, and so the time of now.
func timestamp(ms int64) time.Time {
	if ms == -1 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func tooInflated(record int) error {
	limit := int64(wire.MaxInflated)
	return &wire.Error{Code: wire.TooLarge, Record: &record, Limit: &limit,
		Message: fmt.Sprintf("the request's batches have more than %d bytes when decompressed, or more than %d records; nothing was appended: send less at a time", limit, wire.MaxRecords)}
}
