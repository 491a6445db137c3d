package group

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// catalog remembers the topics that a group's members read. It is Tick's.
type catalog struct {
	table   Topics
	env     env.Env
	refresh time.Duration

	known   *knownTopics
	asked   time.Duration     // when known was read
	names   []string          // that known answers for; nil: all
	members []metadata.Member // who read them then
	// created is those of known that were not there when an earlier look was for them, by name or pattern.
	created map[segment.TopicID]bool

	old atomic.Bool // known is, as somebody has found out
}

// knownTopics are topics as strong reads showed them.
type knownTopics struct {
	byName map[string]*metadata.Topic
	byID   map[segment.TopicID]*metadata.Topic
}

func newCatalog(t Topics, e env.Env, refresh time.Duration) (*catalog, error) {
	if refresh <= 0 {
		return nil, &metadata.FieldError{Field: "refresh of topics", Value: refresh.String(), Valid: "a time above 0"}
	}
	return &catalog{table: t, env: e, refresh: refresh}, nil
}

// of returns what the members read, at most as old as the refresh interval, or read now.
func (k *catalog) of(ctx context.Context, members []metadata.Member, fresh bool) (*knownTopics, error) {
	names := []string{}
	for _, m := range members {
		if m.Pattern != "" {
			names = nil
			break
		}
		names = append(names, m.Topics...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	fresh = k.old.Swap(false) || fresh
	if !fresh && k.known != nil && slices.Equal(names, k.names) && (names == nil) == (k.names == nil) && k.env.Mono()-k.asked < k.refresh {
		return k.known, nil
	}
	asked := k.env.Mono()
	known, err := k.read(ctx, names)
	if err != nil {
		k.old.Store(fresh)
		return nil, err
	}
	k.created = k.createdSince(known)
	k.known, k.asked, k.names, k.members = known, asked, names, slices.Clone(members)
	return known, nil
}

// createdSince is those of the topics now that an earlier look was for and did not find.
func (k *catalog) createdSince(now *knownTopics) map[segment.TopicID]bool {
	created := map[segment.TopicID]bool{}
	for id := range now.byID {
		created[id] = k.created[id]
	}
	for i := range k.members {
		for id := range now.readBy(&k.members[i]) {
			created[id] = created[id] || k.known.byID[id] == nil
		}
	}
	return created
}

// covers tells whether the latest look was for all that a member with this subscription reads.
func (k *catalog) covers(c *Config) bool {
	return k.known != nil && (k.names == nil || c.Pattern == "" && !slices.ContainsFunc(c.Topics, func(name string) bool {
		_, asked := slices.BinarySearch(k.names, name)
		return !asked
	}))
}

// Topics is the names of the topics that the member reads, as the latest look at the topics shows them. ok is false if it was not for all of them, as before the
// first Tick. It belongs to who calls Tick.
func (m *Member) Topics() (names map[segment.TopicID]string, ok bool) {
	if !m.catalog.covers(&m.config) {
		return nil, false
	}
	names = map[segment.TopicID]string{}
	for id := range m.catalog.known.readBy(m.subscription()) {
		names[id] = m.catalog.known.byID[id].Name
	}
	return names, true
}

// subscription is a member's row as far as it tells which topics this one reads.
func (m *Member) subscription() *metadata.Member {
	return &metadata.Member{Topics: slices.Sorted(slices.Values(m.config.Topics)), Pattern: m.config.Pattern}
}

// LookAgain has the next Tick look at the topics, whenever it has last done so: one was found to be gone.
func (m *Member) LookAgain() { m.catalog.old.Store(true) }

func (k *catalog) read(ctx context.Context, names []string) (*knownTopics, error) {
	known := &knownTopics{byName: map[string]*metadata.Topic{}, byID: map[segment.TopicID]*metadata.Topic{}}
	add := func(t *metadata.Topic) { known.byName[t.Name], known.byID[t.ID] = t, t }
	if names != nil {
		for _, name := range names {
			t, err := k.table.Topic(ctx, name)
			switch {
			case errors.Is(err, metadata.ErrUnknownTopic): // not created yet, or deleted
			case err != nil:
				return nil, err
			default:
				add(t)
			}
		}
		return known, nil
	}
	const page = 1000
	for after, more := "", true; more; {
		var rows []*metadata.Topic
		var err error
		if rows, more, err = k.table.Topics(ctx, after, page); err != nil {
			return nil, err
		}
		for _, t := range rows {
			add(t)
			after = t.Name
		}
	}
	return known, nil
}

// readBy yields the topics that a member reads.
func (k *knownTopics) readBy(m *metadata.Member) iter.Seq[segment.TopicID] {
	return func(yield func(segment.TopicID) bool) {
		reads := Reads(m)
		for _, name := range slices.Sorted(maps.Keys(k.byName)) {
			if reads(name) && !yield(k.byName[name].ID) {
				return
			}
		}
	}
}

// Reads tells which topics a member reads. A pattern that this build cannot read matches none: another member's must not stop the group.
func Reads(m *metadata.Member) func(topic string) bool {
	pattern, _ := compile(m.Pattern)
	return func(topic string) bool {
		_, named := slices.BinarySearch(m.Topics, topic)
		return named || pattern != nil && pattern.MatchString(topic)
	}
}

// compile reads a pattern, which must match whole names; nil for none.
func compile(pattern string) (*regexp.Regexp, error) {
	if pattern == "" {
		return nil, nil
	}
	_, err := regexp.Compile(pattern) // by itself: "a)|(b" is none, though it is one in brackets
	var re *regexp.Regexp
	if err == nil {
		re, err = regexp.Compile("^(?:" + pattern + ")$")
	}
	if err != nil {
		return nil, &metadata.FieldError{Field: "topic pattern", Value: pattern, Valid: fmt.Sprintf("a regular expression (%v)", err)}
	}
	return re, nil
}
