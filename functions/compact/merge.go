package compact

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/varvelog/varve/functions/internal/archive"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment/store"
)

// fanIn is how many rows of about one size are merged into one, and what the sizes differ by from one tier to the next.
const fanIn = 8

// tiers is how many there are below the target.
const tiers = 4

// MergeAfter is how old a segment is before its rows are merged with others.
const MergeAfter = archive.MergeAfter

// Merges are the rows of a partition, given in order and without gaps, that are to be merged: ranges of indexes. Rows further apart in time than a bucket never are, and
// none that young tells of.
//
// Going from the front, rows that lie within a bucket are a stretch. One to which none can come any more, as a later one has begun, is merged as a whole, once none of it is
// young. In the last one, from one young row to the next, fanIn rows of one tier are merged, with lower ones between and behind them, and so are rows that have a row of a
// higher tier behind them. A row of the target's size is left alone. So when no merge is left to do and no row is young, a stretch has at most two rows for each target's size
// of bytes, and one more; the last has fanIn - 1 of each tier, and one before each row that is of a higher tier than it. A byte is rewritten at most once for each tier from
// its row's on, and once when its bucket is over; only rows of the lowest tier may be so small that it takes more than fanIn of them to leave it.
func Merges(rows []*metadata.Row, bucket time.Duration, target int64, young func(*metadata.Row) bool) (due [][2]int) {
	for from := 0; from < len(rows); {
		to, stretch := from+1, agesOf(rows[from])
		for to < len(rows) && stretch.takes(agesOf(rows[to]), bucket) {
			stretch = stretch.with(agesOf(rows[to]))
			to++
		}
		switch {
		case to == len(rows):
			due = append(due, lastStretch(rows, from, target, young)...)
		case !slices.ContainsFunc(rows[from:to], young):
			due = append(due, together(rows[:to], from, target)...)
		}
		from = to
	}
	return due
}

// lastStretch are the merges in the rows from an index on, between those that are young.
func lastStretch(rows []*metadata.Row, from int, target int64, young func(*metadata.Row) bool) (due [][2]int) {
	for from < len(rows) {
		to := from
		for to < len(rows) && !young(rows[to]) {
			to++
		}
		due = append(due, byTier(rows[:to], from, target)...)
		from = to + 1
	}
	return due
}

func agesOf(r *metadata.Row) ages { return ages{r.First, r.Last} }

func byTier(rows []*metadata.Row, from int, target int64) (due [][2]int) {
	for tier := range tiers {
		for i := from; i < len(rows); i++ {
			j, full := i, 0
			for ; j < len(rows) && tierOf(rows[j].Bytes, target) <= tier; j++ {
				if tierOf(rows[j].Bytes, target) == tier {
					full++
				}
			}
			if full >= fanIn || j < len(rows) {
				due = append(due, together(rows[:j], i, target)...)
			}
			i = j
		}
		if len(due) > 0 {
			return due
		}
	}
	return nil
}

// tierOf is 0 for the smallest rows, tiers for those of the target's size.
func tierOf(bytes, target int64) int {
	tier := tiers
	for ; tier > 0 && bytes < target; tier-- {
		target /= fanIn
	}
	return tier
}

// together cuts the rows from an index on into ranges of at least two that reach the target's size, and no range has more rows than can be published.
func together(rows []*metadata.Row, from int, target int64) (ranges [][2]int) {
	for from < len(rows) {
		to, bytes := from, int64(0)
		for to < len(rows) && to-from < metadata.MaxPublishRows && bytes < target {
			bytes += rows[to].Bytes
			to++
		}
		if to-from > 1 {
			ranges = append(ranges, [2]int{from, to})
		}
		from = to
	}
	return ranges
}

// merge merges what is due of a lane's rows, partition by partition, as long as there is time. It looks at one partition first, by chance, as those of a lane are much alike,
// and rows become due by their age; not while something may be stored under a class that the topic has left.
func (r *run) merge(ctx context.Context, l *backlog) error {
	t, err := r.row(ctx, l)
	if err != nil {
		return err
	}
	for all := r.o.All && l.published || r.o.DryRun || len(t.Leaving()) > 0; r.time(ctx); all = true { // until nothing is due any more
		begun := r.table.Moment()
		state, err := r.table.State(ctx, l.lane, metadata.Strong)
		if err != nil {
			return r.gone(ctx, l, err)
		}
		jobs, err := r.merges(ctx, t, state, all)
		if err != nil || len(jobs) == 0 {
			return r.gone(ctx, l, err)
		}
		for _, job := range jobs {
			switch {
			case r.o.DryRun:
				r.done(job, 0)
			case !r.time(ctx):
				return nil
			default:
				_, err := r.rewrite(ctx, job, state, begun, nil)
				switch {
				case metadata.TooLate(err): // others become due again with the next run
					return nil
				case errors.Is(err, metadata.ErrChanged):
					return r.overtaken(l)
				case errors.Is(err, store.ErrNotExist):
					return r.missing(ctx, l, job, state, err)
				case err != nil:
					return r.gone(ctx, l, err)
				}
			}
		}
		if r.o.DryRun {
			return nil
		}
	}
	return nil
}

// merges plans the merges of a lane, or none if only a sample is to be looked at and nothing is due in it.
func (r *run) merges(ctx context.Context, t *metadata.Topic, state *metadata.State, all bool) ([]*Job, error) {
	var slots []metadata.Slot
	for s := range metadata.Slot(metadata.SlotsPerLane) {
		if _, ok := t.Partition(metadata.Place{Lane: state.Lane, Slot: s}); ok && state.Ends[s] > state.Starts[s] {
			slots = append(slots, s)
		}
	}
	if !all && len(slots) > 0 {
		sample := slots[r.o.Env.Int64N(int64(len(slots)))]
		jobs, err := r.mergesOf(ctx, t, state, sample)
		if err != nil || len(jobs) == 0 {
			return nil, err
		}
	}
	return r.mergesOf(ctx, t, state, slots...)
}

// mergesOf plans the merges in these slots: as few segments as take them.
func (r *run) mergesOf(ctx context.Context, t *metadata.Topic, state *metadata.State, slots ...metadata.Slot) (jobs []*Job, err error) {
	var job *Job
	for _, s := range slots {
		p, _ := t.Partition(metadata.Place{Lane: state.Lane, Slot: s})
		rows, err := archive.Rows(ctx, r.table, t, p, state)
		if err != nil {
			return nil, err
		}
		now := archive.Now(r.o.Env, r.table)
		young := func(row *metadata.Row) bool {
			return !r.o.All && archive.Young(row, now)
		}
		due := Reclass(Merges(rows, t.Config.MergeBucket(), r.o.Target, young), rows, t, now)
		for _, due := range due {
			if part := rows[due[0]:due[1]]; job == nil || !job.merge(s, part, r.o.Target) {
				job = &Job{Topic: t, Lane: state.Lane, From: state.Archived, To: state.Archived}
				jobs = append(jobs, job)
				job.merge(s, part, r.o.Target)
			}
		}
	}
	for _, j := range jobs {
		j.place()
	}
	return jobs, nil
}

// merge adds rows that become one to the job, if there is room.
func (j *Job) merge(s metadata.Slot, rows []*metadata.Row, target int64) bool {
	bytes := int64(0)
	for _, row := range rows {
		bytes += row.Bytes
	}
	if n := len(j.Replace); n > 0 && (n+len(rows) > metadata.MaxPublishRows || j.Bytes+bytes > target) {
		return false
	}
	first, last := rows[0], rows[len(rows)-1]
	c := Copy{Run: archive.Run{Slot: s, Partition: first.Partition, Base: first.Base, End: last.End, RunMax: last.RunMax}}
	var a ages
	for _, row := range rows {
		a = a.with(agesOf(row))
		j.Replace = append(j.Replace, *row)
		j.Records += row.Count
		c.Gone = c.Gone.Plus(row.Gone)
		if row.Count > 0 {
			c.Pieces = append(c.Pieces, Piece{Len: row.Bytes, Count: row.Count, MaxTime: row.MaxTime, Row: row})
		}
	}
	c.First, c.Last = a.first, a.last
	j.Copies, j.Bytes = append(j.Copies, c), j.Bytes+bytes
	all := ages{j.Oldest, j.Newest}.with(a)
	j.Oldest, j.Newest = all.first, all.last
	return true
}

const (
	maxGap  = 256 << 10 // bytes that are read though not wanted, to save a request
	maxRead = 8 << 20   // bytes that one request for rows asks for
)

// place plans the reads of the rows that are replaced: what lies together in a segment is read together. It tells the pieces where their bytes come to lie.
func (j *Job) place() {
	var from []*metadata.Row // of each piece
	var pieces []*Piece
	for i := range j.Replace {
		if j.Replace[i].Count > 0 {
			from = append(from, &j.Replace[i])
		}
	}
	for i := range j.Copies {
		for k := range j.Copies[i].Pieces {
			pieces = append(pieces, &j.Copies[i].Pieces[k])
		}
	}
	order := make([]int, len(from))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(strings.Compare(from[a].Segment.String(), from[b].Segment.String()), cmp.Compare(from[a].Start, from[b].Start))
	})
	size := int64(0)
	for _, i := range order {
		row := from[i]
		if n := len(j.Reads); n > 0 {
			last := &j.Reads[n-1]
			end, to := last.At+last.Len, row.Start+row.Bytes
			if last.ID == row.Segment && row.Start-end <= maxGap && to-last.At <= maxRead {
				last.Len, size = to-last.At, size+to-end
				pieces[i].At = size - row.Bytes
				continue
			}
		}
		pieces[i].At = size
		for at, end := row.Start, row.Start+row.Bytes; at < end; at += maxRead {
			j.Reads = append(j.Reads, Read{ID: row.Segment, At: at, Len: min(maxRead, end-at)})
		}
		size += row.Bytes
	}
}
