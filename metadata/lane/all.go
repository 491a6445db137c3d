package lane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// AllTable is what CommitAll needs of the table.
type AllTable interface {
	Table
	metadata.Transactor
	metadata.Stepper
}

// AllConfig is what CommitAll works with. The fields are those of Config, but for Refresh.
type AllConfig struct {
	Table        AllTable
	Env          env.Env
	Writer       int
	SettleBudget time.Duration
	// Refresh is called before anything is committed to the lane of a part whose head shows a newer configuration than the part's. It returns the version
	// that is known then, or why one of the part's slots takes nothing any more. nil: all of them do.
	Refresh func(ctx context.Context, part int) (version int64, err error)
	OnImage func(*metadata.Head)
	Hooks   Hooks
}

// Whole is one durable segment that is committed to several lanes at once. The fields are those of Segment.
type Whole struct {
	ID       segment.ID
	Minted   metadata.Stamp
	Deadline time.Duration
	Parts    []Part // of different lanes
	// Offsets of groups that are moved in the same transaction; a lease or an offset that is another refuses all of it, for good, with a
	// *metadata.OffsetsRefusedError.
	Offsets []metadata.StepOffsets
}

func (s *Whole) tooOld(e env.Env) bool { return s.Minted.Age(Now(e)) >= metadata.MaxSegmentAge }

// Part is one lane's part of it.
type Part struct {
	Lane    metadata.LaneID
	Version int64
	Start   int64
	Slots   []metadata.SlotEntry
	Expect  []metadata.Expect
	Tokens  []metadata.Token
}

// CommitAll appends a segment to all its lanes in one transaction, all or none, and returns a Result for each
// part; a base of -1 means that the slot's records are in the log and their offsets could not be read back. It
// keeps no order with what a Writer of the process sends to the same lanes, and costs two writes per lane and
// the reading of all heads, before and after: it is fit for lanes under about 20 commits/s. Errors are those of
// a Writer; conflicts up to the deadline are metadata.ErrContended too; an id that may not be committed any
// more is ErrStaleID: put the bytes again under a new one. A ctx that ends has what is under way reported as
// ErrUnknown; when nothing is, its cause is returned and nothing was appended.
func CommitAll(ctx context.Context, cfg AllConfig, s Whole) ([]Result, error) {
	t, err := newTransaction(cfg, s)
	if err == nil {
		err = t.commit(ctx)
	}
	if err != nil {
		return nil, err
	}
	return t.results(ctx), nil
}

// transaction is the state of one CommitAll, or of one that another sends.
type transaction struct {
	cfg      AllConfig
	s        Whole
	heads    []*head // of the parts
	commits  []metadata.Commit
	since    []int64 // orders that the lanes had reached before the latest attempt
	attempts int
	setbacks int
	once     bool  // the commits are Once
	last     error // why the latest step changed nothing
}

func newTransaction(cfg AllConfig, s Whole) (*transaction, error) {
	if cfg.SettleBudget == 0 {
		cfg.SettleBudget = DefaultSettleBudget
	}
	if len(s.Parts) == 0 {
		return nil, &metadata.FieldError{Field: "parts", Value: "0", Valid: "1 or more"}
	}
	t := &transaction{cfg: cfg, s: s}
	for _, p := range s.Parts {
		t.heads = append(t.heads, &head{
			lane: p.Lane, table: cfg.Table, env: cfg.Env, writer: cfg.Writer, onImage: cfg.OnImage, hooks: cfg.Hooks,
		})
	}
	return t, nil
}

// commit returns nil when the transaction is applied. Each round begins in a state where it is neither applied
// nor under way.
func (t *transaction) commit(ctx context.Context) error {
	for {
		if err := t.over(ctx); err != nil {
			return err
		}
		if err := t.prepare(ctx); err != nil {
			if !transient(err) {
				return err
			}
			t.wait(ctx, err)
			continue
		}
		err := t.attempt(ctx)
		var refused *metadata.RefusedError
		switch {
		case err == nil:
			return nil
		case errors.Is(err, metadata.ErrOutcomeUnknown):
			if applied, err := t.settle(ctx); applied || err != nil {
				return err
			}
		case errors.As(err, &refused):
			if applied, err := t.refused(ctx, refused); applied || err != nil {
				return err
			}
		case transient(err):
			t.wait(ctx, err)
		default:
			return err
		}
	}
}

// over tells why nothing more is sent.
func (t *transaction) over(ctx context.Context) error {
	var err error
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case t.s.tooOld(t.cfg.Env):
		return fmt.Errorf("%w: %s was minted over %v ago", ErrStaleID, t.s.ID, metadata.MaxSegmentAge)
	case t.cfg.Env.Mono() < t.s.Deadline:
		return nil
	default:
		err = ErrDeadline
	}
	if t.last != nil {
		err = fmt.Errorf("%w: %w", err, t.last)
	}
	return err
}

// inTime bounds ctx by the deadline.
func (t *transaction) inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	return t.cfg.Env.WithTimeout(ctx, t.s.Deadline-t.cfg.Env.Mono())
}

// prepare makes the commits of the next attempt.
func (t *transaction) prepare(ctx context.Context) error {
	ctx, cancel := t.inTime(ctx)
	defer cancel()
	t.commits, t.since = t.commits[:0], t.since[:0]
	for i, p := range t.s.Parts {
		v, err := t.heads[i].look(ctx)
		if err != nil {
			return err
		}
		if !v.floor.IsZero() && !v.floor.Less(t.s.ID) || v.version > p.Version && v.class != t.s.ID.Class() {
			return fmt.Errorf("%w: %s is not above the floor %s of lane %s, or not of its class %s",
				ErrStaleID, t.s.ID, v.floor, p.Lane, v.class)
		}
		if err := t.refresh(ctx, i, v); err != nil {
			return err
		}
		t.since = append(t.since, v.next)
		t.commits = append(t.commits, metadata.Commit{
			Lane: p.Lane, Minted: t.s.Minted, Writer: t.cfg.Writer, Epoch: v.epoch, Cap: metadata.CapFor(v.first, 1),
			Entries: []metadata.Entry{{ID: t.s.ID, Start: p.Start, Slots: p.Slots}}, Expect: p.Expect, Tokens: p.Tokens,
			Once: t.once, Since: v.next,
		})
	}
	return nil
}

// refresh takes in the configuration that the head of a part has shown.
func (t *transaction) refresh(ctx context.Context, part int, v view) (err error) {
	p := &t.s.Parts[part]
	if v.version > p.Version && t.cfg.Refresh != nil {
		p.Version, err = t.cfg.Refresh(ctx, part)
	}
	return err
}

// attempt sends the transaction, and sends it again under the same token while the outcome is unknown. The
// table remembers a token for ten minutes; an id gets too old no later than that, which ends the repeats in
// time. An answer other than success to a repeat tells nothing of the first: only a success settles it.
func (t *transaction) attempt(ctx context.Context) error {
	e := t.cfg.Env
	t.attempts++
	token := t.s.ID.String() + "." + strconv.Itoa(t.attempts) // another token for other conditions
	repeats, unknown := 0, error(nil)
	until := t.s.Deadline + t.cfg.SettleBudget/2 // the other half is left for the fence
	for {
		e.At(env.BeforeCommit)
		sent := e.Mono()
		err := t.send(ctx, token)
		t.cfg.Hooks.commit(CommitEvent{
			Lane: t.commits[0].Lane, Segments: 1, Attempt: t.attempts, Duration: e.Mono() - sent, Err: err,
		})
		e.At(env.AfterCommit)
		if errors.Is(err, metadata.ErrOutcomeUnknown) {
			unknown = err
		}
		if err == nil || unknown == nil {
			return err
		}
		if !transient(err) || e.Sleep(ctx, backoff(e, repeats)) != nil || e.Mono() >= until || t.s.tooOld(e) {
			return unknown
		}
		repeats++
	}
}

func (t *transaction) send(ctx context.Context, token string) error {
	if len(t.s.Offsets) > 0 {
		return t.cfg.Table.CommitStep(ctx, token, t.commits, t.s.Offsets)
	}
	return t.cfg.Table.CommitAll(ctx, token, t.commits)
}

// settle fences one head, without which none of the transaction can be applied any more, and looks there.
func (t *transaction) settle(ctx context.Context) (applied bool, err error) {
	ctx, cancel := t.cfg.Env.WithTimeout(ctx, max(0, t.s.Deadline-t.cfg.Env.Mono())+t.cfg.SettleBudget)
	defer cancel()
	_, branch, err := t.heads[0].settle(ctx, t.commits[0], t.since[0])
	t.last = fmt.Errorf("the answer was lost, and the attempt was not applied: %w", metadata.ErrUnavailable)
	return branch == FoundInHead || branch == FoundInChunk, err
}

// refused deals with a definite refusal; neither applied nor an error: try again.
func (t *transaction) refused(ctx context.Context, refused *metadata.RefusedError) (applied bool, err error) {
	if refused.Head == nil {
		return false, refused
	}
	i := slices.IndexFunc(t.commits, func(c metadata.Commit) bool { return c.Lane == refused.Lane })
	h, c, image := t.heads[i], t.commits[i], refused.Head
	h.see(image, t.since[i])
	reason := metadata.WhyRefused(c, image)
	why := fmt.Errorf("%w: %v", refused, reason)
	switch reason {
	case metadata.ReasonAlreadyThere: // something below us sent it twice; all or none were applied
		return true, nil
	case metadata.ReasonToken, metadata.ReasonOffset:
		return false, conditionError(c, image, reason)
	case metadata.ReasonFull:
		t.last = why
		if image.Next < metadata.CapFor(image.First, 1) {
			return false, nil
		}
		within, cancel := t.inTime(ctx)
		defer cancel()
		if err := h.spill(within, image); err != nil {
			t.wait(ctx, backpressure(err))
		}
	default: // an epoch, or what prepare reports from the view
		t.wait(ctx, why)
	}
	return false, nil
}

func (t *transaction) wait(ctx context.Context, why error) {
	e := t.cfg.Env
	t.last = why
	d := backoff(e, t.setbacks)
	t.setbacks++
	e.Sleep(ctx, min(d, t.s.Deadline-e.Mono()))
}

// results reads back where the parts are, and spills the heads that have a whole chunk.
func (t *transaction) results(ctx context.Context) []Result {
	ctx, cancel := t.cfg.Env.WithTimeout(ctx, t.cfg.SettleBudget)
	defer cancel()
	all := make([]Result, len(t.s.Parts))
	for i, p := range t.s.Parts {
		s := settlement{head: t.heads[i], c: t.commits[i], since: t.since[i]}
		found := s.find(ctx)
		all[i] = Result{ID: t.s.ID, Order: -1, Attempts: t.attempts}
		if found {
			all[i].Order = s.at.Order
		}
		for _, slot := range p.Slots {
			r := SlotResult{Slot: slot.Slot, Base: -1}
			if found {
				r.Base = s.at.Bases[slot.Slot]
			}
			all[i].Slots = append(all[i].Slots, r)
		}
		if s.image != nil && s.image.Next-s.image.First >= s.image.K {
			t.heads[i].spill(ctx, s.image) // a failure is the hook's to tell; the next commit tries again
		}
	}
	return all
}
