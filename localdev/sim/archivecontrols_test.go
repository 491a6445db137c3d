//go:build !race

package sim_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/localdev/sim"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// slowly is an archive that few work at, who often stand still for hours, beside sweeps every few.
func slowly() sim.Scenario {
	kept := sdk.NewTopic{Name: "kept", Partitions: 2, Config: map[string]string{"retention.ms": "-1"}}
	faults := sim.Trouble()
	faults.FreezeArchive = 2
	faults.Kill, faults.CutOff = 3000, 3000
	return sim.Scenario{Topics: []sdk.NewTopic{kept}, Faults: faults, Checks: sim.Removed, Removes: true, Whole: 40, Cast: func() []sim.Actor {
		compact := &sim.Job{Name: "compact0", Every: time.Hour, Luck: 10, Do: sim.Compact}
		erase := &sim.Job{Name: "erase", Every: 4 * time.Hour, Luck: 10, Do: sim.Erase("kept", 6)}
		sweep := &sim.Job{Name: "sweep0", Skew: sim.SweepSkew, Every: 3 * time.Hour, Luck: 30, Do: sim.Sweep}
		return []sim.Actor{
			&sim.Producer{Name: "p0", Topic: "kept", Bursts: 16, Lull: 2, Keys: 6},
			&sim.Producer{Name: "p1", Topic: "kept", Bursts: 16, Lull: 2, Keys: 6},
			compact, erase, sweep, &sim.Job{Name: "sweep1", Skew: sim.SweepSkew, Every: 3 * time.Hour, Luck: 30, Do: sim.SweepAll},
			&sim.Accountant{Jobs: []*sim.Job{compact}, Sweep: sweep, Full: &sim.Job{Name: "sweep2", Do: sim.SweepAll}},
		}
	}}
}

// TestArchiveStandingStill plays this: who has stood still publishes, commits and deletes nothing that is not as it was.
func TestArchiveStandingStill(t *testing.T) {
	simulate(t, slowly, 1, 30, "archived", "erased", "erased: proven", "swept: object", "frozen before-publish", "frozen after-publish", "frozen before-delete", "frozen before-commit")
}

// The simulation of an archive must be able to fail: each of these takes one rule out, outside the production code, and is caught.
func TestArchiveCatches(t *testing.T) {
	jobs := func(part string, wrap func(table) table) sim.Rule {
		return sim.Rule{Table: func(p *sim.Process, t table) table {
			if !strings.HasPrefix(p.Part, part) {
				return t
			}
			return wrap(t)
		}}
	}
	for name, without := range map[string]sim.Rule{
		"log starts moved too far":               jobs("retain", func(t table) table { return tooFar{t} }),
		"tombstones dropped before older values": jobs("clean", func(t table) table { return notFromTheStart{t} }),
		"sweep without chunks":                   jobs("sweep", func(t table) table { return noChunks{t} }),
		"work list not gone through":             jobs("sweep", func(t table) table { return noList{t} }),
		"commits of what was not read":           jobs("g", func(t table) table { return eager{t} }),
	} {
		t.Run(name, func(t *testing.T) { caught(t, archive(), without) })
	}
	for name, without := range map[string]sim.Rule{
		"publications whatever floor and age": {Wire: whateverTheFloor, Table: func(_ *sim.Process, t table) table { return ageless{t} }},
		"publications whatever the rows":      {Wire: whateverTheRows},
		"sweep without rows": {Table: func(p *sim.Process, t table) table {
			if strings.HasPrefix(p.Part, "sweep") {
				return noRows{t}
			}
			return ageless{t}
		}},
		"commits whatever floor and age": {Table: func(p *sim.Process, t table) table {
			if strings.HasPrefix(p.Part, "sweep") {
				return &floorsUnraised{table: t}
			}
			return ageless{t}
		}},
	} {
		t.Run(name, func(t *testing.T) { caught(t, slowly(), without) })
	}
}

// tooFar moves log starts a record beyond what was asked for.
type tooFar struct{ table }

func (f tooFar) SetStart(ctx context.Context, l metadata.LaneID, slot metadata.Slot, start int64) (*metadata.State, error) {
	return f.table.SetStart(ctx, l, slot, start+1)
}

// eager commits a record more than was asked for, if there is one.
type eager struct{ table }

func (e eager) CommitOffsets(ctx context.Context, group string, l metadata.LaneID, at time.Time, commits []metadata.OffsetCommit) (*metadata.GroupLane, error) {
	head, err := e.table.Head(ctx, l, metadata.Strong)
	if err != nil {
		return nil, err
	}
	more := slices.Clone(commits)
	for i := range more {
		more[i].Offset = min(more[i].Offset+1, head.Ends[more[i].Slot])
	}
	return e.table.CommitOffsets(ctx, group, l, at, more)
}

// notFromTheStart shows only the last quarter of what is archived.
type notFromTheStart struct{ table }

func (n notFromTheStart) State(ctx context.Context, l metadata.LaneID, c metadata.Consistency) (*metadata.State, error) {
	s, err := n.table.State(ctx, l, c)
	if err != nil {
		return nil, err
	}
	rest := *s
	for slot, end := range s.Ends {
		rest.Starts[slot] = max(s.Starts[slot], end*3/4)
	}
	return &rest, nil
}

// published edits the transaction of a publication.
func published(op string, body []byte, edit func(item map[string]any, pk string)) []byte {
	var request map[string]any
	if !strings.HasSuffix(op, "TransactWriteItems") || json.Unmarshal(body, &request) != nil {
		return body
	}
	if token, _ := request["ClientRequestToken"].(string); !strings.HasPrefix(token, "P") {
		return body
	}
	for _, item := range request["TransactItems"].([]any) {
		for _, action := range item.(map[string]any) {
			action := action.(map[string]any)
			key, ok := action["Key"].(map[string]any)
			if !ok {
				key = action["Item"].(map[string]any)
			}
			edit(action, key["pk"].(map[string]any)["S"].(string))
		}
	}
	b, _ := json.Marshal(request)
	return b
}

// whateverTheFloor has publications compared with floors as if their ids were the highest.
func whateverTheFloor(_ *sim.Process, op string, body []byte) []byte {
	return published(op, body, func(action map[string]any, pk string) {
		if !strings.HasPrefix(pk, "A#") {
			return
		}
		for _, v := range action["ExpressionAttributeValues"].(map[string]any) {
			if s, ok := v.(map[string]any)["S"].(string); ok && len(s) == 20 {
				v.(map[string]any)["S"] = strings.Repeat("z", 20)
			}
		}
	})
}

// whateverTheRows replaces rows whether they are as they were read or not.
func whateverTheRows(_ *sim.Process, op string, body []byte) []byte {
	return published(op, body, func(action map[string]any, pk string) {
		if strings.HasPrefix(pk, "P#") {
			delete(action, "ConditionExpression")
			delete(action, "ExpressionAttributeNames")
			delete(action, "ExpressionAttributeValues")
			delete(action, "ReturnValuesOnConditionCheckFailure")
		}
	})
}

// floorsUnraised is a sweep that raises no head's floor and believes that it has.
type floorsUnraised struct {
	table
	floor segment.ID
}

func (f *floorsUnraised) RaiseHeadFloor(_ context.Context, _ metadata.LaneID, floor segment.ID) error {
	f.floor = floor
	return nil
}

func (f *floorsUnraised) Head(ctx context.Context, l metadata.LaneID, c metadata.Consistency) (*metadata.Head, error) {
	h, err := f.table.Head(ctx, l, c)
	if err == nil {
		h.Floor = f.floor
	}
	return h, err
}

// ageless does not look once more, when a commit or a publication is about to be sent, at how old its segment is: that alone keeps a process that stood still from committing what is gone.
type ageless struct{ table }

func (a ageless) Commit(ctx context.Context, c metadata.Commit) (*metadata.Head, error) {
	c.Minted = metadata.Stamp{}
	return a.table.Commit(ctx, c)
}

func (a ageless) Publish(ctx context.Context, p *metadata.Publication) error {
	late := *p
	late.Minted = metadata.Stamp{}
	return a.table.Publish(ctx, &late)
}

// noRows sees no archive rows.
type noRows struct{ table }

func (noRows) Row(context.Context, segment.TopicID, int, int64, metadata.Consistency) (*metadata.Row, error) {
	return nil, metadata.ErrNoRow
}

func (noRows) Rows(context.Context, segment.TopicID, int, int64, int64, int, metadata.Consistency) ([]*metadata.Row, bool, error) {
	return nil, false, nil
}

// noList finds nothing in the work list.
type noList struct{ table }

func (noList) Replaced(context.Context, string, segment.ID, segment.ID, int) ([]*metadata.Replaced, bool, error) {
	return nil, false, nil
}
