package dynamodb

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/varvelog/varve/localdev/dynamodb/storage"
	"github.com/varvelog/varve/localdev/dynamodb/wire"
)

// timeToLive is what UpdateTimeToLive sets.
type timeToLive struct {
	AttributeName string
	Enabled       *bool
}

// updateTimeToLive stores the setting; nothing expires.
func updateTimeToLive(_ context.Context, c *call) ([]byte, error) {
	var q struct{ TimeToLiveSpecification *timeToLive }
	if err := json.Unmarshal(c.body, &q); err != nil {
		return nil, &wire.Error{Message: err.Error()}
	}
	s := q.TimeToLiveSpecification
	if s == nil || s.AttributeName == "" || s.Enabled == nil {
		return nil, constraint("null", "timeToLiveSpecification", "Member must not be null")
	}
	err := c.engine.store.Update(func(w storage.Writer) error {
		t, err := c.tableNamed(w)
		if err != nil {
			return err
		}
		return s.store(w, *t)
	})
	if err != nil {
		return nil, err
	}
	var spec object
	spec.text("AttributeName", s.AttributeName)
	spec.raw("Enabled", fmt.Appendf(nil, "%t", *s.Enabled))
	var o object
	o.raw("TimeToLiveSpecification", spec.close())
	return o.close(), nil
}

// store changes a table's definition; it must be a change.
func (s *timeToLive) store(w storage.Writer, t table) error {
	switch {
	case *s.Enabled && t.TimeToLive != "":
		return validation("TimeToLive is already enabled")
	case !*s.Enabled && t.TimeToLive == "":
		return validation("TimeToLive is already disabled")
	}
	t.TimeToLive = ""
	if *s.Enabled {
		t.TimeToLive = s.AttributeName
	}
	definition, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return w.PutTable(t.Name, definition)
}
