package sdk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/metadata/lane"
)

// appendAtomic sends all records of the flush as one request. It may touch several lanes, so no sequence of one of them makes a repeat of it harmless: it is sent
// again only where it was certainly not carried out.
func (s *remoteSink) appendAtomic(ctx context.Context, f *flush) ([]lane.Result, error) {
	s.p.divide(f)
	body, err := togetherBody(f)
	if err != nil {
		return nil, err
	}
	to, err := s.r.producer(ctx)
	if err != nil {
		return nil, err
	}
	q := request{op: "AppendAtomic", method: http.MethodPost, url: to.JoinPath("v1", "records"), accept: wire.JSONType, contentType: wire.JSONType, body: body, once: true}
	var bases []int64
	err = s.r.client.try(ctx, q, func(r *reply) error {
		var said wire.Produced
		if err := decodeJSON(r.body, &said); err != nil {
			return err
		}
		bases, err = basesOf(f.frames(), &said)
		return err
	})
	if err == nil {
		return f.at(bases), nil
	}
	var failed *failure
	var told *RemoteError // what the function calls retriable it has not carried out
	if errors.As(err, &failed) && !failed.sent || errors.As(err, &told) && told.said.Retriable {
		return nil, bare(err)
	}
	return nil, fmt.Errorf("%w: %w", lane.ErrUnknown, bare(err))
}

// togetherBody is the body of the request, with the records in the order of the flush's parts, and the ids of their topics.
func togetherBody(f *flush) ([]byte, error) {
	var b bytes.Buffer
	topics := []wire.TopicMeant{}
	named := map[string]bool{}
	b.WriteString(`{"records":[`)
	for _, part := range f.parts {
		for _, x := range part.batches {
			if row := x.at.topic.row; !named[row.Name] {
				named[row.Name] = true
				topics = append(topics, wire.TopicMeant{Name: row.Name, ID: string(row.ID)})
			}
			for _, r := range x.records {
				text, err := r.record.MarshalJSON()
				if err != nil {
					return nil, err
				}
				b.Write(text)
				b.WriteByte(',')
			}
		}
	}
	b.Truncate(b.Len() - 1)
	b.WriteString(`],"topics":`)
	text, err := json.Marshal(topics)
	if err != nil {
		return nil, err
	}
	b.Write(text)
	b.WriteByte('}')
	if b.Len() > wire.MaxBody || f.records > wire.MaxRecords {
		return nil, fmt.Errorf("%w: a request of %d records and %d bytes as JSON, at most %d and %d", ErrTooLarge, f.records, b.Len(), wire.MaxRecords, wire.MaxBody)
	}
	return b.Bytes(), nil
}

// frames are the batches as the request has them, without their bytes.
func (f *flush) frames() (all []frames) {
	for _, part := range f.parts {
		for _, b := range part.batches {
			all = append(all, frames{partition: b.at.index, count: len(b.records)})
		}
	}
	return all
}

// at is what became of each part, whose batches begin at these offsets.
func (f *flush) at(bases []int64) (results []lane.Result) {
	for _, part := range f.parts {
		var r lane.Result
		for _, b := range part.batches {
			r.Slots = append(r.Slots, lane.SlotResult{Slot: b.at.place.Slot, Base: bases[0]})
			bases = bases[1:]
		}
		results = append(results, r)
	}
	return results
}
