package compact

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/varvelog/varve/functions/internal/archive"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// maxOrders bounds what one job holds in memory of the index: some 25 MB with 64 slots in every entry.
const maxOrders = 16 << 10

// Backlog is what the table says of a lane: what a plan is made from, and from nothing else.
type Backlog struct {
	Topic  *metadata.Topic
	State  *metadata.State
	Before metadata.Offsets  // running maximum timestamps before the order State.Archived
	Chunks []*metadata.Chunk // from the one that has this order on
}

// Limits bound a job.
type Limits struct {
	Target int64         // bytes; the chunk that reaches it is the last
	Bucket time.Duration // rows whose append times are further apart are kept apart; 0: none are
	Until  int64         // no order at or above it; 0 is none, -1 leaves out all
}

// Job is what becomes one archive segment: consecutive orders of a lane, or (From equal to To) rows that are merged.
type Job struct {
	Topic          *metadata.Topic
	Lane           metadata.LaneID
	From, To       int64
	Oldest, Newest time.Time // append times of its first and last entry or row
	Bytes          int64     // of the batches that are copied
	Records        int64
	Reads          []Read // what is read, one after another
	Copies         []Copy // what is written, by slot, then offset
	Ends           map[metadata.Slot]int64
	Full           bool           // orders: there is no room for more
	Replace        []metadata.Row // rows
}

// Read is a range of a segment. Order is that of the entry that names it.
type Read struct {
	ID      segment.ID
	Order   int64
	At, Len int64
}

// size is how many bytes are read.
func (j *Job) size() (n int64) {
	for i := range j.Reads {
		n += j.Reads[i].Len
	}
	return n
}

// Copy is a row to be, and the pieces of the reads that it consists of.
type Copy struct {
	archive.Run
	Pieces []Piece
}

func (c *Copy) ages() ages { return ages{c.First, c.Last} }

// Piece is whole batches of one partition.
type Piece struct {
	At, Len  int64 // in the bytes of all reads one after another
	Relative bool  // their base offsets count from Base
	Base     int64
	Count    int64         // records
	MaxTime  int64         // largest index timestamp
	Row      *metadata.Row // that is replaced; nil: they are of a commit
}

// Plan plans the next job of a lane: whole chunks from the archived order on, up to the limits. Where one chunk alone needs more rows than can be published, as its
// commits are too far apart in time, the job ends within it. A backlog that contradicts itself is an *archive.AlarmError. A job without orders: there is no backlog.
func Plan(b Backlog, l Limits) (*Job, error) {
	j := &Job{Topic: b.Topic, Lane: b.State.Lane, From: b.State.Archived, To: b.State.Archived, Ends: map[metadata.Slot]int64{}}
	if err := b.check(); err != nil {
		return nil, err
	}
	m := newMeasure(b.State, l)
	for _, c := range b.Chunks {
		if !m.add(c) {
			break
		}
	}
	j.To, j.Full = m.to, m.full
	p := planner{Job: j, b: &b, limits: l, at: b.State.Ends, maxima: b.Before}
	for _, c := range b.Chunks {
		for i := range c.Entries {
			if e := &c.Entries[i]; e.Order >= j.From && e.Order < j.To {
				if err := p.entry(e); err != nil {
					return nil, err
				}
			}
		}
	}
	slices.SortStableFunc(j.Copies, func(a, b Copy) int { return cmp.Compare(a.Slot, b.Slot) })
	return j, nil
}

// check tells whether the chunks follow one another from the archived order on, and their bases what was counted.
func (b *Backlog) check() error {
	next, ends := b.State.Archived, b.State.Ends
	for i, c := range b.Chunks {
		bases := c.Bases
		first := c.First
		for j := range c.Entries {
			if i > 0 || c.Entries[j].Order >= next {
				break
			}
			first++ // archived already
			for _, s := range c.Entries[j].Slots {
				bases[s.Slot] += int64(s.Count)
			}
		}
		if first != next {
			return b.alarm("the chunk at order %d is there, %d should follow", c.First, next)
		}
		for s := range bases {
			if bases[s] != ends[s] {
				return b.alarm("slot %d is at offset %d before order %d by the chunk at %d, and at %d by what was counted", s, bases[s], next, c.First, ends[s])
			}
		}
		next, ends = c.First+int64(len(c.Entries)), c.Ends()
	}
	return nil
}

func (b *Backlog) alarm(format string, args ...any) error {
	return &archive.AlarmError{Topic: b.Topic.Name, Lane: b.State.Lane, What: fmt.Sprintf(format, args...)}
}

// measure tells, chunk by chunk, how far a job goes.
type measure struct {
	limits Limits
	from   int64
	to     int64 // it goes
	full   bool
	bytes  int64
	rows   int
	ends   metadata.Offsets
	starts metadata.Offsets
	ages   map[metadata.Slot]ages // of each slot's last row
}

func newMeasure(s *metadata.State, l Limits) *measure {
	return &measure{limits: l, from: s.Archived, to: s.Archived, ends: s.Ends, starts: s.Starts, ages: map[metadata.Slot]ages{}}
}

// add counts a chunk in, or as much of it as there is room for, and tells whether there is room for more.
func (m *measure) add(c *metadata.Chunk) (more bool) {
	within := m.to == m.from // only a job without a whole chunk ends within one
	to := m.to
	for i := range c.Entries {
		e := &c.Entries[i]
		if e.Order < m.from {
			continue
		}
		if m.limits.Until != 0 && e.Order >= m.limits.Until || !m.entry(e) {
			m.full = true
			if within {
				m.to = to
			}
			return false
		}
		to = e.Order + 1
	}
	m.to = to
	m.full = m.bytes >= m.limits.Target || m.to-m.from > maxOrders-metadata.ChunkOrders
	return !m.full
}

// entry counts an entry in if its rows have room.
func (m *measure) entry(e *metadata.Entry) bool {
	rows, now := m.rows, ages{e.ID.Time(), e.ID.Time()}
	for i := range e.Slots {
		if s := &e.Slots[i]; m.copied(s) && !m.ages[s.Slot].takes(now, m.limits.Bucket) {
			rows++
		}
	}
	if rows > metadata.MaxPublishRows {
		return false
	}
	m.rows = rows
	for i := range e.Slots {
		s := &e.Slots[i]
		if m.copied(s) {
			a := m.ages[s.Slot]
			if !a.takes(now, m.limits.Bucket) {
				a = ages{}
			}
			m.ages[s.Slot] = a.with(now)
			m.bytes += int64(s.Bytes)
		}
		m.ends[s.Slot] += int64(s.Count)
	}
	return true
}

// copied tells whether a slot's batches in the next entry are: not those that were withdrawn, or that are below the log start.
func (m *measure) copied(s *metadata.SlotEntry) bool {
	return s.Count > 0 && m.ends[s.Slot]+int64(s.Count) > m.starts[s.Slot]
}

// ages are the first and the last append time of a row; zero before it has any.
type ages struct{ first, last time.Time }

// with are the ages of a row that has both.
func (a ages) with(b ages) ages {
	if a.first.IsZero() {
		return b
	}
	if b.first.Before(a.first) {
		a.first = b.first
	}
	if b.last.After(a.last) {
		a.last = b.last
	}
	return a
}

// takes tells whether a row with these ages may have records of those too.
func (a ages) takes(b ages, bucket time.Duration) bool {
	both := a.with(b)
	return !a.first.IsZero() && (bucket == 0 || both.last.Sub(both.first) <= bucket)
}

// planner makes the reads and copies of a job whose orders are known.
type planner struct {
	*Job
	b      *Backlog
	limits Limits
	at     metadata.Offsets // next offset of each slot
	maxima metadata.Offsets
	size   int64                      // of the reads so far
	open   [metadata.SlotsPerLane]int // the slot's last row: index in Copies, plus one
}

func (p *planner) entry(e *metadata.Entry) error {
	if p.Oldest.IsZero() {
		p.Oldest = e.ID.Time()
	}
	p.Newest = e.ID.Time()
	read := Read{ID: e.ID, Order: e.Order}
	at := e.Start
	for i := range e.Slots {
		s := &e.Slots[i]
		base := p.at[s.Slot]
		if p.at[s.Slot] += int64(s.Count); s.Count > 0 {
			p.Ends[s.Slot] = p.at[s.Slot]
			p.maxima[s.Slot] = max(p.maxima[s.Slot], s.MaxTime)
		}
		if s.Count > 0 && p.at[s.Slot] > p.b.State.Starts[s.Slot] {
			if read.Len == 0 {
				read.At = at
			}
			read.Len = at + int64(s.Bytes) - read.At
			if err := p.piece(e, s, base, p.size+at-read.At); err != nil {
				return err
			}
		}
		at += int64(s.Bytes)
	}
	if read.Len > 0 {
		p.Reads = append(p.Reads, read)
		p.size += read.Len
	}
	return nil
}

// piece makes a slot's batches in an entry part of the slot's last row, or the first of another.
func (p *planner) piece(e *metadata.Entry, s *metadata.SlotEntry, base, at int64) error {
	born := ages{e.ID.Time(), e.ID.Time()}
	var run *Copy
	if i := p.open[s.Slot]; i > 0 {
		run = &p.Copies[i-1]
	}
	if run == nil || !run.ages().takes(born, p.limits.Bucket) {
		partition, ok := p.b.Topic.Partition(metadata.Place{Lane: p.Lane, Slot: s.Slot})
		if !ok {
			return p.b.alarm("slot %d has records in order %d, but the topic has no partition there", s.Slot, e.Order)
		}
		p.Copies = append(p.Copies, Copy{Run: archive.Run{Slot: s.Slot, Partition: partition, Base: base, First: born.first, Last: born.last}})
		p.open[s.Slot] = len(p.Copies)
		run = &p.Copies[len(p.Copies)-1]
	}
	now := run.ages().with(born)
	run.First, run.Last, run.End, run.RunMax = now.first, now.last, p.at[s.Slot], p.maxima[s.Slot]
	run.Pieces = append(run.Pieces, Piece{At: at, Len: int64(s.Bytes), Relative: true, Base: base, Count: int64(s.Count), MaxTime: s.MaxTime})
	p.Bytes += int64(s.Bytes)
	p.Records += int64(s.Count)
	return nil
}
