package sim

import (
	"context"
	"errors"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/metadata"
)

// What a group has committed for a partition is changed by requests whose answers may be lost, and shown by strong reads and by the image that an answer brings. All of these
// are recorded here, as those who ask are answered, for the model in linearcommits.go.

// change is what a request is to change of one slot. It is applied if its lease stands and the committed offset is from low to high.
type change struct {
	metadata.Place
	lease     metadata.Lease
	low, high int64
	to        metadata.Lease
	offset    int64 // that is committed then, or kept
}

// kept is the offset of a change of the lease alone.
const kept = math.MinInt64

func leaseChange(l metadata.LaneID, c metadata.LeaseChange) change {
	return change{metadata.Place{Lane: l, Slot: c.Slot}, c.From, metadata.NoOffset, math.MaxInt64, c.To, kept}
}

func offsetCommit(l metadata.LaneID, c metadata.OffsetCommit) change {
	low, high := int64(0), c.Offset
	if c.First {
		low, high = metadata.NoOffset, metadata.NoOffset
	}
	return change{metadata.Place{Lane: l, Slot: c.Slot}, c.Lease, low, high, c.Lease, c.Offset}
}

func offsetMove(l metadata.LaneID, m metadata.OffsetMove) change {
	return change{metadata.Place{Lane: l, Slot: m.Slot}, m.Lease, m.From, m.From, m.Lease, m.To}
}

func offsetReset(l metadata.LaneID, r metadata.OffsetReset) change {
	return change{metadata.Place{Lane: l, Slot: r.Slot}, r.From.Lease, r.From.Offset, r.From.Offset, metadata.Lease{Epoch: r.From.Lease.Epoch + 1}, r.Offset}
}

func (c *change) holds(s committed) bool {
	return s.lease == c.lease && c.low <= s.offset && s.offset <= c.high
}

func (c *change) after(s committed) committed {
	if c.offset != kept {
		s.offset = c.offset
	}
	s.lease = c.to
	return s
}

// groupRequest is one request about what a group has committed.
type groupRequest struct {
	by, group   string
	asked, told time.Time // told is zero where nobody was told
	changes     []change  // all or none
	err         error
	images      []*metadata.GroupLane // that were shown between asked and told
	all         bool                  // a lane that was not shown is as new
	sent        attempts
}

// attempts are how often a request was sent.
type attempts struct {
	applied  atomic.Int32 // said the service
	possibly atomic.Int32 // those included: all that the service has not refused
}

// The outcomes of the changes of a request.
func (r *groupRequest) applied() bool {
	return !r.told.IsZero() && (r.sent.applied.Load() > 0 || r.err == nil && r.sent.possibly.Load() == 0)
}
func (r *groupRequest) never() bool {
	return !r.told.IsZero() && r.err != nil && r.sent.possibly.Load() == 0
}

// exact tells whether the image is the one that the changes left: nothing that came before can have been the same request.
func (r *groupRequest) exact() bool {
	return r.applied() && r.err == nil && r.sent.possibly.Load() <= 1
}

// image is what was shown of a lane, nil if nothing was.
func (r *groupRequest) image(l metadata.LaneID) *metadata.GroupLane {
	for _, image := range r.images {
		if image.Lane == l {
			return image
		}
	}
	if r.all {
		return metadata.NewGroupLane(l)
	}
	return nil
}

// asksGroup records that somebody asks for changes of what a group has committed.
func (h *History) asksGroup(by, group string, changes []change) *groupRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &groupRequest{by: by, group: group, changes: changes, asked: h.now()}
	h.asked = append(h.asked, r)
	return r
}

// asksStep likewise, for a transaction, which is one request however often it is sent under its token.
func (h *History) asksStep(by, group, token string, changes []change) *groupRequest {
	h.mu.Lock()
	r := h.sent[token]
	if r != nil {
		r.told = time.Time{}
	}
	h.mu.Unlock()
	if r == nil {
		r = h.asksGroup(by, group, changes)
		h.mu.Lock()
		h.sent[token] = r
		h.mu.Unlock()
	}
	return r
}

// tellsGroup records the answer, with what it shows.
func (h *History) tellsGroup(r *groupRequest, err error, images ...*metadata.GroupLane) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.told, r.err = h.now(), err
	for _, image := range images {
		if image != nil {
			r.images = append(r.images, image)
		}
	}
	if errors.Is(err, metadata.ErrChanged) && r.never() && len(r.images) > 0 && !r.refuted() {
		h.bad(About{By: r.by}, "%s was refused %v, and nothing was against it", r.by, r)
	}
}

// refuted tells whether an image shows why the changes were refused.
func (r *groupRequest) refuted() bool {
	for i := range r.changes {
		if image := r.image(r.changes[i].Lane); image != nil && !r.changes[i].holds(*committedIn(image, r.changes[i].Slot)) {
			return true
		}
	}
	return false
}

// showsGroup records that a strong read that was asked for then has shown all that a group has committed.
func (h *History) showsGroup(by, group string, asked time.Time, lanes []*metadata.GroupLane) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, &groupRequest{by: by, group: group, asked: asked, told: h.now(), images: lanes, all: true})
}

// showGroups records what all groups have committed in the end.
func (w *World) showGroups() {
	for _, group := range slices.Sorted(maps.Keys(w.groups())) {
		asked := w.clock()
		state, err := w.table().GroupState(context.Background(), group)
		w.must(err)
		w.showsGroup("the world in the end", group, asked, state.Lanes)
	}
}

// groups are those of which something was asked.
func (h *History) groups() map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	groups := map[string]bool{}
	for _, r := range h.asked {
		groups[r.group] = true
	}
	return groups
}

// recorder is the table as a process's parts have it, rules taken out and all.
type recorder struct {
	metadata.Table
	whole watched
}

// Items is for those who prepare transactions: what is prepared for others stays as it is, whatever was taken out.
func (t recorder) Items(commits []metadata.Commit, offsets []metadata.StepOffsets) ([]types.TransactWriteItem, error) {
	return t.whole.Items(commits, offsets)
}

// told records the answer if there is somebody to take it.
func (t recorder) told(r *groupRequest, err error, images ...*metadata.GroupLane) {
	if p := t.whole.p; p.Alive() {
		p.world.tellsGroup(r, err, images...)
	}
}

func (t recorder) asks(group string, changes ...change) *groupRequest {
	return t.whole.p.world.asksGroup(t.whole.p.Name, group, changes)
}

// SetLeases implements metadata.GroupOffsets.
func (t recorder) SetLeases(ctx context.Context, group string, l metadata.LaneID, all []metadata.LeaseChange) (*metadata.GroupLane, error) {
	r := t.asks(group, changesOf(l, all, leaseChange)...)
	image, err := t.Table.SetLeases(r.sending(ctx), group, l, all)
	t.told(r, err, image)
	return image, err
}

// CommitOffsets implements metadata.GroupOffsets.
func (t recorder) CommitOffsets(ctx context.Context, group string, l metadata.LaneID, at time.Time, all []metadata.OffsetCommit) (*metadata.GroupLane, error) {
	r := t.asks(group, changesOf(l, all, offsetCommit)...)
	image, err := t.Table.CommitOffsets(r.sending(ctx), group, l, at, all)
	t.told(r, err, image)
	return image, err
}

// ResetOffsets implements metadata.GroupOffsets.
func (t recorder) ResetOffsets(ctx context.Context, group string, l metadata.LaneID, at time.Time, all []metadata.OffsetReset) (*metadata.GroupLane, error) {
	r := t.asks(group, changesOf(l, all, offsetReset)...)
	image, err := t.Table.ResetOffsets(r.sending(ctx), group, l, at, all)
	t.told(r, err, image)
	return image, err
}

// CommitStep implements metadata.Stepper. All offsets are of one group: that of the member that steps.
func (t recorder) CommitStep(ctx context.Context, token string, commits []metadata.Commit, offsets []metadata.StepOffsets) error {
	if len(offsets) == 0 {
		return t.Table.CommitStep(ctx, token, commits, offsets)
	}
	var changes []change
	for _, o := range offsets {
		changes = append(changes, changesOf(o.Lane, o.Moves, offsetMove)...)
	}
	r := t.whole.p.world.asksStep(t.whole.p.Name, offsets[0].Group, token, changes)
	err := t.Table.CommitStep(r.sending(ctx), token, commits, offsets)
	var refused *metadata.OffsetsRefusedError
	if errors.As(err, &refused) {
		t.told(r, err, refused.Image)
	} else {
		t.told(r, err)
	}
	return err
}

// GroupLane implements metadata.GroupReader.
func (t recorder) GroupLane(ctx context.Context, group string, l metadata.LaneID) (*metadata.GroupLane, error) {
	r := t.asks(group)
	image, err := t.Table.GroupLane(ctx, group, l)
	t.told(r, err, image)
	return image, err
}

// GroupState implements metadata.GroupReader.
func (t recorder) GroupState(ctx context.Context, group string) (*metadata.GroupState, error) {
	asked := t.whole.p.world.clock()
	state, err := t.Table.GroupState(ctx, group)
	if p := t.whole.p; err == nil && p.Alive() {
		p.world.showsGroup(p.Name, group, asked, state.Lanes)
	}
	return state, err
}

func changesOf[C any](l metadata.LaneID, all []C, of func(metadata.LaneID, C) change) []change {
	changes := make([]change, len(all))
	for i, c := range all {
		changes[i] = of(l, c)
	}
	return changes
}

type sendingKey struct{}

// sending is a context in which attempts to write are those of this request.
func (r *groupRequest) sending(ctx context.Context) context.Context {
	return context.WithValue(ctx, sendingKey{}, &r.sent)
}

// attempted takes in how the service has answered an attempt of a request that is recorded. What it has refused it has not done.
func attempted(ctx context.Context, op string, resp *http.Response, err error) {
	a, _ := ctx.Value(sendingKey{}).(*attempts)
	if a == nil || !strings.HasSuffix(op, "UpdateItem") && !strings.HasSuffix(op, "TransactWriteItems") {
		return
	}
	switch {
	case err == nil && resp.StatusCode == http.StatusOK:
		a.applied.Add(1)
		a.possibly.Add(1)
	case err != nil || resp.StatusCode >= http.StatusInternalServerError:
		a.possibly.Add(1)
	}
}
