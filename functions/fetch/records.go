package fetch

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/varvelog/varve/functions/internal/api"
	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// records reads from one partition.
func (s *Service) records(ctx context.Context, c *api.Call) error {
	partition, err := c.Number("partition")
	if err != nil {
		return err
	}
	form, err := c.Accepts(wire.JSONType, wire.BatchesType)
	if err != nil {
		return err
	}
	q, err := c.Query("offset", "max_bytes", "wait")
	if err != nil {
		return err
	}
	offset, err := requiredOffset(q.Get("offset"))
	if err != nil {
		return err
	}
	most, wait, err := bounds(q)
	if err != nil {
		return err
	}
	read, err := s.read(ctx, c.Name("topic"), []sdk.ReadFrom{{Partition: partition, Offset: offset}}, most, wait)
	if err != nil {
		return err
	}
	h := c.W.Header()
	h.Set(wire.TopicIDHeader, read[0].Topic)
	if form == wire.BatchesType {
		h.Set(wire.NextHeader, strconv.FormatInt(read[0].Next, 10))
		h.Set(wire.StartHeader, strconv.FormatInt(read[0].Start, 10))
		h.Set(wire.EndHeader, strconv.FormatInt(read[0].End, 10))
		c.Send(http.StatusOK, wire.BatchesType, frames(read))
		return nil
	}
	answer, err := jsonOf(c.Name("topic"), &read[0], offset, most)
	if err != nil {
		return err
	}
	c.Send(http.StatusOK, wire.JSONType, answer)
	return nil
}

// several reads from several partitions of a topic.
func (s *Service) several(ctx context.Context, c *api.Call) error {
	if _, err := c.Accepts(wire.BatchesType); err != nil {
		return err
	}
	q, err := c.Query("from", "max_bytes", "wait")
	if err != nil {
		return err
	}
	from, err := positions(q.Get("from"))
	if err != nil {
		return err
	}
	most, wait, err := bounds(q)
	if err != nil {
		return err
	}
	read, err := s.read(ctx, c.Name("topic"), from, most, wait)
	if err != nil {
		return err
	}
	var at []string
	for _, b := range read {
		at = append(at, fmt.Sprintf("%d:%d:%d:%d", b.Partition, b.Next, b.Start, b.End))
	}
	c.W.Header().Set(wire.TopicIDHeader, read[0].Topic)
	c.W.Header().Set(wire.PositionsHeader, strings.Join(at, ","))
	c.Send(http.StatusOK, wire.BatchesType, frames(read))
	return nil
}

// positions reads partition:offset,partition:offset,…
func positions(s string) (from []sdk.ReadFrom, err error) {
	bad := api.BadField("from", s, fmt.Sprintf("partition:offset, of 1 to %d different partitions, separated by commas", wire.MaxPositions))
	seen := map[int]bool{}
	for part := range strings.SplitSeq(s, ",") {
		p, o, _ := strings.Cut(part, ":")
		partition, err := strconv.ParseUint(p, 10, 31)
		if err != nil || seen[int(partition)] || len(from) == wire.MaxPositions {
			return nil, bad
		}
		offset, err := strconv.ParseUint(o, 10, 63)
		if err != nil {
			return nil, bad
		}
		seen[int(partition)] = true
		from = append(from, sdk.ReadFrom{Partition: int(partition), Offset: int64(offset)})
	}
	return from, nil
}

// bounds are how much and how long.
func bounds(q url.Values) (most int, wait time.Duration, err error) {
	n, err := api.Capped(q, "max_bytes", 1, wire.MaxFetch, defaultFetch)
	if err != nil {
		return 0, 0, err
	}
	wait, err = api.Duration(q, "wait", MaxWait)
	return int(n), wait, err
}

const defaultFetch = 1 << 20

// read reads, and waits for records if it may. One that finds too many others waiting does not: those that wait must not keep out those that do not.
func (s *Service) read(ctx context.Context, topic string, from []sdk.ReadFrom, most int, wait time.Duration) ([]sdk.Batches, error) {
	wait = s.patience(ctx, wait)
	if wait > 0 && s.waiting != nil {
		select {
		case s.waiting <- struct{}{}:
			defer func() { <-s.waiting }()
		default:
			wait = 0
		}
	}
	return s.batches.Read(ctx, topic, from, most, wait)
}

// patience is how long to wait for records, so that there is time left to read them.
func (s *Service) patience(ctx context.Context, wait time.Duration) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok || wait == 0 {
		return wait
	}
	return max(0, min(wait, deadline.Sub(s.options.Env.Now())/2))
}

func frames(read []sdk.Batches) []byte {
	body := []byte{}
	for _, b := range read {
		for _, batch := range b.Batches {
			body = wire.AppendFrame(body, int32(b.Partition), batch)
		}
	}
	return body
}

// jsonOf is the records as JSON, from the offset on and up to most bytes of it, but one record at least. What batches decompress to is bounded batch by batch.
func jsonOf(topic string, b *sdk.Batches, offset int64, most int) ([]byte, error) {
	out := []byte(`{"records":[`)
	next, none := b.Next, len(out)
	var decoder segment.Decoder
	for _, batch := range b.Batches {
		records, err := decoder.Decode(batch, 0, nil)
		if err != nil {
			return nil, &sdk.DataError{Topic: topic, Partition: b.Partition, From: offset, To: b.Next, Err: err}
		}
		for i := range records {
			r := &records[i]
			if r.Offset < offset {
				continue
			}
			one, err := json.Marshal(sdk.Record{Topic: topic, Partition: b.Partition, Offset: r.Offset, Timestamp: time.UnixMilli(r.Timestamp).UTC(),
				Key: r.Key, Value: r.Value, Headers: r.Headers})
			if err != nil {
				return nil, err
			}
			if len(one) > wire.MaxAnswer-maxEnvelope {
				if len(out) > none {
					return end(out, r.Offset, b), nil
				}
				return nil, tooLong(topic, b.Partition, r.Offset, len(one))
			}
			if len(out) > none {
				if len(out)+len(one) > most {
					return end(out, r.Offset, b), nil
				}
				out = append(out, ',')
			}
			out = append(out, one...)
		}
	}
	return end(out, next, b), nil
}

// maxEnvelope is what there may be besides the records in an answer.
const maxEnvelope = 256

// tooLong is a record that is too large for an answer in JSON.
func tooLong(topic string, partition int, offset int64, size int) error {
	is, limit := int64(size), int64(wire.MaxAnswer-maxEnvelope)
	return &wire.Error{Code: wire.TooLarge, Topic: topic, Partition: &partition, Offset: &offset, Size: &is, Limit: &limit,
		Message: fmt.Sprintf("topic %q partition %d: the record at offset %d has %d bytes as JSON, an answer at most %d: read it with Accept: %s", topic, partition, offset, is, limit, wire.BatchesType)}
}

func end(out []byte, next int64, b *sdk.Batches) []byte {
	return fmt.Appendf(out, `],"next_offset":%d,"start":%d,"end":%d}`+"\n", next, b.Start, b.End)
}
