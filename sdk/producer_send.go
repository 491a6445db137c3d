package sdk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/lane"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// upload is one segment of a flush: the parts that share one.
type upload struct {
	parts   []*lanePart
	records int
	id      segment.ID
	minted  metadata.Stamp
	builder *segment.Builder
	lent    []*segment.BatchBuilder // to builder
	body    [][]byte                // in their memory, until recycle
}

var segmentBuilders = sync.Pool{New: func() any { return new(segment.Builder) }}

// recycle hands the segment's memory on. Nothing may put it any more.
func (u *upload) recycle() {
	u.body = nil
	segmentBuilders.Put(u.builder)
	for _, b := range u.lent {
		b.Reset()
		builders.Put(b)
	}
	u.lent = nil
}

// send ends the tickets of all parts of the flush: with Commit for those whose segment is durable, else with Fail.
func (p *Producer) send(ctx context.Context, f *flush) []*upload {
	p.announceKeys(ctx, f)
	var uploads []*upload
	for _, part := range f.parts {
		if part.failed {
			continue
		}
		i := 0
		for i < len(uploads) && uploads[i].parts[0].sharing != part.sharing {
			i++
		}
		if i == len(uploads) {
			uploads = append(uploads, new(upload))
		}
		uploads[i].parts = append(uploads[i].parts, part)
	}
	var wg sync.WaitGroup
	for _, u := range uploads[min(1, len(uploads)):] {
		wg.Go(func() { p.sendSegment(ctx, f, u) })
	}
	if len(uploads) > 0 {
		p.sendSegment(ctx, f, uploads[0])
	}
	wg.Wait()
	return uploads
}

// announceKeys marks the topics of which the flush has the first keyed records. Where that fails, so do the parts.
func (p *Producer) announceKeys(ctx context.Context, f *flush) {
	for _, part := range f.parts {
		for _, b := range part.batches {
			if !b.keyed || part.failed {
				continue
			}
			if err := p.markKeyed(ctx, b.at.topic); err != nil {
				part.fail(gaveUp(ctx, err))
			}
		}
	}
}

// sendSegment seals and puts one segment, and hands it to the lanes.
func (p *Producer) sendSegment(ctx context.Context, f *flush, u *upload) {
	segments, err := p.seal(ctx, f, u)
	if err == nil {
		err = p.put(ctx, u.id, u.body, u.records)
	}
	for i, part := range u.parts {
		if err != nil {
			part.fail(gaveUp(ctx, err))
			continue
		}
		part.ticket.Commit(segments[i])
	}
}

// seal compresses the batches into a segment under a new id, and returns what each part is in it. How large it came out decides where it will be stored.
func (p *Producer) seal(ctx context.Context, f *flush, u *upload) (segments []*lane.Segment, err error) {
	u.builder = segmentBuilders.Get().(*segment.Builder)
	if u.id, u.minted, err = p.mint(ctx, u.parts[0].sharing.Class, segment.ID{}); err != nil {
		return nil, err
	}
	u.builder.Reset(segment.Intake, p.log.identity.Log)
	options := segment.DefaultBatchOptions()
	options.Codec = p.config.codec
	options.AppendTime = u.id.Time().UnixMilli()
	for _, part := range u.parts {
		s := &lane.Segment{
			ID: u.id, Start: int64(u.builder.Size()), Minted: u.minted, Version: part.version,
			Deadline: f.deadline, Owner: &owned{u, part},
		}
		for _, b := range part.batches {
			entry, latest, err := p.sealBatch(u, b, options)
			if err != nil {
				return nil, err
			}
			part.lay(s, b, entry, latest)
			s.Expect, s.Tokens = append(s.Expect, b.expect...), append(s.Tokens, b.tokens...)
			u.records += int(entry.Count)
		}
		segments = append(segments, s)
	}
	if u.body, _, err = u.builder.FinishPieces(); err != nil {
		return nil, err
	}
	if store.SizeOf(u.body) <= p.config.smallSegments {
		u.id = u.id.In(segment.InTable)
		for _, s := range segments {
			s.ID = u.id
		}
	}
	return segments, nil
}

// lay puts the batch behind the others in the lane's part of the segment. Of a slot that requests share, their batches are one entry.
func (l *lanePart) lay(s *lane.Segment, b *batch, entry metadata.SlotEntry, latest int64) {
	if r := b.request; r != nil && !slices.Contains(s.Producers, r.step) {
		s.Producers = append(s.Producers, r.step)
	}
	n := len(s.Slots)
	if n == 0 || s.Slots[n-1].Slot != entry.Slot {
		b.skip = 0
		s.Slots, l.latest = append(s.Slots, entry), append(l.latest, latest)
		return
	}
	slot := &s.Slots[n-1]
	b.skip = int64(slot.Count)
	slot.Count, slot.Bytes, slot.MaxTime = slot.Count+entry.Count, slot.Bytes+entry.Bytes, max(slot.MaxTime, entry.MaxTime)
	l.latest[n-1] = max(l.latest[n-1], latest)
}

// owned is what a lane's segment is of.
type owned struct {
	upload *upload
	part   *lanePart
}

// sealBatch compresses one batch into the segment, and returns its extent with its largest timestamp, ms.
func (p *Producer) sealBatch(u *upload, b *batch, o segment.BatchOptions) (metadata.SlotEntry, int64, error) {
	p.mu.Lock()
	row := b.at.topic.row
	p.mu.Unlock()
	if o.TimeType = row.Config.TimeType; o.TimeType == segment.LogAppendTime {
		b.stamp = u.id.Time()
	}
	meta := segment.ExtentMeta{Lane: string(b.at.place.Lane), Slot: uint8(b.at.place.Slot), Topic: row.ID, Partition: int32(b.at.index)}
	if r := b.request; r != nil {
		meta.ProducerID, meta.Sequence = int64(r.step.ID), r.step.Sequence
	}
	entry := metadata.SlotEntry{Slot: b.at.place.Slot}
	latest := int64(0)
	for _, encoded := range b.encoded {
		info, err := u.add(meta, encoded, o)
		if err != nil {
			return entry, 0, fmt.Errorf("seal topic %q partition %d: %w", row.Name, b.at.index, err)
		}
		entry.Count += int32(info.Count)
		entry.Bytes += int32(info.Length)
		latest = max(latest, info.MaxTime)
	}
	b.encoded = nil
	entry.MaxTime = metadata.IndexTime(latest, u.id)
	return entry, latest, nil
}

// add takes an encoded batch into the segment: compressed, or as it is, in its own memory.
func (u *upload) add(meta segment.ExtentMeta, encoded *segment.BatchBuilder, o segment.BatchOptions) (segment.BatchInfo, error) {
	if o.Codec == segment.None {
		u.lent = append(u.lent, encoded)
		return u.builder.Adopt(meta, encoded, o)
	}
	info, err := u.builder.AddOpen(meta, encoded, o)
	encoded.Reset()
	builders.Put(encoded)
	return info, err
}

// remint is lane.Config.Remint: the same bytes under a higher id, perhaps in another class. Other lanes may have
// committed them under the old one, and that is no harm: each object names all extents, and each entry names its
// object.
func (p *Producer) remint(ctx context.Context, s *lane.Segment, above segment.ID, class segment.Class) error {
	o := s.Owner.(*owned)
	id, minted, err := p.mint(ctx, class, above)
	if err != nil {
		return err
	}
	id = id.In(s.ID.Place())
	if err := p.put(ctx, id, o.upload.body, o.upload.records); err != nil {
		return err
	}
	rename(s, id, minted)
	return nil
}

// rename gives the segment another id, with the index timestamps that it brings.
func rename(s *lane.Segment, id segment.ID, minted metadata.Stamp) {
	for i, latest := range s.Owner.(*owned).part.latest {
		s.Slots[i].MaxTime = metadata.IndexTime(latest, id)
	}
	s.ID, s.Minted = id, minted
}

// put creates the segment where its id says, and tries again while that can help and ctx lasts. A repetition finds the bytes there if a lost answer was of
// a put that was applied.
func (p *Producer) put(ctx context.Context, id segment.ID, body [][]byte, records int) error {
	e, name := p.log.env, objects.Of("", id).Name()
	create, again := func() error { return store.PutPieces(ctx, p.log.store, name, body) }, retryStore
	if id.Place() == segment.InTable {
		small := slices.Concat(body...)
		create, again = func() error { return p.log.table.PutSmall(ctx, id, small) }, retryTable
	}
	start := e.Mono()
	err := p.persist(ctx, func() error {
		e.At(env.BeforeUpload)
		err := create()
		if err == nil {
			e.At(env.AfterUpload)
		}
		return err
	}, again)
	fire(p.log.hooks, func(h PutHook) {
		h.OnPut(PutEvent{Object: name, Bytes: store.SizeOf(body), Records: records, Duration: e.Mono() - start, Err: err})
	})
	return err
}

const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// persist repeats what may be repeated until it succeeds, cannot succeed, or ctx is done; the error is then the last
// one of its own.
func (p *Producer) persist(ctx context.Context, try func() error, again func(error) bool) (err error) {
	wait := firstRetry
	var before error
	for {
		if err = try(); err == nil || !again(err) {
			break
		}
		if p.log.env.Sleep(ctx, p.log.env.Jitter(wait)) != nil {
			break
		}
		before, wait = err, min(2*wait, lastRetry)
	}
	if err != nil && before != nil && ctx.Err() != nil { // cut off by ctx: what went wrong before says more
		return before
	}
	return err
}

// retryStore tells whether a put may be repeated with hope. What is refused for what it is stays refused; credentials that were not to be had may be,
// before the deadline.
func retryStore(err error) bool {
	if errors.Is(err, store.ErrNoCredentials) {
		return true
	}
	for _, final := range []error{store.ErrDenied, store.ErrConfig, store.ErrBadName, store.ErrExists, store.ErrReused} {
		if errors.Is(err, final) {
			return false
		}
	}
	return true
}

// retryTable tells the same of a write to the table that may be repeated.
func retryTable(err error) bool {
	return errors.Is(err, metadata.ErrNoCredentials) || errors.Is(err, metadata.ErrThrottled) || errors.Is(err, metadata.ErrUnavailable) || errors.Is(err, metadata.ErrOutcomeUnknown) ||
		errors.Is(err, metadata.ErrContended)
}

// mint is minter.mint, tried again while that can help and ctx lasts.
func (p *Producer) mint(ctx context.Context, class segment.Class, above segment.ID) (id segment.ID, minted metadata.Stamp, err error) {
	err = p.persist(ctx, func() (err error) {
		id, minted, err = p.ids.mint(ctx, class, above)
		return err
	}, retryTable)
	return id, minted, err
}

// minter makes ids by the service's clock, above every floor that was seen.
//
// That clock is carried on by the monotonic one, which stands still while a machine is suspended. An id by it would then be hours old before it is used, and a repair would
// take what is committed under it for what the table had before it was put back. So the wall clock is watched: where it has run ahead, the service is asked for the time.
type minter struct {
	env   env.Env
	clock interface {
		ServiceTime() (now time.Time, ok bool)
		Identity(ctx context.Context) (metadata.Identity, bool, error) // any answer tells the time
	}

	mu    sync.Mutex
	floor segment.ID
	ahead time.Duration // by which the wall clock was ahead of the service's when that had just been told; not more
}

// runAhead is by how much more than that the wall clock may be ahead before the service is asked.
const runAhead = 10 * time.Second

// mint returns an id above the given one, with its moment by the process's own clocks. It fails when the service has to be asked and does not answer.
func (m *minter) mint(ctx context.Context, class segment.Class, above segment.ID) (segment.ID, metadata.Stamp, error) {
	m.raise(above)
	at, minted, err := m.now(ctx)
	if err != nil {
		return segment.ID{}, metadata.Stamp{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return segment.NewID(at, class, segment.InBucket, m.env.Uint64(), m.floor), minted, nil
}

// now is the service's time, and when that is by the process's own clocks. These are read first: a process that stands still in between takes the id for older than it is.
func (m *minter) now(ctx context.Context) (time.Time, metadata.Stamp, error) {
	moment := lane.Now(m.env)
	at, ok := m.clock.ServiceTime()
	if !ok {
		return moment.Wall, moment, nil
	}
	m.mu.Lock()
	before := m.ahead
	m.mu.Unlock()
	ahead := moment.Wall.Sub(at)
	switch {
	case ahead > before+runAhead:
		moment = lane.Now(m.env)
		if _, _, err := m.clock.Identity(ctx); err != nil {
			return at, moment, fmt.Errorf("asking for the time: %w", err)
		}
		at, _ = m.clock.ServiceTime()
		ahead = moment.Wall.Sub(at)
	case ahead > before:
		ahead = before
	}
	m.mu.Lock()
	m.ahead = ahead
	m.mu.Unlock()
	moment.Wall = at.Add(ahead)
	return at, moment, nil
}

func (m *minter) raise(floor segment.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.floor.Less(floor) {
		m.floor = floor
	}
}
