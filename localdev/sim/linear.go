package sim

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/varvelog/varve/sdk"
)

// A partition is an object with a state, of which processes ask something, and are answered at some later moment or never. It is linearizable if each request can be
// taken to have happened at one moment between question and answer, so that all answers are those of a partition that does one thing after the other. Porcupine looks
// for such an order.

// step is a request as the model sees it. What was not applied is none, unless its refusal has told something.
type step struct {
	does  doing
	what  string
	sums  []uint64 // of the records that are appended
	at    int64    // appends: the offset of the first; an end read: the end that was told; a read: the highest offset that was given
	end   *int64   // the end that it was to be at
	token int64    // under which it was to be, that was told, or that was to be
	was   int64    // the token before
	known bool     // of a fence: it was told that it is so
}

type doing uint8

const (
	appends doing = iota
	refused       // an append, told end and token
	readsEnd
	readsToken
	setsToken
	reads    // records
	readsAll // in the end
)

func (x *step) String() string { return x.what }

// state is a partition's.
type state struct {
	end, token int64
	sum        uint64 // of all records, in order
}

func (s state) String() string { return fmt.Sprintf("end %d and token %d", s.end, s.token) }

// partitionModel is what a partition does.
var partitionModel = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(before, input, _ any) (bool, any) {
		s, x := before.(state), input.(*step)
		held := (x.end == nil || *x.end == s.end) && (x.token == 0 || x.token == s.token)
		switch x.does {
		case appends:
			return held && x.at == s.end, s.with(x.sums)
		case refused:
			return !held && x.at == s.end && x.was == s.token, s
		case readsEnd:
			return x.at == s.end, s
		case readsToken:
			return x.was == s.token, s
		case setsToken:
			if s.token != x.was {
				return !x.known, s
			}
			return true, state{s.end, x.token, s.sum}
		case reads:
			return x.at < s.end, s
		}
		return s == state{token: s.token}.with(x.sums), s
	},
}

// with is the state when these records were appended.
func (s state) with(sums []uint64) state {
	for _, sum := range sums {
		s.end, s.sum = s.end+1, s.sum*1099511628211^sum
	}
	return s
}

func sumsOf(values []string) (sums []uint64) {
	for _, v := range values {
		f := fnv.New64a()
		f.Write([]byte(v))
		sums = append(sums, f.Sum64())
	}
	return sums
}

// inTheEnd is after all that was asked.
const inTheEnd = math.MaxInt64

// undecidedAfter is how long porcupine may look at one object.
const undecidedAfter = 2 * time.Second

// object is something that is to be linearizable, with all that was asked of it. States and inputs are fmt.Stringers.
type object struct {
	About
	name, kind string
	model      porcupine.Model
	history    []porcupine.Operation
}

// Linearizable: what processes were told of each partition, and of what groups have committed for it, is what one would have told that does one thing after the other.
func Linearizable(h *History, l *Log) { linearizable(h, h.linear(l)) }

// linearizable takes time of the machine's, and is to be called outside of a world's bubble.
func linearizable(h *History, objects []object) {
	for _, o := range objects {
		switch porcupine.CheckOperationsTimeout(o.model, o.history, undecidedAfter) {
		case porcupine.Ok:
			h.Count("porcupine: linearizable " + o.kind)
		case porcupine.Unknown:
			h.Count("porcupine: undecided")
		case porcupine.Illegal:
			h.Bad(o.About, "what was told of the %s of %s is not linearizable: %s", o.kind, o.name, o.stuck())
		}
	}
}

// stuck says how far an order goes that explains a history, and what was answered first of that it does not explain.
func (o object) stuck() string {
	_, info := porcupine.CheckOperationsVerbose(o.model, o.history, undecidedAfter)
	longest := []porcupine.Operation(nil)
	for _, partial := range info.PartialLinearizationsOperations()[0] {
		if len(partial) > len(longest) {
			longest = partial
		}
	}
	s, in := o.model.Init(), map[any]bool{}
	for _, x := range longest {
		_, s = o.model.Step(s, x.Input, nil)
		in[x.Input] = true
	}
	rest := slices.DeleteFunc(slices.Clone(o.history), func(x porcupine.Operation) bool { return in[x.Input] })
	slices.SortFunc(rest, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	if len(rest) == 0 {
		return "all was explained"
	}
	return fmt.Sprintf("%d of %d requests lead to %v, where this cannot be: %v", len(longest), len(o.history), s, rest[0].Input)
}

// linear is all that is to be linearizable.
func (h *History) linear(l *Log) (all []object) {
	requests := h.requests(l)
	for _, at := range slices.SortedFunc(maps.Keys(requests), Partition.compare) {
		all = append(all, object{About{At: at}, at.String(), "records", partitionModel, requests[at]})
	}
	return append(all, h.commits(l)...)
}

// requests are the requests to each partition, with the time from question to answer.
func (h *History) requests(l *Log) map[Partition][]porcupine.Operation {
	all := map[Partition][]porcupine.Operation{}
	add := func(at Partition, asked, told time.Time, x *step) {
		o := porcupine.Operation{Input: x, Call: int64(asked.Sub(h.began)), Return: int64(told.Sub(h.began))}
		if told.IsZero() {
			o.Return = inTheEnd - 1 // at any time
		}
		all[at] = append(all[at], o)
	}
	seen := map[*Together]bool{}
	for _, o := range h.Ops {
		if o.With == nil {
			h.appended(l, []*Op{o}, add)
		} else if !seen[o.With] {
			seen[o.With] = true
			for _, ops := range o.With.byPartition() {
				h.appended(l, ops, add)
			}
		}
	}
	for _, x := range h.observed {
		add(x.at, x.asked, x.told, &x.step)
	}
	for at, values := range l.Values {
		whole := &step{does: readsAll, what: "the log is read in the end", sums: sumsOf(values)}
		all[at] = append(all[at], porcupine.Operation{Input: whole, Call: inTheEnd, Return: inTheEnd})
		if h.wasDeleted(at.Topic) { // two partitions, one after the other
			delete(all, at)
		}
	}
	return all
}

// byPartition are its records to each partition, in the order of the first.
func (t *Together) byPartition() (parts [][]*Op) {
	index := map[Partition]int{}
	for _, o := range t.Ops {
		i, known := index[o.Partition]
		if !known {
			i = len(parts)
			index[o.Partition], parts = i, append(parts, nil)
		}
		parts[i] = append(parts[i], o)
	}
	return parts
}

// appended adds one append of records to one partition. Where nobody was told an offset the log says which it has, if it has one; what it does not have and was not
// acknowledged was never done.
func (h *History) appended(l *Log, ops []*Op, add func(Partition, time.Time, time.Time, *step)) {
	o, values := ops[0], []string(nil)
	for _, o := range ops {
		values = append(values, o.Value)
	}
	x := &step{what: fmt.Sprintf("%s appends %s", o.By, strings.Join(values, ", ")), sums: sumsOf(values)}
	if o.With != nil {
		x.end, x.token = o.With.End, o.With.Token
	}
	offset, there := l.Find(o)
	told, applied := o.Told, o.Outcome() == sdk.Applied
	var refusal *sdk.ConditionError
	switch {
	case errors.As(o.Err, &refusal):
		x.does, x.at, x.was = refused, refusal.End, refusal.Token
		x.what += fmt.Sprintf(": refused, the end is %d and the token %d", x.at, x.was)
	case applied && o.Offset >= 0:
		offset = o.Offset
		x.what += fmt.Sprintf(": at %d", offset)
	case applied && !there:
		offset = -1 // nowhere
	case o.Outcome() == sdk.NotApplied || !there:
		return
	case !applied:
		told = time.Time{}
	}
	if x.does == appends {
		x.at = offset
		for i, o := range ops {
			if applied && o.Offset >= 0 && o.Offset != offset+int64(i) {
				x.at = -1 // not one after the other
			}
		}
	}
	add(o.Partition, o.Invoked, told, x)
}

// observation is a request that is no append.
type observation struct {
	at          Partition
	asked, told time.Time
	step
}

// ReadEnd records that somebody was told a partition's end, by a strong read that was asked for then.
func (h *History) ReadEnd(by string, at Partition, asked time.Time, end int64) {
	h.observe(at, asked, step{does: readsEnd, what: fmt.Sprintf("%s reads the end: %d", by, end), at: end})
}

// ReadToken likewise, of the fencing token.
func (h *History) ReadToken(by string, at Partition, asked time.Time, token int64) {
	h.observe(at, asked, step{does: readsToken, what: fmt.Sprintf("%s reads the token: %d", by, token), was: token})
}

func (h *History) observe(at Partition, asked time.Time, s step) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.observed = append(h.observed, &observation{at, asked, h.now(), s})
}

// SetsToken records that somebody asks for the token to be raised. The answer is recorded by what it returns.
func (h *History) SetsToken(by string, at Partition, from, to int64) (told func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := &observation{at: at, asked: h.now(), step: step{does: setsToken, what: fmt.Sprintf("%s raises the token from %d to %d", by, from, to), was: from, token: to}}
	h.observed = append(h.observed, x)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		x.told, x.known = h.now(), true
		x.what += ": it is"
	}
}

// reads records that somebody was given a record: of what it is given at one moment the last. It is called with the history locked.
func (h *History) reads(about About, offset int64) {
	now := h.now()
	if last := h.given[about]; last != nil && last.told.Equal(now) {
		last.step.at = max(last.step.at, offset)
		return
	}
	x := &observation{at: about.At, asked: now, told: now, step: step{does: reads, what: about.By + " reads", at: offset}}
	h.given[about] = x
	h.observed = append(h.observed, x)
}
