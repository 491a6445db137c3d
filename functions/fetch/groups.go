package fetch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/varvelog/varve/functions/internal/api"
	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

// groups lists the groups.
func (s *Service) groups(ctx context.Context, c *api.Call) error {
	after, err := c.After("group")
	if err != nil {
		return err
	}
	list, more, err := s.log.Backend().Table.Groups(ctx, after, wire.MaxListed)
	if err != nil {
		return err
	}
	answer := wire.Groups{Groups: []string{}, More: more}
	for _, g := range list {
		answer.Groups = append(answer.Groups, g.Name)
	}
	return c.JSON(http.StatusOK, answer)
}

// group describes a group.
func (s *Service) group(ctx context.Context, c *api.Call) error {
	q, err := c.Query("start")
	if err != nil {
		return err
	}
	start, ok := map[string]sdk.Position{"": sdk.Earliest, "earliest": sdk.Earliest, "latest": sdk.Latest}[q.Get("start")]
	if !ok {
		return api.BadField("start", q.Get("start"), "earliest or latest")
	}
	d, err := s.log.Admin().DescribeGroup(ctx, c.Name("group"), start)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, d)
}

// committed tells what a group has committed for a topic.
func (s *Service) committed(ctx context.Context, c *api.Call) error {
	q, err := c.Query("topic")
	if err != nil {
		return err
	}
	t, err := s.topicOf(ctx, c.Name("group"), q.Get("topic"))
	if err != nil {
		return err
	}
	table := s.log.Backend().Table
	if _, err := table.Group(ctx, c.Name("group")); err != nil {
		return unknownGroup(c.Name("group"), err)
	}
	answer := wire.GroupOffsets{Offsets: []wire.GroupOffset{}}
	for _, lane := range t.Lanes {
		l, err := table.GroupLane(ctx, c.Name("group"), lane)
		if err != nil {
			return err
		}
		for slot, at := range l.Slots {
			if p, ok := t.Partition(metadata.Place{Lane: lane, Slot: metadata.Slot(slot)}); ok && at.Offset != metadata.NoOffset {
				answer.Offsets = append(answer.Offsets, wire.GroupOffset{Partition: p, Offset: at.Offset, Metadata: at.Metadata, At: at.At})
			}
		}
	}
	slices.SortFunc(answer.Offsets, func(a, b wire.GroupOffset) int { return cmp.Compare(a.Partition, b.Partition) })
	return c.JSON(http.StatusOK, answer)
}

func (s *Service) topicOf(ctx context.Context, group, topic string) (*metadata.Topic, error) {
	if err := metadata.ValidateName("group", group); err != nil {
		return nil, err
	}
	return api.TopicRow(ctx, s.log, topic)
}

func unknownGroup(group string, err error) error {
	if errors.Is(err, metadata.ErrUnknownGroup) {
		return fmt.Errorf("%w %q: its first commit makes it, or its first member", sdk.ErrUnknownGroup, group)
	}
	return err
}

// commit commits offsets for a group that has no members. It takes the partitions' leases, as a member would, so that a member that joins meanwhile and this
// request cannot both commit; commits; and gives the leases back. A lane's partitions are committed all or none. Whoever does not know what became of the request
// sends it again: what is committed already stands, and is no refusal.
func (s *Service) commit(ctx context.Context, c *api.Call) error {
	if _, err := c.Query(); err != nil {
		return err
	}
	group := c.Name("group")
	if err := metadata.ValidateName("group", group); err != nil {
		return err
	}
	_, body, err := c.Body(wire.JSONType)
	if err != nil {
		return err
	}
	request, err := readCommit(body)
	if err != nil {
		return err
	}
	t, err := s.topicOf(ctx, group, request.Topic)
	if err != nil {
		return err
	}
	lanes, err := byLane(t, request)
	if err != nil {
		return err
	}
	if err := s.ready(ctx, group, t, request); err != nil {
		return err
	}
	w := &committer{table: s.log.Backend().Table, service: s, group: group, topic: t, session: s.session()}
	for _, lane := range slices.Sorted(maps.Keys(lanes)) {
		if err := w.commit(ctx, lane, lanes[lane]); err != nil {
			return err
		}
	}
	return c.JSON(http.StatusOK, struct{}{})
}

func readCommit(body []byte) (*wire.Commit, error) {
	var request wire.Commit
	const want = `{"topic":"…","offsets":[{"partition":0,"offset":17,"expected":12,"metadata":"…"}, …]}, the last two if wanted`
	if err := decodeBody(body, &request, want, "topic", "offsets", "partition", "offset", "expected", "metadata"); err != nil {
		return nil, err
	}
	if n := len(request.Offsets); n == 0 || n > wire.MaxCommits {
		return nil, api.BadField("offsets", fmt.Sprint(n), fmt.Sprintf("1 to %d partitions", wire.MaxCommits))
	}
	if err := complete(body); err != nil {
		return nil, err
	}
	seen := map[int]bool{}
	for i, o := range request.Offsets {
		at := fmt.Sprintf("offsets[%d].", i)
		switch {
		case seen[o.Partition]:
			return nil, api.BadField(at+"partition", fmt.Sprint(o.Partition), "each partition once")
		case o.Offset < 0:
			return nil, api.BadField(at+"offset", fmt.Sprint(o.Offset), "0 or more")
		case o.Expected.Given && o.Expected.Offset < -1:
			return nil, api.BadField(at+"expected", fmt.Sprint(o.Expected.Offset), "0 or more; null for nothing")
		case len(o.Metadata) > metadata.MaxCommitMetadata:
			return nil, api.BadField(at+"metadata", o.Metadata, fmt.Sprintf("at most %d bytes", metadata.MaxCommitMetadata))
		}
		seen[o.Partition] = true
	}
	return &request, nil
}

// complete refuses a body that leaves out what must not be taken for 0.
func complete(body []byte) error {
	var given struct {
		Offsets []*struct {
			Partition *int   `json:"partition"`
			Offset    *int64 `json:"offset"`
		} `json:"offsets"`
	}
	if err := json.Unmarshal(body, &given); err != nil {
		return api.BadField("body", err.Error(), "JSON")
	}
	for i, o := range given.Offsets {
		switch at := fmt.Sprintf("offsets[%d]", i); {
		case o == nil:
			return api.BadField(at, "null", "a partition and its offset")
		case o.Partition == nil:
			return api.BadField(at+".partition", "none", "which one")
		case o.Offset == nil:
			return api.BadField(at+".offset", "none", "0 or more")
		}
	}
	return nil
}

func byLane(t *metadata.Topic, request *wire.Commit) (map[metadata.LaneID][]wire.CommitOffset, error) {
	lanes := map[metadata.LaneID][]wire.CommitOffset{}
	for _, o := range request.Offsets {
		if o.Partition < 0 || o.Partition >= t.Partitions {
			return nil, &wire.Error{Code: wire.UnknownPartition, Topic: t.Name, Partition: &o.Partition,
				Message: fmt.Sprintf("topic %q has no partition %d: it has 0 to %d", t.Name, o.Partition, t.Partitions-1)}
		}
		lane := t.Place(o.Partition).Lane
		lanes[lane] = append(lanes[lane], o)
	}
	return lanes, nil
}

// ready refuses offsets past the end and groups with members, and makes the group if there is none.
func (s *Service) ready(ctx context.Context, group string, t *metadata.Topic, request *wire.Commit) error {
	ends, err := s.log.Admin().Offsets(ctx, t.Name)
	if err != nil {
		return err
	}
	for _, o := range request.Offsets {
		if o.Partition < len(ends) && o.Offset > ends[o.Partition].End {
			return &sdk.RangeError{Topic: t.Name, Partition: o.Partition, Offset: o.Offset, Start: ends[o.Partition].Start, End: ends[o.Partition].End, Err: sdk.ErrOutOfRange}
		}
	}
	table := s.log.Backend().Table
	state, err := table.GroupState(ctx, group)
	if err != nil {
		return err
	}
	if len(state.Members) > 0 {
		e := &sdk.GroupActiveError{Group: group}
		for _, m := range state.Members {
			e.Members = append(e.Members, m.Name)
		}
		return e
	}
	return table.PutGroup(ctx, &metadata.Group{Name: group, Created: s.now()})
}

// session names a request as the holder of leases.
func (s *Service) session() metadata.SessionID {
	const alphabet = "0123456789abcdefghijklmnopqrstuv"
	var b strings.Builder
	for range 16 {
		b.WriteByte(alphabet[s.options.Env.Uint64()%32])
	}
	return metadata.SessionID(b.String())
}

// committer commits for one group.
type committer struct {
	table   metadata.Table
	service *Service
	group   string
	topic   *metadata.Topic
	session metadata.SessionID
}

// commit commits one lane's part.
func (w *committer) commit(ctx context.Context, lane metadata.LaneID, offsets []wire.CommitOffset) error {
	image, err := w.table.GroupLane(ctx, w.group, lane)
	if err != nil {
		return err
	}
	if done, err := w.check(image, offsets); done || err != nil {
		return err
	}
	var claims, releases []metadata.LeaseChange
	for _, o := range offsets {
		slot := w.topic.Place(o.Partition).Slot
		from := image.Slots[slot].Lease
		held := metadata.Lease{Session: w.session, Epoch: from.Epoch + 1}
		claims = append(claims, metadata.LeaseChange{Slot: slot, From: from, To: held})
		releases = append(releases, metadata.LeaseChange{Slot: slot, From: held, To: metadata.Lease{Epoch: held.Epoch}})
	}
	if image, err = w.table.SetLeases(ctx, w.group, lane, claims); err != nil {
		return w.active(err)
	}
	done, err := w.check(image, offsets) // nobody else commits from here on
	if err == nil && !done {
		err = w.active(w.put(ctx, lane, image, offsets))
	}
	// A lease that could not be given back is one of a session that does not live: whoever wants it takes it.
	_, _ = w.table.SetLeases(ctx, w.group, lane, releases)
	return err
}

func (w *committer) put(ctx context.Context, lane metadata.LaneID, image *metadata.GroupLane, offsets []wire.CommitOffset) error {
	var commits []metadata.OffsetCommit
	for _, o := range offsets {
		at := image.Slots[w.topic.Place(o.Partition).Slot]
		commits = append(commits, metadata.OffsetCommit{Slot: w.topic.Place(o.Partition).Slot, Lease: at.Lease, First: at.Offset == metadata.NoOffset,
			Offset: o.Offset, Metadata: o.Metadata})
	}
	_, err := w.table.CommitOffsets(ctx, w.group, lane, w.service.now(), commits)
	return err
}

// check refuses what the image refuses. done tells that all of it is committed already.
func (w *committer) check(image *metadata.GroupLane, offsets []wire.CommitOffset) (done bool, err error) {
	done = true
	for _, o := range offsets {
		at := image.Slots[w.topic.Place(o.Partition).Slot]
		same := at.Offset == o.Offset && at.Metadata == o.Metadata
		done = done && same
		switch {
		case same:
		case o.Expected.Given && o.Expected.Offset != at.Offset:
			return false, w.conflict(wire.OffsetChanged, o, at, fmt.Sprintf("expected was %d", o.Expected.Offset))
		case o.Offset < at.Offset:
			return false, w.conflict(wire.OffsetLower, o, at, "only a reset of the group (varve group reset) goes back")
		}
	}
	return done, nil
}

func (w *committer) conflict(code string, o wire.CommitOffset, at metadata.Committed, why string) error {
	return &wire.Error{Code: code, Topic: w.topic.Name, Partition: &o.Partition, Offset: &o.Offset, Committed: &at.Offset,
		Message: fmt.Sprintf("group %q, topic %q, partition %d: offset %d is not committed, as %d is (-1: nothing); %s", w.group, w.topic.Name, o.Partition, o.Offset, at.Offset, why)}
}

// active is a lease that was lost: a member has come, or another request like this one.
func (w *committer) active(err error) error {
	if errors.Is(err, metadata.ErrChanged) {
		return &wire.Error{Code: wire.GroupActive, Retriable: true, Topic: w.topic.Name,
			Message: fmt.Sprintf("somebody else is committing for group %q; a part of the offsets may be committed: send them again, unless the group has members now", w.group)}
	}
	return err
}
