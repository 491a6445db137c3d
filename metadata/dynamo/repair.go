package dynamo

import (
	"bytes"
	"context"
	"fmt"

	"github.com/varvelog/varve/metadata"
)

// Attributes of LOG|ERA.
const (
	attrEraBegun = "begun"
	attrEraDone  = "done"
)

// EraMark implements metadata.Repairer.
func (t *Table) EraMark(ctx context.Context) (m metadata.EraMark, err error) {
	c := reading("EraMark", "", metadata.EraKey())
	it, err := t.get(ctx, c, true)
	if err != nil || it == nil {
		return m, err
	}
	f := &fields{key: c.key, item: it}
	m.Begun = f.number(attrEraBegun, 0, maxNumber)
	m.Done = f.number(attrEraDone, 0, m.Begun)
	if f.err != nil {
		return metadata.EraMark{}, c.error("", f.err)
	}
	return m, nil
}

// SetEraMark implements metadata.Repairer.
func (t *Table) SetEraMark(ctx context.Context, m metadata.EraMark) error {
	c := writing("SetEraMark", "", metadata.EraKey())
	x := newExpr()
	x.assign(attrEraBegun, x.num(m.Begun))
	x.assign(attrEraDone, x.num(m.Done))
	x.require("(" + x.absent(attrEraBegun) + " OR (" + x.name(attrEraBegun) + "<=" + x.num(m.Begun) + " AND " + x.name(attrEraDone) + "<=" + x.num(m.Done) + "))")
	_, _, err := t.set(ctx, c, x)
	return err
}

// Fence implements metadata.Repairer. A repeat raises the epochs once more, which does no harm.
func (t *Table) Fence(ctx context.Context, lane metadata.LaneID) (*metadata.Head, error) {
	c := writing("Fence", lane, metadata.HeadKey(lane))
	x := newExpr()
	for e := range metadata.Epochs {
		x.increase(metadata.EpochAttr(e), metadata.FenceStep)
	}
	x.require(x.exists(attrNext))
	image, _, err := t.set(ctx, c, x)
	switch {
	case err != nil:
		return nil, err
	case image == nil:
		return nil, c.error("", metadata.ErrNoLane)
	}
	return c.head(image)
}

// SetCuts implements metadata.Repairer. A repeat after a lost answer finds the cuts as they were to be.
func (t *Table) SetCuts(ctx context.Context, was *metadata.State, cuts []metadata.Cut) (*metadata.State, error) {
	c := writing("SetCuts", was.Lane, metadata.StateKey(was.Lane))
	if len(cuts) < 1 || len(cuts) > metadata.MaxCuts {
		return nil, c.error("", &metadata.FieldError{Field: "cuts", Value: fmt.Sprint(len(cuts)), Valid: fmt.Sprintf("1 to %d", metadata.MaxCuts)})
	}
	packed := metadata.AppendCuts(nil, cuts)
	x := newExpr()
	x.assign(attrCuts, x.value(binary(packed)))
	x.require(x.exists(attrArchived))
	if len(was.Cuts) == 0 {
		x.require(x.absent(attrCuts))
	} else {
		x.require(x.is(attrCuts, binary(metadata.AppendCuts(nil, was.Cuts))))
	}
	image, ok, err := t.set(ctx, c, x)
	switch {
	case err != nil:
		return nil, err
	case image == nil:
		return nil, c.error("", metadata.ErrNoState)
	}
	s, err := c.state(image)
	if err == nil && !ok && !bytes.Equal(metadata.AppendCuts(nil, s.Cuts), packed) {
		return nil, c.error("", metadata.ErrChanged)
	}
	return s, err
}

// Jump implements metadata.Repairer. A request that comes late finds the lane gone on, or sets again what it set.
func (t *Table) Jump(ctx context.Context, lane metadata.LaneID, next int64, slots []metadata.Slot, to int64) (*metadata.Head, error) {
	c := writing("Jump", lane, metadata.HeadKey(lane))
	if len(slots) == 0 || to < 1 {
		return nil, c.error("", &metadata.FieldError{Field: "jump", Value: fmt.Sprintf("%d slots to %d", len(slots), to), Valid: "slots, and an offset"})
	}
	x := newExpr()
	end := x.num(to)
	for _, s := range slots {
		x.assign(metadata.EndAttr(s), end)
	}
	x.require(x.absentOrUnder(metadata.EndAttr(slots[0]), number(to))) // all of them jump together
	x.require(x.isNumber(attrNext, next), x.isNumber(attrFirst, next))
	image, ok, err := t.set(ctx, c, x)
	switch {
	case err != nil:
		return nil, err
	case image == nil:
		return nil, c.error("", metadata.ErrNoLane)
	}
	h, err := c.head(image)
	if err != nil || ok {
		return h, err
	}
	for _, s := range slots {
		if h.Ends[s] < to {
			return h, c.error("", metadata.ErrChanged)
		}
	}
	return h, nil
}
