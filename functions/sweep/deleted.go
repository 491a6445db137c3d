package sweep

import (
	"context"
	"fmt"
	"math"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/topics"
	"github.com/varvelog/varve/segment"
)

// deleted carries the deletion of topics on.
func (r *run) deleted(ctx context.Context) error {
	if r.o.DryRun {
		return r.wouldDelete(ctx)
	}
	left, err := r.topics.Clean(ctx, r.empty)
	if err != nil {
		return err
	}
	r.report.Waiting = int64(len(left))
	waiting := map[segment.TopicID]bool{}
	for _, g := range left {
		waiting[g.ID] = true
	}
	for _, g := range r.deletions {
		if !waiting[g.ID] {
			r.tell(topicDeletion(g))
		}
	}
	return nil
}

func (r *run) wouldDelete(ctx context.Context) error {
	for _, g := range r.deletions {
		emptied := false
		if topics.Due(g, r.now) {
			var err error
			if emptied, err = r.empty(ctx, g); err != nil {
				return err
			}
		}
		if emptied && g.Pass > 0 {
			r.tell(topicDeletion(g))
		} else {
			r.report.Waiting++
		}
	}
	return nil
}

func topicDeletion(g *metadata.GoneTopic) Deletion {
	return Deletion{Kind: Topic, Name: fmt.Sprintf("%s (%s)", g.Name, g.ID), Why: whyTopic}
}

// empty removes what a deleted topic has besides heads and states. Its chunks and its GONE row are the only ones that know which intake segments were its own, so
// those go first. Nothing else is under its archive prefixes, because a topic's id is never used again. What is above the floor waits for a later run, and all
// that would lead to it stays.
func (r *run) empty(ctx context.Context, g *metadata.GoneTopic) (bool, error) {
	if r.byID[g.ID] != nil {
		return false, nil // it was deleted after this run had listed it: what its lanes name is taken for needed
	}
	intake, err := r.emptyIntake(ctx, g)
	if err != nil {
		return false, err
	}
	archived, err := r.emptyArchive(ctx, g)
	if err != nil || !intake || !archived {
		return false, err
	}
	for p := range len(g.Lanes) * g.Width {
		rows, err := r.rows(ctx, g.ID, p, 0, math.MaxInt64, nil)
		if err != nil {
			return false, err
		}
		if err := r.dropRows(ctx, rows, whyTopic); err != nil {
			return false, err
		}
	}
	return true, r.forgetOffsets(ctx, g)
}

// forgetOffsets removes what groups have committed for a deleted topic. Who still has it assigned commits nothing more: its lanes are gone.
func (r *run) forgetOffsets(ctx context.Context, g *metadata.GoneTopic) error {
	if r.o.DryRun {
		return nil
	}
	for after, more := "", true; more; {
		var page []*metadata.Group
		var err error
		if page, more, err = r.table.Groups(ctx, after, groupsPage); err != nil {
			return err
		}
		for _, group := range page {
			after = group.Name
			if err := r.table.ForgetOffsets(ctx, group.Name, g.Lanes); err != nil {
				return err
			}
		}
		more = more && len(page) > 0
	}
	return nil
}

const groupsPage = 100

func (r *run) emptyIntake(ctx context.Context, g *metadata.GoneTopic) (all bool, err error) {
	b, all := r.newBatch(), true
	for _, id := range g.Named {
		all = all && r.old(id)
		for _, lane := range g.Lanes {
			b.add(id, lane, whyTopic)
		}
	}
	for _, lane := range g.Lanes {
		whole, err := b.emptyLane(ctx, lane)
		if err != nil {
			return false, err
		}
		all = all && whole
	}
	return all, b.flush(ctx)
}

// emptyLane lets go of a lane's chunks, up to the first with a segment above the floor.
func (b *batch) emptyLane(ctx context.Context, lane metadata.LaneID) (all bool, err error) {
	for from, more := int64(0), true; more; {
		var page []*metadata.Chunk
		if page, more, err = b.table.Chunks(ctx, lane, from, math.MaxInt64, chunksPage, metadata.Strong); err != nil {
			return false, unreadable(err)
		}
		mine := laneChunks{id: lane, why: whyTopic}
		for _, c := range page {
			for i := range c.Entries {
				if !b.old(c.Entries[i].ID) {
					b.chunks = append(b.chunks, mine)
					return false, nil
				}
			}
			b.chunk(c, whyTopic)
			from = c.First + int64(len(c.Entries))
			mine.first, mine.to = append(mine.first, c.First), from
		}
		b.chunks = append(b.chunks, mine)
		more = more && len(page) > 0
		if len(b.suspects) >= batchSuspects {
			if err := b.flush(ctx); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

func (r *run) emptyArchive(ctx context.Context, g *metadata.GoneTopic) (all bool, err error) {
	all = true
	for _, class := range g.Classes {
		prefix := archivePrefix(class, g.ID)
		for after, more := "", true; more; {
			page, err := r.objects.List(ctx, prefix, after, 0)
			if err != nil {
				return false, err
			}
			var suspects []*suspect
			for _, o := range page.Objects {
				n, err := segment.ParseName(o.Name)
				switch {
				case err != nil:
					r.keep(o.Name, err.Error())
				case r.old(n.ID):
					suspects = append(suspects, &suspect{id: n.ID, topic: g.ID, size: o.Size, why: whyTopic})
				default:
					all = false
				}
			}
			if err := r.remove(ctx, suspects); err != nil {
				return false, err
			}
			after, more = page.Last, page.More
		}
	}
	return all, nil
}
