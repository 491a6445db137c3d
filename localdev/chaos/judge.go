package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/varvelog/varve/functions/verify"
	"github.com/varvelog/varve/localdev/sim"
	"github.com/varvelog/varve/sdk"
)

// verdict is what a run came to.
type verdict struct {
	violations []string
	counts     sim.Counts
}

func (v *verdict) ok() bool { return len(v.violations) == 0 }

// shown is how many violations are printed, and storyLines how many lines of history with each.
const (
	shown      = 20
	storyLines = 30
)

// broken is the verdict of a run that did not come to its end.
func broken(err error) *verdict { return &verdict{violations: []string{err.Error()}} }

// judge holds the histories against the log as it is now.
func (c *conductor) judge(ctx context.Context, log *sdk.Log) *verdict {
	lines, err := readJournals(c.dir)
	if err != nil {
		return broken(err)
	}
	found, lines, err := c.look(ctx, log, lines)
	if err != nil {
		return broken(err)
	}
	v := judged(lines, found)
	report, err := verify.Run(ctx, log.Backend().Table, log.Backend().Store, verify.Options{Env: c.env})
	if err != nil {
		v.violations = append(v.violations, "verify: "+err.Error())
	}
	for _, f := range report.Findings {
		if f.Severity != verify.Information {
			v.violations = append(v.violations, fmt.Sprintf("verify: %s: %s: %s: %s", f.Severity, f.Kind, f.Where(), f.What))
		}
	}
	if missing := c.tally.missing(); len(missing) > 0 && c.playFor >= time.Minute {
		v.violations = append(v.violations, fmt.Sprintf("not played: %q", missing))
	}
	return v
}

// content is what is in the log in the end.
type content struct {
	records map[sim.Partition][]line // of kind read
	starts  map[sim.Partition]int64
	ends    map[sim.Partition]int64
}

// look reads all topics from the beginning, and what groups have committed, which is one more sample.
func (c *conductor) look(ctx context.Context, log *sdk.Log, lines []line) (*content, []line, error) {
	found := &content{records: map[sim.Partition][]line{}, starts: map[sim.Partition]int64{}, ends: map[sim.Partition]int64{}}
	now := c.env.Now().UnixNano()
	for _, group := range []string{working, stepping} {
		more, err := sample(ctx, log, group, now)
		if err != nil {
			return nil, nil, err
		}
		for _, l := range more {
			l.At, l.By = c.env.Now().UnixNano(), "judge"
			lines = append(lines, l)
		}
	}
	for _, t := range topics {
		if err := found.read(ctx, log, t.Name); err != nil {
			return nil, nil, fmt.Errorf("the log's end cannot be read: %s: %w", t.Name, err)
		}
	}
	return found, lines, nil
}

func (x *content) read(ctx context.Context, log *sdk.Log, topic string) error {
	offsets, err := log.Admin().Offsets(ctx, topic)
	if err != nil {
		return err
	}
	for _, o := range offsets {
		at := sim.Partition{Topic: topic, Number: o.Partition}
		x.records[at], x.starts[at], x.ends[at] = nil, o.Start, o.End
	}
	r, err := log.NewReader(ctx, topic, sdk.To(sdk.Latest))
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		fetches, err := r.Poll(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, f := range fetches {
			at := sim.Partition{Topic: topic, Number: f.Partition}
			for i := range f.Records {
				r := &f.Records[i]
				x.records[at] = append(x.records[at], line{Kind: read, Topic: topic, Partition: r.Partition, Offset: r.Offset, Key: string(r.Key), Value: valueOf(r)})
			}
		}
	}
}

// judged holds lines, in the order in which they were written, against the log.
func judged(lines []line, found *content) *verdict {
	r := &replay{kept: newKept(found), ops: map[string]*sim.Op{}, calls: map[string]*sim.Together{}, next: map[sim.About]int64{}, last: map[string]time.Time{}, errors: map[string]error{}, alive: map[string]bool{}, outcomes: sim.Counts{}}
	if len(lines) > 0 {
		r.now = time.Unix(0, lines[0].At)
	}
	r.history = sim.NewHistory(func() time.Time { return r.now })
	r.kept.history = r.history
	for i := range lines {
		r.now = time.Unix(0, lines[i].At)
		r.line(&lines[i])
	}
	for by, alive := range r.alive {
		if !alive {
			r.history.Died(by)
		}
	}
	log := r.log(found)
	for _, check := range checks {
		check(r.history, log)
	}
	r.kept.check()
	v := &verdict{counts: r.history.Counts()}
	maps.DeleteFunc(v.counts, func(what string, _ int) bool { return strings.HasPrefix(what, "told: ") }) // a line for each text of an error
	v.counts.Add(r.outcomes)
	for i, x := range r.history.Violations() {
		if i < shown {
			v.violations = append(v.violations, x.What+"\n"+r.history.Story(x, storyLines))
		} else {
			v.violations = append(v.violations, x.What)
		}
	}
	return v
}

// checks are those of the simulation that ask for nothing but what its users see of a log.
var checks = append([]sim.Check{sim.NeverBack, sim.AtLeastOnce, sim.ExactlyOnce, sim.InTurn}, sim.Core...)

// replay makes the simulation's history of lines.
type replay struct {
	history *sim.History
	now     time.Time
	kept    *kept
	ops     map[string]*sim.Op // by value
	calls   map[string]*sim.Together
	next    map[sim.About]int64  // of each life of a reader
	last    map[string]time.Time // when each process was last told anything
	errors  map[string]error
	alive   map[string]bool // which processes have not been killed

	outcomes sim.Counts // of records
}

func (r *replay) line(l *line) {
	at := sim.Partition{Topic: l.Topic, Number: l.Partition}
	about := sim.About{By: l.By, At: at}
	share := sim.Share{Group: l.Group, Partition: at}
	switch l.Kind {
	case append_:
		r.append(l, at)
	case accepted:
		if o := r.ops[l.Value]; o != nil {
			r.history.Accept(o)
		}
	case told:
		r.told(l)
	case begins:
		r.next[about] = l.Offset
	case read:
		if removes(l.Topic) {
			r.kept.read(l)
			return
		}
		r.history.Read(l.By, at, r.next[about], l.Offset, l.Value)
		r.next[about] = l.Offset + 1
	case assigned:
		r.history.Fact(sim.Fact{Kind: sim.Assigned, By: l.By, Share: share})
	case lost:
		r.history.Fact(sim.Fact{Kind: sim.Lost, By: l.By, Share: share})
	case given:
		r.history.HasRead(l.By, at, l.Offset, l.Value)
		r.history.Fact(sim.Fact{Kind: sim.Given, By: l.By, Share: share, Offset: l.Offset, Timeout: time.Hour}) // how old the lease was cannot be seen from here
	case finished:
		r.history.Fact(sim.Fact{Kind: sim.Finished, By: l.By, Share: share, Offset: l.Offset})
	case committed:
		r.history.Fact(sim.Fact{Kind: sim.Committed, By: l.By, Share: share, Offset: l.Offset, Asked: time.Unix(0, l.Asked), Told: r.now})
	case sampled:
		r.history.Fact(sim.Fact{Kind: sim.Sampled, Share: share, Offset: l.Offset, Asked: time.Unix(0, l.Asked), Told: r.now})
	case born:
		r.last[l.By] = r.now
		r.alive[l.By] = false
	case ended:
		r.alive[l.By] = true
	case trouble:
		what, _, _ := strings.Cut(l.Text, ":")
		r.history.Count("trouble: " + what)
	case wrong:
		r.history.Bad(about, "%s: %s", l.By, l.Text)
	}
}

func (r *replay) append(l *line, at sim.Partition) {
	if removes(l.Topic) {
		r.kept.append(l)
		return
	}
	by := l.By
	if l.Topic == web { // a client's next life goes on with its request
		by = clientOf(l.Value)
	}
	var with *sim.Together
	if l.Call != 0 {
		call := fmt.Sprint(by, " ", l.Call, " ", l.Topic)
		if r.calls[call] == nil {
			r.calls[call] = &sim.Together{Loose: l.Loose}
		}
		with = r.calls[call]
	}
	o := r.history.Invoke(by, at, l.Value, with)
	if l.From != nil {
		o.From = &sim.Source{Share: sim.Share{Group: l.From.Group, Partition: sim.Partition{Topic: l.From.Topic, Number: l.From.Partition}}, Offset: l.From.Offset}
	}
	r.ops[l.Value] = o
}

// told is what somebody was told of a record. A failure may have been as good as told since the promise before it returned: what is accepted from then on may be
// in the log.
func (r *replay) told(l *line) {
	at, o := r.now, r.ops[l.Value]
	r.outcomes[l.Failure.outcome()]++
	if l.Failure != nil {
		at = r.last[l.By]
	}
	if o == nil || o.With == nil || !o.With.Loose { // by a promise
		r.last[l.By] = r.now
	}
	if o != nil {
		r.history.Tell(o, at, l.Offset, r.error(l))
	} else if !r.kept.told(l) {
		r.history.Bad(sim.About{By: l.By}, "%s was told of %s, which it has not appended", l.By, l.Value)
	}
}

// outcome is what is known of a record.
func (f *failure) outcome() string {
	switch {
	case f == nil:
		return "acknowledged"
	case f.Unknown:
		return "unknown"
	}
	return "failed for certain"
}

// error is one error for all records of a process that failed as one.
func (r *replay) error(l *line) error {
	f := l.Failure
	if f == nil {
		return nil
	}
	id := fmt.Sprint(l.By, " ", f.Number)
	if r.errors[id] == nil {
		cause := errors.New(f.Text)
		condition := cause
		if f.Unknown {
			condition = sdk.ErrUnknown
		} else if f.Prior {
			condition = sdk.ErrPriorFailed
		}
		r.errors[id] = &sdk.DeliveryError{Err: condition, Cause: cause}
		if f.Refused {
			r.errors[id] = cause
		}
	}
	return r.errors[id]
}

// log is what was found in topics from which nothing is removed, which must be dense.
func (r *replay) log(found *content) *sim.Log {
	values := map[sim.Partition][]string{}
	for at, records := range found.records {
		if removes(at.Topic) {
			continue
		}
		values[at] = nil
		for _, x := range records {
			r.history.Read("judge", at, int64(len(values[at])), x.Offset, x.Value)
			values[at] = append(values[at], x.Value)
		}
		if n := int64(len(values[at])); n != found.ends[at] {
			r.history.Bad(sim.About{At: at}, "%v ends at %d, and %d records can be read", at, found.ends[at], n)
		}
	}
	return sim.NewLog(values)
}
