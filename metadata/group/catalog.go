package group

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// catalog remembers the topics that a group's members read. It is Tick's.
type catalog struct {
	table   metadata.TopicReader
	env     env.Env
	refresh time.Duration

	known *knownTopics
	asked time.Duration // when known was read
	names []string      // that known answers for; nil: all
	// created is those of known that were not there when an earlier look asked for the same names.
	created map[segment.TopicID]bool
}

// knownTopics are topics as strong reads showed them.
type knownTopics struct {
	byName map[string]*metadata.Topic
	byID   map[segment.TopicID]*metadata.Topic
}

func newCatalog(t metadata.TopicReader, e env.Env, refresh time.Duration) (*catalog, error) {
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
	if !fresh && k.known != nil && slices.Equal(names, k.names) && (names == nil) == (k.names == nil) && k.env.Mono()-k.asked < k.refresh {
		return k.known, nil
	}
	asked := k.env.Mono()
	known, err := k.read(ctx, names)
	if err != nil {
		return nil, err
	}
	created := map[segment.TopicID]bool{}
	if k.known != nil && slices.Equal(names, k.names) && (names == nil) == (k.names == nil) {
		for id := range known.byID {
			created[id] = k.created[id] || k.known.byID[id] == nil
		}
	}
	k.known, k.asked, k.names, k.created = known, asked, names, created
	return known, nil
}

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

// readBy yields the topics that a member reads. A pattern that this build cannot read matches none: another member's must not stop the group.
func (k *knownTopics) readBy(m *metadata.Member) iter.Seq[segment.TopicID] {
	return func(yield func(segment.TopicID) bool) {
		pattern, _ := compile(m.Pattern)
		for _, name := range slices.Sorted(maps.Keys(k.byName)) {
			_, named := slices.BinarySearch(m.Topics, name)
			if (named || pattern != nil && pattern.MatchString(name)) && !yield(k.byName[name].ID) {
				return
			}
		}
	}
}

// compile reads a pattern, which must match whole names; nil for none.
func compile(pattern string) (*regexp.Regexp, error) {
	if pattern == "" {
		return nil, nil
	}
	re, err := regexp.Compile("^(?:" + pattern + ")$")
	if err != nil {
		return nil, &metadata.FieldError{Field: "topic pattern", Value: pattern, Valid: fmt.Sprintf("a regular expression (%v)", err)}
	}
	return re, nil
}
