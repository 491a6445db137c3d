package segment

import (
	"fmt"
	"strconv"
	"strings"
)

// Object names, relative to the log's prefix. This file is the only one that writes or reads them:
//
//	<class>/intake/<2 hex>/<id>
//	<class>/archive/<topic id>/<id>
//	era/<6 digits>.json
//
// The class comes first so that a lifecycle rule can name it, the hash next so that a store can spread it.

// IdentityName is the object that says which log lives under a prefix.
const IdentityName = "varve.json"

// EraPrefix is what the names of the objects that say which eras the log has had begin with.
const EraPrefix = "era/"

// EraName is the object of an era, from 1 on.
func EraName(number int64) string { return fmt.Sprintf("%s%06d.json", EraPrefix, number) }

// IsRecord tells whether a name is one of the log's own that no segment has.
func IsRecord(name string) bool {
	digits, ok := strings.CutPrefix(name, EraPrefix)
	digits, json := strings.CutSuffix(digits, ".json")
	n, err := strconv.ParseInt(digits, 10, 64)
	return name == IdentityName || ok && json && err == nil && n > 0 && EraName(n) == name
}

// IntakeName is the object name of an intake segment.
func IntakeName(id ID) string {
	return id.Class().String() + "/intake/" + id.Hash() + "/" + id.String()
}

// ArchiveName is the object name of an archive segment of the topic.
func ArchiveName(topic TopicID, id ID) string {
	return id.Class().String() + "/archive/" + string(topic) + "/" + id.String()
}

// ParsedName is what an object name says. Topic is empty for intake segments.
type ParsedName struct {
	ID    ID
	Topic TopicID
}

// ParseName reads an object name; anything that IntakeName and ArchiveName cannot have printed is ErrBadName.
func ParseName(name string) (ParsedName, error) {
	parts := strings.Split(name, "/")
	if len(parts) != 4 {
		return ParsedName{}, fmt.Errorf("%w: %q is not <class>/intake/<2 hex>/<id> or <class>/archive/<topic id>/<id>", ErrBadName, clip(name))
	}
	id, err := ParseID(parts[3])
	if err != nil {
		return ParsedName{}, fmt.Errorf("%w: %q: %w", ErrBadName, clip(name), err)
	}
	p := ParsedName{ID: id}
	want := IntakeName(id)
	if parts[1] == "archive" {
		p.Topic = TopicID(parts[2])
		if err := p.Topic.Validate(); err != nil {
			return ParsedName{}, fmt.Errorf("%w: %q: %w", ErrBadName, clip(name), err)
		}
		want = ArchiveName(p.Topic, id)
	}
	if name != want {
		return ParsedName{}, fmt.Errorf("%w: %q, should be %q", ErrBadName, clip(name), want)
	}
	return p, nil
}
