package sdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/walk"
	"github.com/varvelog/varve/segment"
)

const (
	// maxFetched bounds an answer: one batch may be as large as decoders take.
	maxFetched = wire.MaxFetch + maxSplitBatch
	// maxFetchParts bounds the partitions of one request, which stand in its URL.
	maxFetchParts = 64
	// pollWait is for how long a function is asked to wait for records. It is paid for meanwhile.
	pollWait = 10 * time.Second
)

// remoteSource asks a function for records of several partitions at once: of those that are behind without waiting, and of those at their end with a
// wait, as one request for those of a lane. What it answers is queued as extents of its own making, whose batches have absolute offsets.
type remoteSource struct {
	*Reader
	remote *remote
	known  map[*part]*remotePart
	behind pacing // of requests for what is there
	ended  pacing // of those that wait
}

// pacing is the pause before a request, of requests that are answered at once with nothing.
type pacing struct{ pause time.Duration }

func (p *pacing) answered(atOnceNothing bool) {
	if !atOnceNothing {
		p.pause = 0
		return
	}
	p.pause = min(max(2*p.pause, tailFloor), tailCeiling)
}

// remotePart is what is known of a part.
type remotePart struct {
	end   int64 // of the partition, as last told
	alone bool  // ask for it by itself: together with others it got nothing, and it is to be found out why
	dry   int   // answers that had nothing for it though it has records, one after another
}

func newRemoteSource(r *Reader, to *remote) *remoteSource {
	return &remoteSource{Reader: r, remote: to, known: map[*part]*remotePart{}}
}

func (s *remoteSource) attachLane(metadata.LaneID) {}
func (s *remoteSource) detach()                    {}

// of is what is known of a part. mu is held.
func (s *remoteSource) of(p *part) *remotePart {
	if s.known[p] == nil {
		s.known[p] = &remotePart{}
	}
	return s.known[p]
}

func (s *remoteSource) bounds(ctx context.Context, _ *part, known map[*part]bounds) error {
	all, err := s.remote.offsets(ctx, s.topic)
	if err == nil { // of this topic, and not of another that has its name now
		var now *remoteTopic
		if now, err = s.remote.topic(ctx, s.topic.Name); err == nil && now.row.ID != s.topic.ID {
			err = ErrTopicGone
		}
	}
	if errors.Is(err, ErrUnknownTopic) {
		err = ErrTopicGone
	}
	if err != nil {
		return inTopic(s.topic.Name, err)
	}
	for _, b := range all {
		s.learn(b, known)
	}
	return nil
}

func (s *remoteSource) resolve(ctx context.Context) error {
	offsets, err := s.remote.offsets(ctx, s.topic)
	if err != nil {
		return inTopic(s.topic.Name, err)
	}
	for _, p := range s.parts {
		o := offsets[p.id]
		s.of(p).end = o.End
		if err := s.resolvePart(ctx, p, o.Start, o.End); err != nil {
			return err
		}
	}
	return nil
}

func (s *remoteSource) offsetForTime(ctx context.Context, partition int, at time.Time) (int64, error) {
	return s.remote.offsetForTime(ctx, s.topic.Name, partition, at)
}

func (s *remoteSource) object(p *part, e walk.Extent) string {
	return fmt.Sprintf("%s?from=%d:%d", s.path().Path, p.id, e.Base)
}

func (s *remoteSource) path() *url.URL {
	return s.remote.fetch.JoinPath("v1", "topics", s.topic.Name, "records")
}

// question is what is asked for one part.
type question struct {
	part   *part
	offset int64
	asked  int
}

// advance begins requests. mu is held.
func (s *remoteSource) advance() {
	for _, lane := range s.lanes {
		var behind, ended []*part
		for _, p := range lane.parts {
			switch {
			case !p.wants() || len(p.queue) > 1: // one that is being returned, one that is ready
			case s.of(p).alone:
				s.ask([]*part{p}, 0)
			case p.cursor.Offset < s.of(p).end:
				behind = append(behind, p)
			default:
				ended = append(ended, p)
			}
		}
		// What an answer has no room for are the last that were asked for.
		slices.SortStableFunc(behind, func(a, b *part) int { return cmp.Compare(a.queued, b.queued) })
		s.askAll(behind, 0)
		s.askAll(ended, pollWait)
	}
}

func (s *remoteSource) askAll(parts []*part, wait time.Duration) {
	for some := range slices.Chunk(parts, maxFetchParts) {
		s.ask(some, wait)
	}
}

// ask begins one request, if there is room for its answer. mu is held.
func (s *remoteSource) ask(parts []*part, wait time.Duration) {
	room := int64(s.config.bufferBytes) - s.buffered
	if s.getting >= s.config.prefetch || s.buffered > 0 && room < min(wire.MaxFetch, int64(s.config.bufferBytes)/4) {
		return
	}
	want := min(max(room, minRange), wire.MaxFetch)
	questions := make([]question, len(parts))
	for i, p := range parts {
		p.looking = true
		questions[i] = question{p, p.cursor.Offset, p.asked}
	}
	s.getting++
	sp := &span{byteRange: byteRange{n: want}}
	s.buffered += want
	pace := &s.behind
	if wait > 0 {
		pace = &s.ended
	}
	pause := pace.pause
	s.begin(func(ctx context.Context) {
		s.log.env.Sleep(ctx, pause)
		start := s.log.env.Mono()
		answers, err := s.request(ctx, questions, want, wait)
		early := s.log.env.Mono()-start <= wait/2
		s.mu.Lock()
		defer s.mu.Unlock()
		s.getting--
		s.buffered -= want
		sp.n = 0
		for _, a := range answers {
			sp.n += int64(len(a.bytes))
		}
		s.buffered += sp.n
		s.settleAll(questions, answers, sp, err)
		pace.answered(early && err == nil && sp.n == 0)
		if sp.done = true; sp.wanted == 0 {
			s.free(sp)
		}
		s.Reader.advance()
		s.wake()
	})
}

// settleAll takes in what was answered. mu is held.
func (s *remoteSource) settleAll(questions []question, answers map[int]*partAnswer, sp *span, err error) {
	for _, q := range questions {
		p, known := q.part, s.of(q.part)
		if p.asked != q.asked { // a Seek has moved it meanwhile
			continue
		}
		p.looking = false
		if err != nil {
			s.failed(q, len(questions), err)
			continue
		}
		a := answers[p.id]
		known.end = a.end
		if known.dry++; a.next > q.offset || a.end <= q.offset {
			known.dry = 0
		}
		known.alone = len(questions) > 1 && (known.dry > 1 || q.offset < a.start && a.next == q.offset)
		s.enqueue(q, a, sp)
	}
}

// failed takes in the error of a request. What is one partition's fault is not the others': who can be at fault is asked about alone. mu is held.
func (s *remoteSource) failed(q question, asked int, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	var e *RemoteError
	if asked > 1 && errors.As(err, &e) && !passing(err) && !errors.Is(err, ErrTopicGone) && !errors.Is(err, ErrUnknownTopic) {
		switch at := e.said.Partition; {
		case at == nil:
			s.of(q.part).alone = true
			return
		case *at != q.part.id:
			return
		}
	}
	s.trouble(q.part, remoteReadError(s.topic.Name, q.part.id, q.offset, err))
}

// enqueue queues what was answered for a part. mu is held.
func (s *remoteSource) enqueue(q question, a *partAnswer, sp *span) {
	p := q.part
	if a.next <= q.offset {
		return
	}
	e := walk.Extent{Topic: s.topic.ID, ID: segment.ID{}.In(segment.Archived), Base: q.offset, End: a.next, Count: a.run.count, MaxTime: math.MinInt64, Bytes: int64(len(a.bytes))}
	if a.run.count > 0 && a.run.base < e.Base {
		e.Base = a.run.base
	}
	x := &piece{extent: e, first: &passed{next: e.Base}, n: e.Bytes, from: q.offset, done: true, bytes: a.bytes, in: a.summed}
	if e.Bytes > 0 {
		x.span = sp
		sp.wanted++
	}
	p.queued += x.n
	p.queue = append(p.queue, x)
	p.cursor = p.cursor.To(a.next)
}

// partAnswer is what was answered for a partition.
type partAnswer struct {
	summed
	run              run
	next, start, end int64
}

// request asks for records.
func (s *remoteSource) request(ctx context.Context, questions []question, want int64, wait time.Duration) (answers map[int]*partAnswer, err error) {
	offsets := map[int]int64{}
	from := make([]string, len(questions))
	for i, q := range questions {
		offsets[q.part.id] = q.offset
		from[i] = strconv.Itoa(q.part.id) + ":" + strconv.FormatInt(q.offset, 10)
	}
	u := s.path()
	query := url.Values{"from": {strings.Join(from, ",")}, "max_bytes": {strconv.FormatInt(want, 10)}}
	if wait > 0 {
		query.Set("wait", wait.String())
	}
	u.RawQuery = query.Encode()
	q := request{op: "Fetch", method: http.MethodGet, url: u, accept: wire.BatchesType, limit: maxFetched, wait: wait}
	start := s.log.env.Mono()
	err = s.remote.client.call(ctx, q, func(r *reply) (err error) {
		answers, err = readFetched(r, offsets)
		if err == nil && r.header.Get(wire.TopicIDHeader) != string(s.topic.ID) {
			err = ErrTopicGone
		}
		return err
	})
	if outside("", 0, 0, err) != nil { // of this topic, or of another that has its name now?
		if t, now := s.remote.topic(ctx, s.topic.Name); now == nil && t.row.ID != s.topic.ID {
			err = ErrTopicGone
		}
	}
	e := FetchEvent{Object: u.Path, Duration: s.log.env.Mono() - start, Err: err}
	for _, a := range answers {
		if a.run.count > 0 {
			e.Extents, e.Bytes = e.Extents+1, e.Bytes+len(a.bytes)
		}
	}
	fire(s.log.hooks, func(h FetchHook) { h.OnFetch(e) })
	return answers, err
}

// readFetched reads an answer: for each partition that was asked for from an offset on, its position, and what it has of its batches.
func readFetched(r *reply, offsets map[int]int64) (map[int]*partAnswer, error) {
	answers, err := readPositions(r.header.Get(wire.PositionsHeader), offsets)
	if err != nil {
		return nil, err
	}
	bad := func(format string, args ...any) (map[int]*partAnswer, error) {
		return nil, fmt.Errorf("%w: %w: %s", ErrUnreachable, errGarbage, fmt.Sprintf(format, args...))
	}
	err = wire.Frames(r.body, func(partition int32, batch []byte) error {
		a := answers[int(partition)]
		switch {
		case a == nil:
			return fmt.Errorf("records of partition %d, which was not asked for", partition)
		case a.bytes == nil:
			a.bytes = batch
		default:
			a.bytes = append(a.bytes, batch...)
		}
		return nil
	})
	if err != nil {
		return bad("%v", err)
	}
	for p, a := range answers {
		a.Add(a.bytes)
		if a.run, err = follow(a.bytes); err != nil {
			return bad("partition %d: %v", p, err)
		}
		if len(a.bytes) > 0 && (a.run.next <= offsets[p] || a.run.next > a.next) {
			return bad("partition %d: records from %d to %d, asked for were those from %d on, next are those from %d on", p, a.run.base, a.run.next-1, offsets[p], a.next)
		}
	}
	return answers, nil
}

// readPositions reads partition:next:start:end, separated by commas, one for each that was asked for.
func readPositions(header string, offsets map[int]int64) (map[int]*partAnswer, error) {
	answers := map[int]*partAnswer{}
	for s := range strings.SplitSeq(header, ",") {
		fields := strings.Split(strings.TrimSpace(s), ":")
		n := make([]int64, 0, 4)
		for _, f := range fields {
			if v, err := strconv.ParseInt(f, 10, 64); err == nil && v >= 0 {
				n = append(n, v)
			}
		}
		if len(fields) != 4 || len(n) != 4 || n[0] > math.MaxInt32 {
			return nil, fmt.Errorf("%w: %w: position %.50q", ErrUnreachable, errGarbage, s)
		}
		offset, asked := offsets[int(n[0])]
		if !asked || n[1] < offset || answers[int(n[0])] != nil {
			return nil, fmt.Errorf("%w: %w: position %.50q, asked for were %v", ErrUnreachable, errGarbage, s, slices.Sorted(maps.Keys(offsets)))
		}
		answers[int(n[0])] = &partAnswer{next: n[1], start: n[2], end: n[3]}
	}
	if len(answers) != len(offsets) {
		return nil, fmt.Errorf("%w: %w: positions of %d partitions, %d were asked for", ErrUnreachable, errGarbage, len(answers), len(offsets))
	}
	return answers, nil
}
