package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/group"
)

// remoteTable is the table of groups' members over HTTP: each method is one request, which the function carries out as the adapter would. That also repeats it where
// that does no harm, so a request is sent again here only if that is so.
type remoteTable struct {
	*remote
	group string
	clock atomic.Pointer[sighted]
	rows  map[string]*metadata.Topic // of who asks for Topics: by name, as they were described
}

var _ group.Table = (*remoteTable)(nil)

func newRemoteTable(r *remote, group string) *remoteTable {
	return &remoteTable{remote: r, group: group, rows: map[string]*metadata.Topic{}}
}

// path is that of something of the group.
func (t *remoteTable) path(elements ...string) *url.URL {
	return t.fetch.JoinPath(append([]string{"v1", "groups", t.group}, elements...)...)
}

// send sends v, and reads the answer into answer unless that is nil.
func (t *remoteTable) send(ctx context.Context, op, method string, u *url.URL, v any, once bool, answer any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if answer == nil {
		answer = &struct{}{}
	}
	return t.client.json(ctx, request{op: op, method: method, url: u, contentType: wire.JSONType, body: body, once: once}, answer)
}

// sighted is the table's time, and when it was told.
type sighted struct {
	time time.Time
	mono time.Duration
}

// ServiceTime is the table's time as of the latest state, carried on.
func (t *remoteTable) ServiceTime() (time.Time, bool) {
	s := t.clock.Load()
	if s == nil {
		return time.Time{}, false
	}
	return s.time.Add(t.env.Mono() - s.mono), true
}

// Topic is as a function describes it, which is as the table has it as far as members need it.
func (t *remoteTable) Topic(ctx context.Context, name string) (*metadata.Topic, error) {
	described, err := t.topic(ctx, name)
	if err != nil {
		return nil, err
	}
	return described.row, nil
}

// Topics asks, of those in the list, for what it does not know: that which is new there, or has grown.
func (t *remoteTable) Topics(ctx context.Context, after string, _ int) (topics []*metadata.Topic, more bool, err error) {
	var page wire.Topics
	query := url.Values{}
	if after != "" {
		query.Set("after", after)
	}
	if err := t.get(ctx, "Topics", t.fetch.JoinPath("v1", "topics"), query, &page); err != nil {
		return nil, false, err
	}
	if n := len(page.Topics); page.More && (n == 0 || page.Topics[n-1].Name <= after) {
		return nil, false, fmt.Errorf("%w: %w: a list of topics after %q that does not go on", ErrUnreachable, errGarbage, after)
	}
	rows := make([]*metadata.Topic, len(page.Topics))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelReads)
	for i, listed := range page.Topics {
		if known := t.rows[listed.Name]; known != nil && string(known.ID) == listed.ID && known.Partitions == listed.Partitions {
			rows[i] = known
			continue
		}
		g.Go(func() (err error) {
			if rows[i], err = t.Topic(ctx, listed.Name); errors.Is(err, ErrUnknownTopic) { // deleted meanwhile
				err = nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, false, err
	}
	if after == "" {
		clear(t.rows)
	}
	for _, row := range rows {
		if row != nil {
			t.rows[row.Name] = row
			topics = append(topics, row)
		}
	}
	return topics, page.More, nil
}

func (t *remoteTable) Member(ctx context.Context, _, name string) (*metadata.Member, error) {
	var m wire.GroupMember
	if err := t.get(ctx, "Member", t.path("members", name), nil, &m); err != nil {
		return nil, err
	}
	return sensible(m.Decode())
}

// sensible makes of an answer that cannot be read one that was not given.
func sensible[T any](v T, err error) (T, error) {
	if err != nil {
		err = fmt.Errorf("%w: %w: %w", ErrUnreachable, errGarbage, err)
	}
	return v, err
}

func (t *remoteTable) GroupState(ctx context.Context, _ string) (*metadata.GroupState, error) {
	var s wire.GroupState
	if err := t.get(ctx, "GroupState", t.path("state"), nil, &s); err != nil {
		return nil, err
	}
	if s.NowMs > 0 {
		t.clock.Store(&sighted{time.UnixMilli(s.NowMs).UTC(), t.env.Mono()})
	}
	return sensible(s.Decode())
}

// GroupLane reads the whole state: only a transaction whose outcome is not known wants a lane by itself.
func (t *remoteTable) GroupLane(ctx context.Context, group string, lane metadata.LaneID) (*metadata.GroupLane, error) {
	s, err := t.GroupState(ctx, group)
	if err != nil {
		return nil, err
	}
	for _, l := range s.Lanes {
		if l.Lane == lane {
			return l, nil
		}
	}
	return metadata.NewGroupLane(lane), nil
}

// PutGroup has nothing to do: Join makes the group.
func (t *remoteTable) PutGroup(context.Context, *metadata.Group) error { return nil }

// Join is sent once: after a later session, or a burial, it would put the row again.
func (t *remoteTable) Join(ctx context.Context, _ string, m *metadata.Member, before metadata.SessionID) error {
	return t.act(ctx, m.Name, wire.MemberAction{Action: wire.Join, Session: string(m.Session), Before: string(before), TimeoutMs: m.Timeout.Milliseconds(), Topics: m.Topics,
		Pattern: m.Pattern, Client: m.Client})
}

func (t *remoteTable) Beat(ctx context.Context, _, member string, s metadata.SessionID) error {
	return t.act(ctx, member, wire.MemberAction{Action: wire.Beat, Session: string(s)})
}

func (t *remoteTable) Watched(ctx context.Context, _ string, m *metadata.Member, d time.Duration) error {
	return t.act(ctx, m.Name, wire.MemberAction{Action: wire.Watched, Session: string(m.Session), Beat: m.Beat, QuietMs: m.Quiet.Milliseconds(), MoreMs: d.Milliseconds()})
}

func (t *remoteTable) Leave(ctx context.Context, _, member string, s metadata.SessionID) error {
	return t.act(ctx, member, wire.MemberAction{Action: wire.Leave, Session: string(s)})
}

func (t *remoteTable) Bury(ctx context.Context, _ string, m *metadata.Member) error {
	return t.act(ctx, m.Name, wire.MemberAction{Action: wire.Bury, Session: string(m.Session), Beat: m.Beat, QuietMs: m.Quiet.Milliseconds()})
}

func (t *remoteTable) act(ctx context.Context, member string, a wire.MemberAction) error {
	return t.send(ctx, "Member"+a.Action, http.MethodPost, t.path("members", member), a, a.Action == wire.Join, nil)
}

func (t *remoteTable) PutPlan(ctx context.Context, _ string, p *metadata.Plan) error {
	return t.send(ctx, "PutPlan", http.MethodPut, t.path("plan"), wire.PlanOf(p), false, nil)
}

func (t *remoteTable) SetLeases(ctx context.Context, _ string, lane metadata.LaneID, changes []metadata.LeaseChange) (*metadata.GroupLane, error) {
	return t.lane(ctx, "SetLeases", lane, wire.LaneAction{Leases: wire.ChangesOf(changes)})
}

// CommitOffsets commits at the function's time.
func (t *remoteTable) CommitOffsets(ctx context.Context, _ string, lane metadata.LaneID, _ time.Time, commits []metadata.OffsetCommit) (*metadata.GroupLane, error) {
	return t.lane(ctx, "CommitOffsets", lane, wire.LaneAction{Offsets: wire.OffsetsOf(commits)})
}

func (t *remoteTable) lane(ctx context.Context, op string, lane metadata.LaneID, a wire.LaneAction) (*metadata.GroupLane, error) {
	var answer wire.LaneAnswer
	if err := t.send(ctx, op, http.MethodPost, t.path("lanes", string(lane)), a, false, &answer); err != nil {
		return nil, err
	}
	image, err := sensible(answer.Lane.Decode())
	switch {
	case err != nil:
		return nil, err
	case image.Lane != lane:
		return nil, fmt.Errorf("%w: %w: lane %q where %q was asked for", ErrUnreachable, errGarbage, image.Lane, lane)
	case !answer.Done:
		return image, fmt.Errorf("%w: a lease or an offset of lane %s", ErrChanged, lane)
	}
	return image, nil
}

// CommitStep moves offsets; records are not appended over HTTP as a part of a transaction.
func (t *remoteTable) CommitStep(ctx context.Context, token string, commits []metadata.Commit, offsets []metadata.StepOffsets) error {
	if len(commits) > 0 {
		return unsupported("append as a part of a transaction")
	}
	var answer wire.MovesAnswer
	err := t.send(ctx, "CommitStep", http.MethodPost, t.path("moves"), wire.MovesOf(token, offsets), true, &answer)
	switch {
	case errors.Is(err, ErrUnknown), errors.Is(err, ErrUnreachable): // the member sends it again, under the same token
		return fmt.Errorf("%w: %w", metadata.ErrOutcomeUnknown, err)
	case err != nil:
		return err
	case answer.Done:
		return nil
	case answer.Lane == nil:
		return fmt.Errorf("%w: %w: moves that were not made, and it is not said why", metadata.ErrOutcomeUnknown, errGarbage)
	}
	image, err := sensible(answer.Lane.Decode())
	if err != nil {
		return fmt.Errorf("%w: %w", metadata.ErrOutcomeUnknown, err)
	}
	return &metadata.OffsetsRefusedError{Group: t.group, Image: image}
}
