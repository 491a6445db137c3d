package sdk

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/lane"
	"github.com/varvelog/varve/segment"
)

const (
	// freshTopic is for how long a topic's row is believed: nothing that is answered to an append says that the topic has grown.
	freshTopic = time.Minute
)

// roomInRequest is what a request has for the records of one flush, uncompressed: the rest is for headers of frames and batches.
const roomInRequest = min(wire.MaxBody, wire.MaxInflated) - 64<<10

// remoteSink sends each lane's part of a flush as one request, under a producer id and a sequence, so that it may be repeated.
type remoteSink struct {
	p *Producer
	r *remote

	asking   chan struct{} // room for one: who asks for a producer id
	producer string        // id for all lanes, until one of them needs another; of who asks
}

func newRemoteSink(p *Producer, r *remote) *remoteSink {
	p.config.segmentBytes = min(p.config.segmentBytes, roomInRequest/2)
	p.config.flushBytes, p.config.flushRecords = roomInRequest, wire.MaxRecords
	return &remoteSink{p: p, r: r, asking: make(chan struct{}, 1)}
}

func (s *remoteSink) topic(ctx context.Context, name string) (*metadata.Topic, error) {
	t, err := s.r.topic(ctx, name)
	if err != nil {
		return nil, err
	}
	row := *t.row
	row.Config.MaxMessageBytes = min(row.Config.MaxMessageBytes, roomInRequest)
	return &row, nil
}

func (s *remoteSink) writer(at *partitionHandle) laneWriter {
	return newRemoteLane(s, at.place.Lane, at.topic.row)
}

// send compresses the parts and hands them to their lanes.
func (s *remoteSink) send(ctx context.Context, f *flush) []*upload {
	for _, part := range f.parts {
		err := s.refresh(ctx, part.batches[0].at.topic)
		var sealed *lane.Segment
		if err == nil {
			sealed, err = s.seal(f, part)
		}
		if err != nil {
			part.fail(gaveUp(ctx, err))
			continue
		}
		part.ticket.Commit(sealed)
	}
	return nil
}

// refresh reads the topic's row again when it is old, so that a producer hears of growth. That it could not be read does not matter, the next flush will.
func (s *remoteSink) refresh(ctx context.Context, t *topicHandle) error {
	p := s.p
	now := p.log.env.Mono()
	p.mu.Lock()
	old, name, id := now-t.read > freshTopic, t.row.Name, t.row.ID
	if old {
		t.read = now
	}
	p.mu.Unlock()
	if !old {
		return nil
	}
	row, err := s.topic(ctx, name)
	if err != nil {
		return nil
	}
	if row.ID != id {
		return fmt.Errorf("%w: created anew as %s", metadata.ErrTopicGone, row.ID)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.row.Partitions < row.Partitions || t.row.Version < row.Version {
		row.Version = max(row.Version, t.row.Version+1) // the function may not say it
		t.learn(row)
	}
	return nil
}

// frames are the batches of one partition in a request, a frame each.
type frames struct {
	partition int
	count     int // of records
	bytes     []byte
}

func (s *remoteSink) seal(f *flush, part *lanePart) (*lane.Segment, error) {
	options := segment.DefaultBatchOptions()
	options.Codec = s.p.config.codec
	sealed, total := make([]frames, len(part.batches)), 0
	for i, b := range part.batches {
		x := &sealed[i]
		x.partition = b.at.index
		for _, encoded := range b.encoded {
			at := len(x.bytes)
			with, info, err := encoded.Finish(wire.AppendFrame(x.bytes, int32(x.partition), nil), options)
			if err != nil {
				return nil, fmt.Errorf("seal topic %q partition %d: %w", b.at.topic.row.Name, b.at.index, err)
			}
			binary.BigEndian.PutUint32(with[at+4:], uint32(info.Length)) // of the frame, now that it is known
			x.bytes, x.count = with, x.count+info.Count
			encoded.Reset()
			builders.Put(encoded)
		}
		b.encoded = nil
		total += len(x.bytes)
	}
	if total > wire.MaxBody {
		return nil, fmt.Errorf("%w: a request of %d bytes, at most %d", ErrTooLarge, total, wire.MaxBody)
	}
	first := part.batches[0] // with conditions, the only one
	return &lane.Segment{Deadline: f.deadline, Owner: sealed, Expect: first.expect, Tokens: first.tokens}, nil
}

// next is a producer id other than the given one, which cannot be used any more; empty at first.
func (s *remoteSink) next(ctx context.Context, lost string) (string, error) {
	select {
	case s.asking <- struct{}{}:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	defer func() { <-s.asking }()
	if s.producer != lost { // another lane was faster, and one id for all is enough
		return s.producer, nil
	}
	to, err := s.r.producer(ctx)
	if err != nil {
		return "", err
	}
	var made wire.Producer
	err = s.r.client.json(ctx, request{op: "NewProducer", method: http.MethodPost, url: to.JoinPath("v1", "producers")}, &made)
	if err != nil {
		return "", err
	}
	if n, err := strconv.ParseInt(made.ID, 10, 64); err != nil || n <= 0 || made.ID == lost {
		return "", fmt.Errorf("%w: %w: producer id %q", ErrUnreachable, errGarbage, made.ID)
	}
	s.producer = made.ID
	return s.producer, nil
}

// post is one request to append.
type post struct {
	topic    *metadata.Topic
	lane     metadata.LaneID
	producer string
	sequence int64
	parts    []frames
	body     []byte
	expect   []metadata.Expect // conditions, at most one of each kind
	tokens   []metadata.Token
}

func newPost(topic *metadata.Topic, id metadata.LaneID, s *lane.Segment, parts []frames) post {
	o := post{topic: topic, lane: id, parts: parts, expect: s.Expect, tokens: s.Tokens}
	for _, f := range parts {
		o.body = append(o.body, f.bytes...)
	}
	return o
}

func (o *post) request(to *url.URL) request {
	h := http.Header{}
	for _, x := range o.expect {
		h.Set(wire.IfEndHeader, strconv.FormatInt(x.Offset, 10))
	}
	for _, x := range o.tokens {
		h.Set(wire.IfTokenHeader, strconv.FormatInt(x.Token, 10))
	}
	h.Set(wire.ProducerIDHeader, o.producer)
	h.Set(wire.SequenceHeader, strconv.FormatInt(o.sequence, 10))
	h.Set(wire.TopicIDHeader, string(o.topic.ID))
	return request{op: "Produce", lane: string(o.lane), method: http.MethodPost, url: to.JoinPath("v1", "topics", o.topic.Name, "records"),
		accept: wire.JSONType, contentType: wire.BatchesType, header: h, body: o.body}
}

func (s *remoteSink) append(ctx context.Context, to *url.URL, o *post) (bases []int64, err error) {
	r, err := s.r.client.send(ctx, o.request(to))
	if err != nil {
		return nil, err
	}
	if bases, err = o.read(r.body); err != nil {
		return nil, &failure{err: err, sent: true}
	}
	return bases, nil
}

// overtaken tells whether err is a refusal because the partition is past what the conditions want. Ends and tokens only grow, so no attempt that is under way still
// can be applied then.
func (o *post) overtaken(err error) bool {
	c := conditionError("", 0, err)
	return c != nil && (len(o.expect) > 0 && c.End > o.expect[0].Offset || len(o.tokens) > 0 && c.Token > o.tokens[0].Token)
}

// read finds the first offset of each frame in the answer; -1 for all of them where they are not known any more.
func (o *post) read(body []byte) ([]int64, error) {
	var said wire.Produced
	if err := decodeJSON(body, &said); err != nil {
		return nil, err
	}
	return basesOf(o.parts, &said)
}

func basesOf(parts []frames, said *wire.Produced) ([]int64, error) {
	bad := func(i int, what string) error {
		return fmt.Errorf("%w: %w: result %d of %d: %s", ErrUnreachable, errGarbage, i, len(said.Results), what)
	}
	unknown := said.OffsetsKnown != nil && !*said.OffsetsKnown
	bases := make([]int64, 0, len(parts))
	at := 0
	for _, f := range parts {
		bases = append(bases, -1)
		for n := range f.count {
			i := at + n
			if i >= len(said.Results) {
				if unknown && len(said.Results) == 0 {
					continue
				}
				return nil, bad(i, "is not there")
			}
			switch x := said.Results[i]; {
			case x.Error != nil || x.Partition == nil || *x.Partition != f.partition:
				return nil, bad(i, "is not an offset of the partition that was asked for")
			case unknown:
			case x.Offset == nil || *x.Offset < 0 || n > 0 && *x.Offset != bases[len(bases)-1]+int64(n):
				return nil, bad(i, "its offset does not follow the one before")
			case n == 0:
				bases[len(bases)-1] = *x.Offset
			}
		}
		at += f.count
	}
	if len(said.Results) > at {
		return nil, bad(at, "is one too many")
	}
	return bases, nil
}
