package lane

import (
	"context"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
)

// chunksPerPage bounds what a settlement holds in memory.
const chunksPerPage = 32

// settle finds out whether the update c, whose outcome is unknown, was applied. since is an order that the lane
// had reached before it was sent. What a doubt leaves behind keeps later attempts of this head from overtaking
// this one.
func (h *head) settle(ctx context.Context, c metadata.Commit, since int64) (s settlement, branch Branch, err error) {
	start := h.env.Mono()
	s = settlement{head: h, c: c, since: since}
	branch, err = s.run(ctx)
	if branch == Unknown {
		err = &UnknownError{Lane: c.Lane, ID: c.Entries[0].ID, Since: since, Cause: err}
		if !s.fenced {
			h.doubt()
		}
	}
	h.hooks.settle(SettleEvent{Lane: h.lane, Branch: branch, Duration: h.env.Mono() - start})
	return s, branch, err
}

// settlement is the state of one settlement.
type settlement struct {
	*head
	c      metadata.Commit
	since  int64
	image  *metadata.Head // the latest
	fenced bool           // image shows an epoch above c's: the attempt can no longer be applied
	lost   bool           // since is of a time that the table has forgotten: the attempt may lie before it
	at     metadata.Located
}

// run goes through the steps. The order matters: an attempt may be applied at any moment before the fence, so
// what an image from before it does not show proves nothing; and an entry may move from the head to a chunk at
// any moment, but only in that direction, so the chunks are read after the head.
func (s *settlement) run(ctx context.Context) (Branch, error) {
	err := s.get(ctx, func() (*metadata.Head, error) { return s.table.Head(ctx, s.lane, metadata.Strong) })
	if err != nil {
		return Unknown, err
	}
	if s.inHead() {
		return FoundInHead, nil
	}
	if !s.fenced {
		s.env.At(env.BeforeFence)
		err = s.get(ctx, func() (*metadata.Head, error) { return s.table.RaiseEpoch(ctx, s.lane, s.writer, s.c.Epoch) })
		if err != nil {
			return Unknown, err
		}
		s.env.At(env.AfterFence)
		if s.inHead() {
			return FoundInHead, nil
		}
	}
	return s.chunks(ctx)
}

// find looks for an update that is known to be applied.
func (s *settlement) find(ctx context.Context) bool {
	err := s.get(ctx, func() (*metadata.Head, error) { return s.table.Head(ctx, s.lane, metadata.Strong) })
	if err != nil || s.inHead() {
		return err == nil
	}
	branch, _ := s.chunks(ctx)
	return branch == FoundInChunk
}

// get gets an image, repeating what failed until ctx is done.
func (s *settlement) get(ctx context.Context, get func() (*metadata.Head, error)) error {
	err := persist(ctx, s.env, func() (err error) {
		s.image, err = get()
		return err
	})
	if err == nil {
		s.see(s.image, s.since)
		ahead := s.image.Epochs[s.writer] - s.c.Epoch
		s.fenced = ahead > 0
		s.lost = s.lost || s.image.Next < s.since || ahead >= metadata.FenceStep
	}
	return err
}

func (s *settlement) inHead() (ok bool) {
	s.at, ok = s.image.Locate(s.c.Entries)
	return ok
}

// chunks looks through every chunk between since and the head's entries.
func (s *settlement) chunks(ctx context.Context) (Branch, error) {
	k, end := s.image.K, s.image.First
	missing := false
	for from := metadata.ChunkOf(s.since, k); from < end; from += chunksPerPage * k {
		to := min(from+chunksPerPage*k, end)
		page, err := s.page(ctx, from, to)
		if err != nil {
			return Unknown, err
		}
		at, verdict := metadata.Settle(s.c.Entries, from, to, k, page)
		switch verdict {
		case metadata.Applied:
			s.at = at
			return FoundInChunk, nil
		case metadata.Undecided:
			missing = true
		}
	}
	switch {
	case missing:
		return Unknown, metadata.ErrNoChunk
	case s.lost:
		return Unknown, errForgotten
	}
	return NotApplied, nil
}

// page reads the chunks in [from, to), however many requests that takes.
func (s *settlement) page(ctx context.Context, from, to int64) (chunks []*metadata.Chunk, err error) {
	for more := true; more && from < to; {
		var got []*metadata.Chunk
		err := persist(ctx, s.env, func() (err error) {
			got, more, err = s.table.Chunks(ctx, s.lane, from, to, chunksPerPage, metadata.Strong)
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(got) == 0 {
			break
		}
		chunks = append(chunks, got...)
		from = got[len(got)-1].First + 1
	}
	return chunks, nil
}
