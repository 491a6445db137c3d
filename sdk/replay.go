package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/varvelog/varve/metadata"
)

// Replay reads the history of a topic as fast as the store gives it: many partitions and ranges at once, each partition in order, up to the ends that
// the partitions had when the replay was made. It has requests and memory of its own, so that it takes no turn of the log's readers and producers.
// Run is for one goroutine; the other methods may be called concurrently.
type Replay struct {
	log    *Log // apart from the one that it was made from
	live   *Log
	topic  *metadata.Topic
	config replayConfig
	starts []int64 // by partition; where the replay, or the one that it resumes, began
	ends   []int64
	cuts   []metadata.Cuts // as they were when it was made

	mu        sync.Mutex
	running   bool
	positions []int64
	records   int64
	bytes     int64
	spent     time.Duration // of the Runs that have ended
	began     time.Duration // of the one under way
}

// ReplayOption changes one setting of a replay.
type ReplayOption func(*replayConfig)

type replayConfig struct {
	resume   *ReplayCheckpoint
	filter   func(*Record) bool
	parallel int
	buffer   int
	recycle  bool
}

// ReplayResume goes on where another replay of the topic was, up to the ends that it had.
func ReplayResume(c ReplayCheckpoint) ReplayOption {
	return func(r *replayConfig) { r.resume = &c }
}

// ReplayFilter leaves out the records of which keep says no: those of other keys, say. It is called by several goroutines at once, and reads the
// record only. What it leaves out counts as replayed.
func ReplayFilter(keep func(*Record) bool) ReplayOption {
	return func(r *replayConfig) { r.filter = keep }
}

// ReplayParallel is how many partitions are handled at once, at most. Default 4.
func ReplayParallel(n int) ReplayOption { return func(r *replayConfig) { r.parallel = n } }

// ReplayBuffer bounds the bytes of segments that are fetched ahead, and likewise the memory of decoded batches. Default 64 MiB.
func ReplayBuffer(n int) ReplayOption { return func(r *replayConfig) { r.buffer = n } }

// ReplayRecycle lets the replay use a record's memory again after the handler has returned.
func ReplayRecycle() ReplayOption { return func(r *replayConfig) { r.recycle = true } }

// ReplayCheckpoint is how far a replay has come: what it takes to resume it, in this process or another. Its JSON form is stable.
type ReplayCheckpoint struct {
	Topic     string           `json:"topic"`
	TopicID   string           `json:"topic_id"`
	At        time.Time        `json:"at"`        // when it was taken, by the table's clock
	Positions []ReplayPosition `json:"positions"` // one for each partition
}

// ReplayPosition is how far a replay has come in a partition: records from Start to before Next are done, those from Next to before End are not.
type ReplayPosition struct {
	Partition int   `json:"partition"`
	Start     int64 `json:"start"`
	Next      int64 `json:"next"`
	End       int64 `json:"end"`
}

// ReplayProgress is how far a replay is. Offsets are those of all partitions together, without those that a repair has cut out, Records and Bytes (of records, uncompressed) what the handler was given
// by this Replay.
type ReplayProgress struct {
	Offsets, Done  int64
	Records, Bytes int64
	Elapsed        time.Duration // running
	Left           time.Duration // at the pace so far; 0 when done or not known
}

// NewReplay makes a replay of the topic, from the log starts to the ends as they are now. ErrUnknownTopic, a *FieldError for a setting that makes no
// sense, ErrTopicGone for a checkpoint of another topic of the same name, a *RangeError with ErrTombstones for one of a topic whose keys are compacted that was taken
// longer ago than tombstones stay.
func (l *Log) NewReplay(ctx context.Context, topic string, opts ...ReplayOption) (*Replay, error) {
	c := replayConfig{parallel: 4, buffer: 64 << 20}
	for _, o := range opts {
		o(&c)
	}
	bad := func(field string, value int, valid string) error {
		return &FieldError{Topic: topic, Field: field, Value: strconv.Itoa(value), Valid: valid}
	}
	switch {
	case c.parallel < 1 || c.parallel > maxPrefetch:
		return nil, bad("replay parallel", c.parallel, fmt.Sprintf("1 to %d", maxPrefetch))
	case c.buffer < 1:
		return nil, bad("replay buffer bytes", c.buffer, "1 or more")
	}
	t, err := l.topicToRead(ctx, topic)
	if err != nil {
		return nil, err
	}
	r := &Replay{log: l.apart(), live: l, topic: t, config: c}
	offsets, err := r.log.offsets(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("topic %q: %w", topic, unread(err))
	}
	for _, o := range offsets {
		r.starts, r.ends, r.cuts = append(r.starts, o.Start), append(r.ends, o.End), append(r.cuts, o.cuts)
	}
	r.positions = slices.Clone(r.starts)
	if c.resume != nil {
		if err := r.resume(c.resume); err != nil {
			return nil, err
		}
		return r, r.missed(c.resume.At, offsets)
	}
	return r, nil
}

// apart is the log with caches and requests of its own. Over HTTP there are none to share.
func (l *Log) apart() *Log {
	if l.remote != nil {
		return l
	}
	return newLog(l.Backend(), l.env, l.hooks, l.identity, func() error { return nil })
}

// resume takes the checkpoint's starts, positions and ends.
func (r *Replay) resume(c *ReplayCheckpoint) error {
	if c.Topic != r.topic.Name || c.TopicID != string(r.topic.ID) {
		return fmt.Errorf("%w: the checkpoint is of topic %q (%s), this is %q (%s)", ErrTopicGone, c.Topic, c.TopicID, r.topic.Name, r.topic.ID)
	}
	latest := slices.Clone(r.ends)
	// Partitions that are new since the checkpoint are no part of what it was to replay.
	for p := range r.ends {
		r.starts[p], r.positions[p], r.ends[p] = 0, 0, 0
	}
	bad := func(p int, value string) error {
		return &FieldError{Topic: r.topic.Name, Partition: p, Field: "checkpoint", Value: value, Valid: "one position for each partition, ascending from 0, up to its end in the log"}
	}
	if len(c.Positions) == 0 {
		return bad(0, "no positions")
	}
	for i, p := range c.Positions {
		if p.Partition != i || i >= len(latest) || p.Start < 0 || p.Next < p.Start || p.End < p.Next || p.End > latest[i] {
			return bad(p.Partition, fmt.Sprintf("start %d, next %d, end %d", p.Start, p.Next, p.End))
		}
		r.starts[i], r.positions[i], r.ends[i] = p.Start, p.Next, p.End
	}
	return nil
}

// missed is ErrTombstones if the checkpoint was taken so long ago that tombstones after it have been removed since.
func (r *Replay) missed(at time.Time, now []bounds) error {
	for p, next := range r.positions {
		b := now[p]
		b.Start = r.starts[p] // where it has begun to read
		if to := b.missed(next, at); to > 0 && r.topic.Config.Compacts() {
			return &RangeError{Topic: r.topic.Name, Partition: p, Offset: next, Start: now[p].Start, End: r.ends[p], CutFrom: next, CutTo: to, Err: ErrTombstones}
		}
	}
	return nil
}

// Run hands all records to handle and returns nil when the barrier is reached. handle is called for several partitions at once, for each partition in order and
// by one goroutine at a time. What it has returned nil for counts as done. When it fails, or ctx is done, or a record cannot be read (*DataError), Run
// returns that error, once all handlers have returned, and may be called again.
//
// Where retention overtakes the replay it goes on at the log start, and tells ResetHook.
func (r *Replay) Run(ctx context.Context, handle func(ctx context.Context, f Fetch) error) error {
	r.mu.Lock()
	if r.running {
		r.mu.Unlock()
		return fmt.Errorf("%w: topic %q: the replay is running", ErrInvalid, r.topic.Name)
	}
	r.running, r.began = true, r.log.env.Mono()
	shares := r.share()
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.running, r.spent = false, r.spent+r.log.env.Mono()-r.began
	}()
	g, ctx := errgroup.WithContext(ctx)
	for _, share := range shares {
		g.Go(func() error { return r.read(ctx, share, len(shares), handle) })
	}
	return g.Wait()
}

// share deals the partitions that are not done to as many readers as there are to be, the largest first, each to the one that has least. mu is held.
func (r *Replay) share() (shares []map[int]int64) {
	left := func(p int) int64 { return r.cuts[p].Count(r.positions[p], r.ends[p]) }
	var open []int
	for p := range r.ends {
		if r.positions[p] < r.ends[p] {
			open = append(open, p)
		}
	}
	slices.SortStableFunc(open, func(a, b int) int { return int(max(-1, min(1, left(b)-left(a)))) })
	load := make([]int64, min(r.config.parallel, len(open)))
	shares = make([]map[int]int64, len(load))
	for _, p := range open {
		least := slices.Index(load, slices.Min(load))
		if shares[least] == nil {
			shares[least] = map[int]int64{}
		}
		load[least] += left(p)
		shares[least][p] = r.positions[p]
	}
	return shares
}

// replayPatience is for how long a store or table that does not answer is tried again.
const replayPatience = 2 * time.Minute

// read replays some partitions from these positions.
func (r *Replay) read(ctx context.Context, from map[int]int64, readers int, handle func(context.Context, Fetch) error) error {
	to := make(map[int]int64, len(from))
	for p := range from {
		to[p] = r.ends[p]
	}
	buffer := max(1, r.config.buffer/readers)
	opts := []ReaderOption{ReadPartitions(slices.Sorted(maps.Keys(from))...), FromOffsets(from), goingOn(), ToOffsets(to), OnExpired(ResetEarliest), WithReadBuffer(buffer),
		WithPollBytes(max(1, min(buffer/4, 8<<20))), WithPrefetch(max(2, maxReplayGets/readers))}
	if r.config.recycle {
		opts = append(opts, RecycleRecords())
	}
	reader, err := r.log.NewReader(ctx, r.topic.Name, opts...)
	if err != nil {
		return err
	}
	defer reader.Close()
	if reader.topic.ID != r.topic.ID {
		return fmt.Errorf("topic %q: %w", r.topic.Name, ErrTopicGone)
	}
	for heard := r.log.env.Mono(); ; {
		if err := r.live.live(); err != nil {
			return err
		}
		fetches, err := reader.Poll(ctx)
		switch {
		case ctx.Err() != nil: // its cause may be that another reader of the replay has given up
			return context.Cause(ctx)
		case errors.Is(err, io.EOF):
			return r.done(from)
		case errors.Is(err, ErrUnreachable) && r.log.env.Mono()-heard < replayPatience:
			continue
		case err != nil:
			return err
		}
		heard = r.log.env.Mono()
		for _, f := range fetches {
			if err := r.hand(ctx, f, handle); err != nil {
				return err
			}
		}
	}
}

// maxReplayGets bounds the requests of a replay that are under way at once.
const maxReplayGets = 16

// hand gives a fetch to the handler, and takes note.
func (r *Replay) hand(ctx context.Context, f Fetch, handle func(context.Context, Fetch) error) error {
	next := f.Records[len(f.Records)-1].Offset + 1
	if r.config.filter != nil {
		f.Records = slices.DeleteFunc(f.Records, func(record Record) bool { return !r.config.filter(&record) })
	}
	var bytes int64
	for i := range f.Records {
		bytes += int64(recordSize(&f.Records[i]))
	}
	if len(f.Records) > 0 {
		if err := handle(ctx, f); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.positions[f.Partition] = next
	r.records += int64(len(f.Records))
	r.bytes += bytes
	return nil
}

// done notes that partitions were read to their ends: behind the last record there may be offsets without one.
func (r *Replay) done(from map[int]int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range from {
		r.positions[p] = r.ends[p]
	}
	return nil
}

// Progress is how far the replay is.
func (r *Replay) Progress() ReplayProgress {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := ReplayProgress{Records: r.records, Bytes: r.bytes, Elapsed: r.spent}
	if r.running {
		g.Elapsed += r.log.env.Mono() - r.began
	}
	for p := range r.ends {
		g.Offsets += r.cuts[p].Count(r.starts[p], r.ends[p])
		g.Done += r.cuts[p].Count(r.starts[p], r.positions[p])
	}
	if g.Done > 0 && g.Done < g.Offsets {
		g.Left = time.Duration(float64(g.Elapsed) / float64(g.Done) * float64(g.Offsets-g.Done))
	}
	return g
}

// Checkpoint is how far the replay is, to resume it by. While Run is under way a record may be handled and not in it yet: so records after a checkpoint come
// at least once.
func (r *Replay) Checkpoint() ReplayCheckpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.live.table.ServiceTime()
	if !ok {
		at = r.live.env.Now()
	}
	c := ReplayCheckpoint{Topic: r.topic.Name, TopicID: string(r.topic.ID), At: at.UTC(), Positions: make([]ReplayPosition, len(r.ends))}
	for p := range c.Positions {
		c.Positions[p] = ReplayPosition{Partition: p, Start: r.starts[p], Next: r.positions[p], End: r.ends[p]}
	}
	return c
}

// Follow returns a reader of the topic that goes on exactly where the replay is, with the live log, its partitions that are new since the replay was made from
// their beginning. Call it after Run. The filter is not applied.
func (r *Replay) Follow(ctx context.Context, opts ...ReaderOption) (*Reader, error) {
	c := r.Checkpoint()
	from := make(map[int]int64, len(c.Positions))
	for _, p := range c.Positions {
		from[p.Partition] = p.Next
	}
	reader, err := r.live.NewReader(ctx, r.topic.Name, append([]ReaderOption{FromOffsets(from), goingOn(), OnExpired(ResetEarliest)}, opts...)...)
	if err == nil && reader.topic.ID != r.topic.ID {
		reader.Close()
		return nil, fmt.Errorf("topic %q: %w", r.topic.Name, ErrTopicGone)
	}
	return reader, err
}
