package forward

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// line is a partition's records that a Poll has brought, on their way to the queue.
type line struct {
	at       sdk.TopicPartition
	records  []sdk.Record // not taken yet
	pending  []*item      // taken and not acknowledged, by offset; nothing behind them is taken
	first    int64        // of what the Poll has brought
	taken    int64        // behind the last record that was taken
	next     int64        // everything before it is finished
	attempts int          // that failed since something of it was acknowledged: how long it waits
	due      time.Duration
	over     bool // stopped, or not ours any more
}

// item is a record on its way.
type item struct {
	record   sdk.Record
	message  Message
	refusals int
	underWay bool // it is in a request of this turn
	alone    bool // it was in a request that was refused as a whole: it is sent alone
}

// Pauses between attempts: the first, then twice as long each time, up to the longest.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 10 * time.Second
	sendTimeout  = 10 * time.Second
)

// mostAtOnce is how many requests are under way at a time. It begins with one, also after a failure, and doubles with each turn that goes well.
const mostAtOnce = 8

// send sends what a Poll has brought, all of it unless ctx ends, and commits how far it came.
func (r *run) send(ctx context.Context, fetches []sdk.Fetch) error {
	var lines []*line
	for _, f := range fetches {
		at := sdk.TopicPartition{Topic: f.Topic, Partition: f.Partition}
		if r.stops[at] == nil {
			lines = append(lines, &line{at: at, records: f.Records, first: f.Records[0].Offset})
		}
	}
	var failed error
	outage := 0
	for failed == nil && ctx.Err() == nil {
		batches, wait := r.turn(ctx, lines)
		if len(batches) == 0 && wait == 0 {
			break
		}
		if len(batches) == 0 {
			r.o.Env.Sleep(ctx, wait)
			continue
		}
		var err error
		if err = r.attempt(ctx, batches); err == nil {
			outage, r.atOnce = 0, min(2*r.atOnce, mostAtOnce)
			continue
		}
		r.atOnce = 1
		if errors.Is(err, ErrDenied) {
			failed = err
			break
		}
		outage++
		if r.o.Env.Sleep(ctx, r.pause(outage)) != nil && outage > 1 {
			failed = fmt.Errorf("the queue did not answer: %w", err)
		}
	}
	r.note(lines)
	if ctx.Err() == nil {
		r.commit(ctx)
	}
	return failed
}

// pause is how long the n-th failure in a row is waited after.
func (r *run) pause(n int) time.Duration {
	return r.o.Env.Jitter(min(firstPause<<min(n-1, 10), longestPause))
}

// place is an item and where it comes from.
type place struct {
	line *line
	item *item
}

// turn takes the batches that are sent side by side. Without any it says how long to wait for one; 0: there is nothing left.
func (r *run) turn(ctx context.Context, lines []*line) (batches [][]place, wait time.Duration) {
	for len(batches) < r.atOnce {
		batch, wait := r.take(ctx, lines)
		if len(batch) == 0 && len(batches) == 0 {
			return nil, wait
		}
		if len(batch) == 0 {
			break
		}
		for _, p := range batch {
			p.item.underWay = true
		}
		batches = append(batches, batch)
	}
	return batches, 0
}

// take takes the next batch. Without one it says how long to wait for it; 0: there is nothing left.
func (r *run) take(ctx context.Context, lines []*line) (batch []place, wait time.Duration) {
	perLine := MaxBatch * r.atOnce
	if r.queue.FIFO() {
		perLine = 1
	}
	now, bytes := r.o.Env.Mono(), 0
	for i, l := range lines {
		if l.over || now < l.due {
			if !l.over && (wait == 0 || l.due-now < wait) {
				wait = l.due - now
			}
			continue
		}
		if len(l.pending) == 0 {
			r.fill(ctx, l, perLine)
		}
		if !l.over && len(l.pending) == 0 && l.due > now && (wait == 0 || l.due-now < wait) {
			wait = l.due - now
		}
		for _, it := range l.pending {
			if it.underWay {
				continue
			}
			full := len(batch) == MaxBatch || len(batch) > 0 && (bytes+len(it.message.Body) > r.maxBytes || it.alone)
			if l.over || full {
				break
			}
			batch, bytes = append(batch, place{l, it}), bytes+len(it.message.Body)
			if it.alone {
				return batch, 0
			}
		}
		if len(batch) == MaxBatch {
			rotate(lines, i+1) // so that none waits for ever behind ten others
			return batch, 0
		}
	}
	return batch, wait
}

// rotate lets the lines from n on come first.
func rotate(lines []*line, n int) {
	turned := append(append([]*line{}, lines[n:]...), lines[:n]...)
	copy(lines, turned)
}

// fill takes the next records of a line. What the filter leaves out, and what cannot be sent and is parked, is finished.
func (r *run) fill(ctx context.Context, l *line, n int) {
	for len(l.pending) < n && len(l.records) > 0 && !l.over {
		record := l.records[0]
		if r.o.Keep != nil && !r.o.Keep(&record) {
			r.report.LeftOut++
			l.drop()
			continue
		}
		m, err := r.message(ctx, &record)
		switch {
		case errors.Is(err, ErrTooLarge):
			if len(l.pending) > 0 { // what is before it first
				return
			}
			if !r.park(ctx, l, &item{record: record}, err) {
				return
			}
			l.drop()
			continue
		case err != nil: // its topic could not be read
			l.fail(r)
			return
		}
		l.pending = append(l.pending, &item{record: record, message: m})
		l.drop()
	}
}

// drop takes the first record away.
func (l *line) drop() {
	l.taken = l.records[0].Offset + 1
	l.records = l.records[1:]
	l.settle()
}

// settle finds out how far the line is.
func (l *line) settle() {
	switch {
	case len(l.pending) > 0:
		l.next = l.pending[0].record.Offset
	case len(l.records) > 0:
		l.next = l.records[0].Offset // what is between has no record
	default:
		l.next = l.taken
	}
}

// fail lets the line wait.
func (l *line) fail(r *run) {
	l.attempts++
	l.due = r.o.Env.Mono() + r.pause(l.attempts)
}

// finish takes a pending item out.
func (l *line) finish(it *item) {
	l.pending = slices.DeleteFunc(l.pending, func(p *item) bool { return p == it })
	l.settle()
}

// answer is what the queue says to a batch.
type answer struct {
	refused []error
	err     error // the whole request's
}

// attempt sends batches once, side by side, and settles what became of them when all have been answered. Its error is that of whole requests.
func (r *run) attempt(ctx context.Context, batches [][]place) (failed error) {
	answers := make([]answer, len(batches))
	var requests sync.WaitGroup
	for i, batch := range batches {
		requests.Go(func() { answers[i] = r.request(ctx, batch) })
	}
	requests.Wait()
	r.report.Requests += int64(len(batches))
	for i, batch := range batches {
		failed = errors.Join(failed, r.settle(ctx, batch, answers[i]))
	}
	return failed
}

// request sends a batch once. It runs beside others, and changes nothing.
func (r *run) request(ctx context.Context, batch []place) (a answer) {
	messages := make([]Message, len(batch))
	for i, p := range batch {
		messages[i] = p.item.message
	}
	limited, cancel := r.o.Env.WithTimeout(ctx, sendTimeout)
	defer cancel()
	a.refused, a.err = r.queue.Send(limited, messages)
	return a
}

// settle does what an answer says.
func (r *run) settle(ctx context.Context, batch []place, a answer) error {
	for _, p := range batch {
		p.item.underWay = false
	}
	refused := a.refused
	switch {
	case errors.Is(a.err, ErrRefused) && len(batch) > 1: // because of which?
		for _, p := range batch {
			p.item.alone = true
		}
		return nil
	case errors.Is(a.err, ErrRefused):
		refused = []error{a.err}
	case a.err != nil:
		return a.err
	case len(refused) != len(batch):
		return fmt.Errorf("%d answers to %d messages", len(refused), len(batch))
	}
	for i, p := range batch {
		if refused[i] == nil {
			r.report.Sent++
			p.line.attempts = 0
			p.line.finish(p.item)
		}
	}
	for i, p := range batch {
		if refused[i] != nil {
			r.refuse(ctx, p, refused[i])
		}
	}
	return nil
}

// refuse counts a refusal, and parks what has been refused too often.
func (r *run) refuse(ctx context.Context, p place, why error) {
	p.item.refusals++
	if p.item.refusals < r.o.Attempts {
		p.line.fail(r)
		return
	}
	if len(p.line.pending) > 0 && p.line.pending[0] != p.item { // in order: what is before it first, then it is tried once more
		p.line.fail(r)
		return
	}
	if r.park(ctx, p.line, p.item, fmt.Errorf("refused %d times: %w", p.item.refusals, why)) {
		p.line.attempts = 0
		p.line.finish(p.item)
	}
}

// park dead-letters the first record of a line that is not finished, or stops the line. The dead letter and the commit behind the record are one transaction, so
// that there is one dead letter, whatever crashes when. false: the line is over, or it is to be tried again.
func (r *run) park(ctx context.Context, l *line, it *item, why error) bool {
	if r.o.DeadLetters == "" {
		l.over = true
		r.stop(l.at, it.record.Offset, why)
		return false
	}
	err := r.consumer.Step(ctx, r.producer, map[sdk.TopicPartition]sdk.CommitOffset{l.at: {Offset: it.record.Offset + 1}}, r.dead(it, why))
	switch {
	case err == nil:
		r.report.Dead++
		return true
	case errors.Is(err, sdk.ErrNotHeld), errors.Is(err, sdk.ErrBehind), errors.Is(err, sdk.ErrUnknown):
		l.over = true // somebody goes on from what is committed
	case errors.Is(err, sdk.ErrTooLarge), errors.Is(err, sdk.ErrInvalid), errors.Is(err, sdk.ErrUnknownTopic), errors.Is(err, sdk.ErrTopicGone):
		l.over = true
		r.stop(l.at, it.record.Offset, errors.Join(why, fmt.Errorf("topic of dead letters %q: %w", r.o.DeadLetters, err)))
	default:
		l.fail(r)
	}
	return false
}

// dead is the dead letter of a record: as it was, and where it was, why it is dead, and after how many attempts, in headers.
func (r *run) dead(it *item, why error) *sdk.Record {
	d := &sdk.Record{Topic: r.o.DeadLetters, Key: it.record.Key, Value: it.record.Value, Timestamp: it.record.Timestamp}
	d.Headers = append(d.Headers, it.record.Headers...)
	text := why.Error()
	for _, x := range [][2]string{{sdk.HeaderOriginTopic, it.record.Topic}, {sdk.HeaderOriginPartition, strconv.Itoa(it.record.Partition)},
		{sdk.HeaderOriginOffset, strconv.FormatInt(it.record.Offset, 10)}, {sdk.HeaderError, text[:min(len(text), 1<<10)]}, {sdk.HeaderAttempts, strconv.Itoa(it.refusals)}} {
		d.Headers = append(d.Headers, segment.Header{Key: x[0], Value: []byte(x[1])})
	}
	return d
}

// note notes how far the lines came. Where another member goes on that is its business.
func (r *run) note(lines []*line) {
	for _, l := range lines {
		if l.next > l.first && (!l.over || r.stops[l.at] != nil) {
			r.offsets[l.at] = sdk.CommitOffset{Offset: l.next}
		}
	}
}

// commit commits what was noted. What fails is committed with what comes next, or at the end.
func (r *run) commit(ctx context.Context) error {
	if len(r.offsets) == 0 {
		return nil
	}
	err := r.consumer.CommitOffsets(ctx, r.offsets)
	if err == nil || errors.Is(err, sdk.ErrNotHeld) || errors.Is(err, sdk.ErrBehind) { // all others are committed
		clear(r.offsets)
		return nil
	}
	return err
}
