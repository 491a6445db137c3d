package sdk

import (
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/segment"
)

// clock is the service's time.
type clock struct {
	at time.Time
	ok bool
}

func (c clock) ServiceTime() (time.Time, bool) { return c.at, c.ok }

// Ids go by the service's clock, not the machine's, and are above every floor that was seen.
func TestMinter(t *testing.T) {
	service := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	e := env.System()
	m := minter{env: e, clock: clock{service, true}}
	id, minted := m.mint(7, segment.ID{})
	if id.Time() != service || id.Class() != 7 || id.Place() != segment.InBucket {
		t.Errorf("id of %v, class %v, place %v", id.Time(), id.Class(), id.Place())
	}
	if age := time.Since(minted.Wall).Abs(); age > time.Minute {
		t.Errorf("the stamp is by another clock than the process's own: %v", minted.Wall)
	}
	floor := segment.NewID(service.Add(time.Hour), 9, segment.Archived, 1<<39, segment.ID{})
	m.raise(floor)
	m.raise(segment.NewID(service, 9, segment.Archived, 1, segment.ID{})) // an older one is no step back
	if id, _ := m.mint(segment.Keep, segment.ID{}); !floor.Less(id) {
		t.Errorf("%v is not above the floor %v", id, floor)
	}
	above := segment.NewID(service.Add(2*time.Hour), 9, segment.InBucket, 1<<39, segment.ID{})
	if next, _ := m.mint(segment.Keep, above); !above.Less(next) {
		t.Errorf("%v is not above %v", next, above)
	}
	m = minter{env: e, clock: clock{service, false}}
	if id, _ := m.mint(7, segment.ID{}); time.Since(id.Time()).Abs() > time.Minute {
		t.Errorf("before the service's first answer: id of %v", id.Time())
	}
}
