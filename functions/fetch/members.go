package fetch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/varvelog/varve/functions/internal/api"
	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/metadata"
)

// What follows is for members of groups, which agree among themselves on who reads what (package metadata/group): here it is only read and written for them, by the
// conditions that the table checks. So a request that comes late, or twice, does no harm, and this service remembers nothing of a member.

// memberRoutes are its operations.
func (s *Service) memberRoutes() []api.Route {
	route := func(method, path string, serve func(context.Context, *api.Call) error) api.Route {
		return api.Route{Method: method, Path: path, Serve: s.within(func(ctx context.Context, c *api.Call) error {
			if _, err := c.Query(); err != nil {
				return err
			}
			if err := metadata.ValidateName("group", c.Name("group")); err != nil {
				return err
			}
			if method == http.MethodGet {
				if err := c.NoBody(); err != nil {
					return err
				}
			}
			return serve(ctx, c)
		})}
	}
	return []api.Route{
		route(http.MethodGet, "/v1/groups/{group}/state", s.state),
		route(http.MethodPut, "/v1/groups/{group}/plan", s.putPlan),
		route(http.MethodGet, "/v1/groups/{group}/members/{member}", s.member),
		route(http.MethodPost, "/v1/groups/{group}/members/{member}", s.act),
		route(http.MethodPost, "/v1/groups/{group}/lanes/{lane}", s.changeLane),
		route(http.MethodPost, "/v1/groups/{group}/moves", s.move),
	}
}

func (s *Service) state(ctx context.Context, c *api.Call) error {
	state, err := s.log.Backend().Table.GroupState(ctx, c.Name("group"))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, wire.StateOf(state, s.now()))
}

func (s *Service) putPlan(ctx context.Context, c *api.Call) error {
	var body wire.GroupPlan
	if err := decode(c, &body, `{"generation":2,"packed":"…"}`, "generation", "packed"); err != nil {
		return err
	}
	plan, err := body.Decode()
	if errors.Is(err, metadata.ErrInvalid) {
		return err
	}
	if err != nil {
		return api.BadField("packed", err.Error(), "a plan as docs/format.md has it, in base64")
	}
	if plan.Generation == 1 {
		if err := s.joined(ctx, c); err != nil {
			return err
		}
	}
	return s.done(c, s.log.Backend().Table.PutPlan(ctx, c.Name("group"), plan))
}

func (s *Service) member(ctx context.Context, c *api.Call) error {
	if err := metadata.ValidateName("member", c.Name("member")); err != nil {
		return err
	}
	m, err := s.log.Backend().Table.Member(ctx, c.Name("group"), c.Name("member"))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, wire.MemberOf(m))
}

// act does what a member asks for itself, or for another that it has watched.
func (s *Service) act(ctx context.Context, c *api.Call) error {
	if err := metadata.ValidateName("member", c.Name("member")); err != nil {
		return err
	}
	var a wire.MemberAction
	err := decode(c, &a, `{"action":"beat","session":"…"}`, "action", "session", "before", "session_timeout_ms", "topics", "pattern", "client", "beat", "quiet_ms", "more_ms")
	if err != nil {
		return err
	}
	as := wire.GroupMember{Name: c.Name("member"), Session: a.Session, Beat: a.Beat, QuietMs: a.QuietMs, TimeoutMs: a.TimeoutMs, Topics: a.Topics, Pattern: a.Pattern, Client: a.Client}
	if a.Action != wire.Join { // what these do not look at
		as.TimeoutMs, as.Topics = time.Minute.Milliseconds(), []string{"-"}
	}
	m, err := as.Decode()
	if err != nil {
		return err
	}
	table, group := s.log.Backend().Table, c.Name("group")
	switch a.Action {
	case wire.Join:
		if a.Beat != 0 || a.QuietMs != 0 { // these count, and one that starts at the largest number cannot: nobody could read the group any more
			return api.BadField("beat, quiet_ms", fmt.Sprintf("%d, %d", a.Beat, a.QuietMs), "left out by who joins")
		}
		err = s.join(ctx, group, m, metadata.SessionID(a.Before))
	case wire.Beat:
		err = table.Beat(ctx, group, m.Name, m.Session)
	case wire.Watched:
		if a.MoreMs < 0 || a.MoreMs > metadata.MaxSessionTimeout.Milliseconds() {
			return api.BadField("more_ms", fmt.Sprint(a.MoreMs), fmt.Sprintf("0 to %d", metadata.MaxSessionTimeout.Milliseconds()))
		}
		err = table.Watched(ctx, group, m, time.Duration(a.MoreMs)*time.Millisecond)
	case wire.Leave:
		err = table.Leave(ctx, group, m.Name, m.Session)
	case wire.Bury:
		err = table.Bury(ctx, group, m)
	default:
		return api.BadField("action", a.Action, "join, beat, watched, leave or bury")
	}
	return s.done(c, err)
}

// join makes the group if there is none, and the member's row.
func (s *Service) join(ctx context.Context, group string, m *metadata.Member, before metadata.SessionID) error {
	if err := s.log.Backend().Table.PutGroup(ctx, &metadata.Group{Name: group, Created: s.now()}); err != nil {
		return err
	}
	return s.log.Backend().Table.Join(ctx, group, m, before)
}

// now is the table's time, or this machine's if that is not known.
func (s *Service) now() time.Time {
	if now, ok := s.log.Backend().Table.ServiceTime(); ok {
		return now
	}
	return s.options.Env.Now()
}

// changeLane changes leases or commits offsets, by the clock of the table.
func (s *Service) changeLane(ctx context.Context, c *api.Call) error {
	lane, err := wire.ParseLaneID(c.Name("lane"))
	if err != nil {
		return err
	}
	var a wire.LaneAction
	err = decode(c, &a, `{"leases":[{"slot":0,"from":"","to":"1.…"}]} or {"offsets":[{"slot":0,"lease":"1.…","offset":17}]}`,
		"leases", "offsets", "slot", "from", "to", "lease", "first", "offset", "metadata")
	if err != nil {
		return err
	}
	changes, commits, err := a.Decode()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(changes, func(c metadata.LeaseChange) bool { return c.From == (metadata.Lease{}) }) {
		if err := cmp.Or(metadata.ValidateLeases(changes), s.joined(ctx, c)); err != nil {
			return err
		}
	}
	var image *metadata.GroupLane
	if changes != nil {
		image, err = s.log.Backend().Table.SetLeases(ctx, c.Name("group"), lane, changes)
	} else {
		image, err = s.log.Backend().Table.CommitOffsets(ctx, c.Name("group"), lane, s.now(), commits)
	}
	done := err == nil
	if errors.Is(err, metadata.ErrChanged) && image != nil {
		done, err = changes != nil && stand(image, changes), nil
	}
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, wire.LaneAnswer{Done: done, Lane: wire.LaneOf(image)})
}

// joined refuses what would make something of a group that nobody has ever joined: no list would show it.
func (s *Service) joined(ctx context.Context, c *api.Call) error {
	_, err := s.log.Backend().Table.Group(ctx, c.Name("group"))
	return unknownGroup(c.Name("group"), err)
}

// stand tells whether a lane has the leases that were wanted, as it has after a request whose answer was lost.
func stand(image *metadata.GroupLane, changes []metadata.LeaseChange) bool {
	return !slices.ContainsFunc(changes, func(c metadata.LeaseChange) bool { return image.Slots[c.Slot].Lease != c.To })
}

// clockSkew is how much later than here it may be for a client: it carries the table's time on by its own clock.
const clockSkew = 10 * time.Minute

// move commits offsets of several lanes, all or none.
func (s *Service) move(ctx context.Context, c *api.Call) error {
	var body wire.GroupMoves
	err := decode(c, &body, `{"token":"…","at_ms":1700000000000,"lanes":[{"lane":"…","moves":[{"slot":0,"lease":"1.…","from":null,"to":17}]}]}`,
		"token", "at_ms", "lanes", "lane", "moves", "slot", "lease", "from", "to", "metadata")
	if err != nil {
		return err
	}
	moves, err := body.Decode(c.Name("group"), s.now().Add(clockSkew))
	if err != nil {
		return err
	}
	err = s.log.Backend().Table.CommitStep(ctx, body.Token, nil, moves)
	var refused *metadata.OffsetsRefusedError
	if errors.As(err, &refused) {
		lane := wire.LaneOf(refused.Image)
		return c.JSON(http.StatusOK, wire.MovesAnswer{Lane: &lane})
	}
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, wire.MovesAnswer{Done: true})
}

// done answers that it is done.
func (s *Service) done(c *api.Call, err error) error {
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, struct{}{})
}

// decode reads the request's body, which is JSON.
func decode(c *api.Call, into any, want string, names ...string) error {
	_, body, err := c.Body(wire.JSONType)
	if err != nil {
		return err
	}
	return decodeBody(body, into, want, names...)
}

// decodeBody reads one value of JSON whose objects have no other names.
func decodeBody(body []byte, into any, want string, names ...string) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return api.BadField("body", err.Error(), want)
	}
	if _, err := dec.Token(); err != io.EOF {
		return api.BadField("body", "more after its end", want)
	}
	var name *wire.NameError
	if errors.As(wire.Names(body, names...), &name) {
		return api.BadField("field", name.Name, name.Valid)
	}
	if !utf8.Valid(body) {
		return api.BadField("body", "bytes that are not UTF-8", "JSON, which is UTF-8")
	}
	return nil
}
