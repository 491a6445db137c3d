package produce

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/varvelog/varve/functions/internal/api"
	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/sdk"
)

// once is the producer id and sequence of a request that a retry applies once.
type once struct {
	producer sdk.ProducerID
	sequence int64
	when     []sdk.Condition // under which it is applied, if there are any
}

// onceOf reads the headers; nil if there are none.
func onceOf(h http.Header) (*once, error) {
	ids, sequences := h.Values(wire.ProducerIDHeader), h.Values(wire.SequenceHeader)
	switch {
	case len(ids) == 0 && len(sequences) == 0:
		if len(h.Values(wire.IfEndHeader))+len(h.Values(wire.IfTokenHeader)) > 0 {
			return nil, api.BadField(wire.ProducerIDHeader, "none", "an id, and a sequence: a request under a condition that is sent again would be refused because of its own records")
		}
		return nil, nil
	case len(ids) != 1 || len(sequences) != 1:
		return nil, api.BadField(wire.ProducerIDHeader+", "+wire.SequenceHeader, strconv.Itoa(len(ids))+", "+strconv.Itoa(len(sequences)), "both of them, once, or neither")
	}
	id, err := strconv.ParseInt(ids[0], 10, 64)
	if err != nil || id <= 0 {
		return nil, api.BadField(wire.ProducerIDHeader, ids[0], "an id that POST /v1/producers gave")
	}
	sequence, err := strconv.ParseInt(sequences[0], 10, 64)
	if err != nil || sequence <= 0 {
		return nil, api.BadField(wire.SequenceHeader, sequences[0], "1, 2, 3 …: the number of the request among those of this producer in this lane")
	}
	when, err := conditionsOf(h)
	return &once{sdk.ProducerID(id), sequence, when}, err
}

// conditionsOf reads the headers of conditions.
func conditionsOf(h http.Header) (when []sdk.Condition, err error) {
	for _, c := range []struct {
		header string
		least  int64
		is     func(int64) sdk.Condition
	}{{wire.IfEndHeader, 0, sdk.EndIs}, {wire.IfTokenHeader, 1, sdk.TokenIs}} {
		values := h.Values(c.header)
		if len(values) == 0 {
			continue
		}
		n, err := strconv.ParseInt(values[0], 10, 64)
		if err != nil || n < c.least || len(values) > 1 {
			return nil, api.BadField(c.header, strings.Join(values, ", "), fmt.Sprintf("one number, %d or more", c.least))
		}
		when = append(when, c.is(n))
	}
	return when, nil
}

// appendOnce appends all of the records or none, once.
func (s *Service) appendOnce(ctx context.Context, c *api.Call, p *sdk.Producer, o *once, records []*sdk.Record) error {
	for i, r := range records {
		if r.Partition != wire.ByKey {
			continue
		}
		if r.Key == nil {
			e := api.BadField("partition", "none", "with "+wire.ProducerIDHeader+", a partition or a key in every record: a repeat has to go where the first attempt went")
			e.Record = &i
			return e
		}
		partition, err := p.KeyPartitionOnce(ctx, r.Topic, r.Key)
		if err != nil {
			return err
		}
		r.Partition = partition
	}
	done, err := o.append(ctx, p, records)
	if err == nil {
		err = done.Results.Err()
	}
	if ctx.Err() != nil {
		s.once.retire(p)
	}
	if err != nil {
		return repeatable(err)
	}
	answer := wire.Produced{Results: results(done.Results), Repeated: done.Repeated}
	if done.Repeated && !done.OffsetsKnown {
		answer.OffsetsKnown = new(bool)
	}
	return c.JSON(http.StatusOK, answer)
}

func (o *once) append(ctx context.Context, p *sdk.Producer, records []*sdk.Record) (sdk.Once, error) {
	if o.when == nil {
		return p.AppendOnce(ctx, o.producer, o.sequence, records...)
	}
	to := records[0].Partition
	for i, r := range records {
		if r.Partition != to {
			e := api.BadField("partition", strconv.Itoa(r.Partition), fmt.Sprintf("%d, that of the first record: conditions are those of one partition", to))
			e.Record = &i
			return sdk.Once{}, e
		}
	}
	return p.AppendOnceIf(ctx, o.producer, o.sequence, records[0].Topic, to, records, o.when...)
}

// repeatable is the error of a request that may be repeated whatever became of it.
func repeatable(err error) error {
	e := api.ErrorOf(err)
	if e.Code == wire.UnknownOutcome || errors.Is(err, sdk.ErrUnknown) {
		e.Retriable = true
		e.Message = "what became of the request is not known; send it again as it is, with the same producer id and sequence: it is applied once"
	}
	return e
}

// answer tells what became of records that were appended one by one.
func answer(c *api.Call, all sdk.Results) error {
	list := results(all)
	var first *wire.Error
	for _, r := range list {
		if r.Error == nil {
			return c.JSON(http.StatusOK, wire.Produced{Results: list})
		}
		if first == nil {
			first = r.Error
		}
	}
	c.Fail(&wire.Failure{Error: first, Results: list})
	return all.Err() // for Tell
}

// maxExplained is how many errors of records are told in full: twenty thousand of them would be more than an answer holds.
const maxExplained = 1000

func results(all sdk.Results) []wire.Result {
	list := make([]wire.Result, len(all))
	explained, like := 0, map[string]int{} // by code, the last record whose error was told in full
	for i, r := range all {
		switch {
		case r.Err != nil:
			e := api.ErrorOf(r.Err)
			if e.Code == wire.BadRequest {
				e.Code = wire.BadRecord
			}
			if explained++; explained > maxExplained {
				e = briefly(e, like)
			} else {
				like[e.Code] = i
			}
			e.Message, e.Record = shortened(e.Message), &i
			list[i].Error = e
		default:
			list[i].Partition = &r.Record.Partition
			if r.Record.Offset >= 0 {
				list[i].Offset = &r.Record.Offset
			}
		}
	}
	return list
}

// briefly is the error without what it says, for which it points to another one with its code.
func briefly(e *wire.Error, like map[string]int) *wire.Error {
	message := fmt.Sprintf("not told here, as %d errors were before", maxExplained)
	if i, ok := like[e.Code]; ok {
		message = fmt.Sprintf("as record %d, or alike", i)
	}
	return &wire.Error{Code: e.Code, Message: message, Retriable: e.Retriable}
}
