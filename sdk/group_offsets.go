package sdk

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/metadata"
)

// GroupOffset is what a group has committed for a partition: the next offset to be read.
type GroupOffset struct {
	Partition int       `json:"partition"`
	Offset    int64     `json:"offset"`
	Metadata  string    `json:"metadata,omitempty"`
	At        time.Time `json:"committed_at,omitzero"`
}

// GroupOffsets returns what the group has committed for the topic, by partition; those for which it has committed nothing are left out. ErrUnknownGroup if
// there is none.
func (a *Admin) GroupOffsets(ctx context.Context, group, topic string) ([]GroupOffset, error) {
	if err := metadata.ValidateName("group", group); err != nil {
		return nil, err
	}
	if a.log.remote != nil {
		return a.log.remote.groupOffsets(ctx, group, topic)
	}
	t, err := a.topic(ctx, topic)
	if err != nil {
		return nil, err
	}
	if _, err := a.log.table.Group(ctx, group); errors.Is(err, ErrUnknownGroup) {
		return nil, fmt.Errorf("group %q: %w", group, ErrUnknownGroup)
	} else if err != nil {
		return nil, groupError(group, err)
	}
	all := []GroupOffset{}
	for _, lane := range t.Lanes {
		l, err := a.log.table.GroupLane(ctx, group, lane)
		if err != nil {
			return nil, groupError(group, err)
		}
		for slot, c := range l.Slots {
			if p, ok := t.Partition(metadata.Place{Lane: lane, Slot: metadata.Slot(slot)}); ok && c.Offset != metadata.NoOffset {
				all = append(all, GroupOffset{Partition: p, Offset: c.Offset, Metadata: c.Metadata, At: c.At})
			}
		}
	}
	slices.SortFunc(all, func(x, y GroupOffset) int { return cmp.Compare(x.Partition, y.Partition) })
	return all, nil
}

// CommitGroupOffsets commits offsets, by partition, for a group that has no members, over HTTP: whoever reads partitions by a Reader of their own keeps in the
// log how far they have come. A lane's partitions are committed all or none. A *GroupActiveError if members live; ErrBehind if more is committed already,
// since only ResetGroup goes back; a *RangeError for an offset past the end. After any other error it may be called again with the same arguments.
//
// A log that is opened directly is read by a Consumer, which commits as a member: there it is ErrNotSupported.
func (a *Admin) CommitGroupOffsets(ctx context.Context, group, topic string, offsets map[int]CommitOffset) error {
	if err := metadata.ValidateName("group", group); err != nil {
		return err
	}
	if err := metadata.ValidateName("topic", topic); err != nil {
		return err
	}
	if err := a.log.live(); err != nil {
		return err
	}
	if a.log.remote == nil {
		return fmt.Errorf("commit for group %q without being a member: %w, except over HTTP: read by NewConsumer, or set offsets by ResetGroup", group, ErrNotSupported)
	}
	return a.log.remote.commitGroup(ctx, group, topic, offsets)
}

func (r *remote) groupURL(group string) *url.URL {
	return r.fetch.JoinPath("v1", "groups", group, "offsets")
}

func (r *remote) groupOffsets(ctx context.Context, group, topic string) ([]GroupOffset, error) {
	if err := metadata.ValidateName("topic", topic); err != nil {
		return nil, err
	}
	var said wire.GroupOffsets
	if err := r.get(ctx, "GroupOffsets", r.groupURL(group), url.Values{"topic": {topic}}, &said); err != nil {
		return nil, remoteGroupError(group, topic, err)
	}
	all := []GroupOffset{}
	for _, o := range said.Offsets {
		all = append(all, GroupOffset(o))
	}
	return all, nil
}

func (r *remote) commitGroup(ctx context.Context, group, topic string, offsets map[int]CommitOffset) error {
	asked := wire.Commit{Topic: topic}
	for _, p := range slices.Sorted(maps.Keys(offsets)) {
		asked.Offsets = append(asked.Offsets, wire.CommitOffset{Partition: p, Offset: offsets[p].Offset, Metadata: offsets[p].Metadata})
	}
	var body bytes.Buffer
	if err := json.NewEncoder(&body).Encode(asked); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	q := request{op: "CommitGroupOffsets", method: http.MethodPost, url: r.groupURL(group), accept: wire.JSONType, contentType: wire.JSONType, body: body.Bytes()}
	return remoteGroupError(group, topic, r.client.call(ctx, q, nil))
}

// remoteGroupError is the error of a group's request as users see it.
func remoteGroupError(group, topic string, err error) error {
	var e *RemoteError
	if !errors.As(err, &e) {
		return err
	}
	partition := 0
	if e.said.Partition != nil {
		partition = *e.said.Partition
	}
	switch {
	case e.Code == wire.GroupActive && len(e.said.Members) > 0:
		return &GroupActiveError{Group: group, Members: e.said.Members}
	case errors.Is(err, ErrUnknownGroup):
		return fmt.Errorf("group %q: %w", group, ErrUnknownGroup)
	}
	if r := outside(topic, partition, number(e.said.Offset), err); r != nil {
		return r
	}
	if topic == "" {
		return fmt.Errorf("group %q: %w", group, err)
	}
	return fmt.Errorf("group %q, topic %q: %w", group, topic, err)
}
