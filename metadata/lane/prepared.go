package lane

import (
	"context"
	"slices"

	"github.com/varvelog/varve/metadata"
)

// Prepared is the commit of a durable segment to all its lanes that somebody else sends, in a transaction with items of its own: once, several
// times under different tokens, late, or never. However it is sent, it is applied once at most: each commit is Once, and all of them or none are
// applied. It names no object that is gone, however late it is: what is deleted is below a floor that its heads have, and that refuses it.
type Prepared struct{ t *transaction }

// Prepare makes the commits by the heads as they are now; one that is full is spilled before. Errors are those of CommitAll, and nothing was appended.
func Prepare(ctx context.Context, cfg AllConfig, s Whole) (*Prepared, error) {
	t, err := newTransaction(cfg, s)
	if err != nil {
		return nil, err
	}
	t.once = true
	for {
		if err := t.over(ctx); err != nil {
			return nil, err
		}
		err := t.makeRoom(ctx)
		if err == nil {
			err = t.prepare(ctx)
		}
		if err == nil {
			return &Prepared{t}, nil
		}
		if !transient(err) {
			return nil, err
		}
		t.wait(ctx, err)
	}
}

// makeRoom reads all heads, and spills those that are full.
func (t *transaction) makeRoom(ctx context.Context) error {
	ctx, cancel := t.inTime(ctx)
	defer cancel()
	for _, h := range t.heads {
		reached := h.seen().next
		image, err := h.table.Head(ctx, h.lane, metadata.Strong)
		if err != nil {
			return err
		}
		h.see(image, reached)
		if image.Next >= metadata.CapFor(image.First, 1) {
			if err := h.spill(ctx, image); err != nil {
				return backpressure(err)
			}
		}
	}
	return nil
}

// Commits is what is to be sent, in one transaction.
func (p *Prepared) Commits() []metadata.Commit { return p.t.commits }

// Expired tells that it must not be sent any more: the segment is too old.
func (p *Prepared) Expired() bool { return p.t.s.tooOld(p.t.cfg.Env) }

// Settle finds out whether it was applied, and if not makes sure that it never will be: whatever its sender was told, an attempt may still be under way, for
// clients repeat in silence. It returns a Result for each part, as CommitAll does, or none and why the heads refuse it: ReasonUnexplained if
// nothing but the fence that Settle has raised does. An *UnknownError may be tried again.
func (p *Prepared) Settle(ctx context.Context) ([]Result, metadata.Reason, error) {
	t := p.t
	if rs := t.results(ctx); slices.ContainsFunc(rs, Result.found) {
		return rs, 0, nil
	}
	applied, reason, err := t.conclude(ctx)
	if applied {
		return t.results(ctx), 0, nil
	}
	return nil, reason, err
}

func (r Result) found() bool { return r.Order >= 0 }

// conclude looks for a head that refuses the transaction for good by itself, before it fences one.
func (t *transaction) conclude(ctx context.Context) (applied bool, reason metadata.Reason, err error) {
	within, cancel := t.cfg.Env.WithTimeout(ctx, t.cfg.SettleBudget)
	defer cancel()
	for i, h := range t.heads {
		s := settlement{head: h, c: t.commits[i], since: t.since[i]}
		if s.get(within, func() (*metadata.Head, error) { return h.table.Head(within, h.lane, metadata.Strong) }) != nil {
			continue
		}
		if s.inHead() {
			return true, 0, nil
		}
		why := metadata.WhyRefused(s.c, s.image)
		if !why.Final() {
			continue
		}
		switch branch, _ := s.chunks(within); branch {
		case FoundInChunk:
			return true, 0, nil
		case NotApplied:
			return false, why, nil
		}
	}
	applied, err = t.settle(ctx)
	return applied, metadata.ReasonUnexplained, err
}
