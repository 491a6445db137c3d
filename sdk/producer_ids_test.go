package sdk

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// clock is the service's time.
type clock struct {
	at time.Time
	ok bool
}

func (c clock) ServiceTime() (time.Time, bool) { return c.at, c.ok }

func (c clock) Identity(context.Context) (metadata.Identity, bool, error) {
	return metadata.Identity{}, true, nil
}

// Ids go by the service's clock, not the machine's, and are above every floor that was seen.
func TestMinter(t *testing.T) {
	service := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	e := env.System()
	m := minter{env: e, clock: clock{service, true}}
	mint := func(class segment.Class, above segment.ID) (segment.ID, metadata.Stamp) {
		t.Helper()
		id, minted, err := m.mint(t.Context(), class, above)
		if err != nil {
			t.Fatal(err)
		}
		return id, minted
	}
	id, minted := mint(7, segment.ID{})
	if id.Time() != service || id.Class() != 7 || id.Place() != segment.InBucket {
		t.Errorf("id of %v, class %v, place %v", id.Time(), id.Class(), id.Place())
	}
	if age := time.Since(minted.Wall).Abs(); age > time.Minute {
		t.Errorf("the stamp is by another clock than the process's own: %v", minted.Wall)
	}
	floor := segment.NewID(service.Add(time.Hour), 9, segment.Archived, 1<<39, segment.ID{})
	m.raise(floor)
	m.raise(segment.NewID(service, 9, segment.Archived, 1, segment.ID{})) // an older one is no step back
	if id, _ := mint(segment.Keep, segment.ID{}); !floor.Less(id) {
		t.Errorf("%v is not above the floor %v", id, floor)
	}
	above := segment.NewID(service.Add(2*time.Hour), 9, segment.InBucket, 1<<39, segment.ID{})
	if next, _ := mint(segment.Keep, above); !above.Less(next) {
		t.Errorf("%v is not above %v", next, above)
	}
	m = minter{env: e, clock: clock{service, false}}
	if id, _ := mint(7, segment.ID{}); time.Since(id.Time()).Abs() > time.Minute {
		t.Errorf("before the service's first answer: id of %v", id.Time())
	}
}

// machine is a process's clocks, and the service's as the process carries it on: by the monotonic one, from the last answer.
type machine struct {
	env.Clock
	wall, told time.Time // told is the service's time in the last answer
	mono, at   time.Duration
	service    time.Time // what it would be told now
	asked      int
	err        error
}

func (c *machine) Now() time.Time                 { return c.wall }
func (c *machine) Mono() time.Duration            { return c.mono }
func (c *machine) ServiceTime() (time.Time, bool) { return c.told.Add(c.mono - c.at), true }

func (c *machine) Identity(context.Context) (metadata.Identity, bool, error) {
	c.asked++
	if c.err == nil {
		c.told, c.at = c.service, c.mono
	}
	return metadata.Identity{}, true, c.err
}

// pass lets time go by, of which the monotonic clock sees a part.
func (c *machine) pass(d, seen time.Duration) {
	c.wall, c.service, c.mono = c.wall.Add(d), c.service.Add(d), c.mono+seen
}

// Who was suspended asks for the time before it makes an id: the clock that carried the service's time on stood still.
func TestMinterAfterASuspension(t *testing.T) {
	start := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	const skew = 3 * time.Minute // of the wall clock
	c := &machine{Clock: env.System().Clock, wall: start.Add(skew), told: start, service: start}
	e := env.System()
	e.Clock = c
	m := minter{env: e, clock: c, ahead: skew}
	mint := func(asked int) {
		t.Helper()
		id, minted, err := m.mint(t.Context(), 7, segment.ID{})
		now := metadata.Stamp{Wall: c.wall, Mono: c.mono}
		if age := c.service.Sub(id.Time()); err != nil || age.Abs() > runAhead || minted.Age(now) < age || minted.Age(now) > age+time.Second || c.asked != asked {
			t.Fatalf("%v: an id that is %v old and said to be %v old, the service was asked %d times, not %d", err, age, minted.Age(now), c.asked, asked)
		}
		m.floor = segment.ID{}
	}
	mint(0)
	c.pass(24*time.Hour, 24*time.Hour)
	mint(0)
	c.pass(3*time.Hour, 0)
	mint(1)
	c.pass(8*time.Second, 0) // too little to ask, and known in the age
	mint(1)
	c.pass(8*time.Second, 0)
	mint(2)
	c.wall = c.wall.Add(time.Minute) // it was set
	mint(3)
	c.wall = c.wall.Add(-2 * time.Minute)
	mint(3)
	c.pass(time.Minute, 0) // which it would not show by itself
	mint(4)
	c.pass(time.Hour, 0)
	c.err = errors.New("no answer")
	if _, _, err := m.mint(t.Context(), 7, segment.ID{}); !errors.Is(err, c.err) {
		t.Fatalf("without an answer: %v", err)
	}
	c.err = nil
	mint(6)
}
