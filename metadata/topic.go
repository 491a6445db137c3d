package metadata

import (
	"fmt"
	"strconv"
)

// Validate reports a *FieldError for a row that is not consistent in itself.
func (t *Topic) Validate() error {
	bad := func(field string, value int, valid string, args ...any) error {
		return &FieldError{Topic: t.Name, Field: field, Value: strconv.Itoa(value), Valid: fmt.Sprintf(valid, args...)}
	}
	if err := ValidateName("topic", t.Name); err != nil {
		return err
	}
	if err := t.ID.Validate(); err != nil {
		return &FieldError{Topic: t.Name, Field: "topic id", Value: string(t.ID), Valid: "12 characters of 0-9a-v"}
	}
	switch {
	case t.Version < 1:
		return bad("version", int(t.Version), "1 or more")
	case t.LaneWidth < 1 || t.LaneWidth > SlotsPerLane:
		return bad("partitions per lane", t.LaneWidth, "1 to %d", SlotsPerLane)
	case t.Partitions < 1:
		return bad("partitions", t.Partitions, "1 or more")
	case len(t.Lanes) != (t.Partitions+t.LaneWidth-1)/t.LaneWidth:
		return bad("lanes", len(t.Lanes), "%d, for %d partitions of %d a lane", (t.Partitions+t.LaneWidth-1)/t.LaneWidth, t.Partitions, t.LaneWidth)
	case len(t.History) == 0 || t.History[len(t.History)-1].Partitions != t.Partitions:
		return bad("history", len(t.History), "a list that ends with %d partitions", t.Partitions)
	}
	for i, g := range t.History {
		if g.Version > t.Version || i > 0 && (g.Version <= t.History[i-1].Version || g.Partitions <= t.History[i-1].Partitions) {
			return bad("history", i, "ascending, up to version %d", t.Version)
		}
	}
	seen := make(map[LaneID]bool, len(t.Lanes))
	for i, l := range t.Lanes {
		if l == "" || seen[l] {
			return bad("lane", i, "named, and once")
		}
		seen[l] = true
	}
	return nil
}
