package metatest

import (
	"errors"
	"reflect"

	"github.com/varvelog/varve/metadata"
)

// once is a commit of one entry with requests of producers that may be repeated.
func (f *fixture) once(h *metadata.Head, steps ...metadata.ProducerStep) metadata.Commit {
	c := commitTo(h, 2, f.entry(1, 0))
	c.Producers = steps
	return c
}

func step(id metadata.ProducerID, sequence int64) metadata.ProducerStep {
	return metadata.ProducerStep{ID: id, Sequence: sequence}
}

// notAdmitted fails unless the commit is refused because of its producers, and changes nothing.
func (f *fixture) notAdmitted(c metadata.Commit, want metadata.Admission) {
	f.Helper()
	before := f.head(c.Lane)
	_, err := f.table.Commit(f.ctx, c)
	image := f.refused(err)
	failed := c.FailedProducers(image)
	if why := metadata.WhyRefused(c, image); why != metadata.ReasonProducer || len(failed) != 1 || failed[0].Why != want {
		f.Fatalf("refused because %v, %v; want %v", why, failed, want)
	}
	if after := f.head(c.Lane); !reflect.DeepEqual(after, before) || !reflect.DeepEqual(image, before) {
		f.Fatalf("a refusal has changed the head:\n%+v\n%+v", before, after)
	}
}

// A request under a condition that was applied has ended its condition, and is known all the same.
func testProducerUnderConditions(f *fixture) {
	lane := f.lane()
	const a = metadata.ProducerID(1 << 40)
	h := f.head(lane)
	asked := func(sequence, offset int64) metadata.Commit {
		c := f.once(h, step(a, sequence))
		c.Expect = []metadata.Expect{{Slot: c.Entries[0].Slots[0].Slot, Offset: offset}}
		return c
	}
	first := asked(1, 0)
	_, err := f.table.Commit(f.ctx, asked(1, 5))
	if why := metadata.WhyRefused(asked(1, 5), f.refused(err)); why != metadata.ReasonOffset {
		f.Fatalf("refused because %v", why)
	}
	_, err = f.table.Commit(f.ctx, first)
	f.ok(err)
	f.notAdmitted(asked(1, 0), metadata.Repeated)
	f.notAdmitted(asked(3, 0), metadata.Gapped)
	_, err = f.table.Commit(f.ctx, asked(2, f.head(lane).Ends[first.Entries[0].Slots[0].Slot]))
	f.ok(err)
	two := asked(3, 0)
	two.Producers = append(two.Producers, step(a+1, 1))
	if _, err = f.table.Commit(f.ctx, two); !errors.Is(err, metadata.ErrInvalid) {
		f.Fatal(err)
	}
}

func testProducers(f *fixture) {
	lane := f.lane()
	const a, b = metadata.ProducerID(1 << 40), metadata.ProducerID(1<<63 - 1)
	h := f.commit(lane, f.entry(1, 0)) // so that orders are not sequences
	want := map[metadata.ProducerID]metadata.ProducerState{}
	for n := int64(1); n <= 2*metadata.ProducerWindow+1; n++ {
		var err error
		c := f.once(h, step(a, n))
		f.costs(1, "Commit", func() { h, err = f.table.Commit(f.ctx, c) })
		f.ok(err)
		s := want[a]
		s.Sequence, s.Orders[(n-1)%metadata.ProducerWindow] = n, n
		want[a] = s
		if !reflect.DeepEqual(h.Producers, want) || !reflect.DeepEqual(f.head(lane).Producers, want) {
			f.Fatalf("after sequence %d: %+v, want %+v", n, h.Producers, want)
		}
		f.notAdmitted(f.once(h, step(a, n)), metadata.Repeated)
		f.notAdmitted(f.once(h, step(a, n+2)), metadata.Gapped)
		f.ok(f.spill(h))
		h = f.head(lane)
	}
	f.notAdmitted(f.once(h, step(a, 1)), metadata.Repeated)
	f.notAdmitted(f.once(h, step(b, 2)), metadata.Gapped)

	// Several producers and several entries in one update: each has the order of its entry.
	c := commitTo(h, 2, f.entry(1, 0), f.entry(1, 0), f.entry(1, 0))
	c.Producers = []metadata.ProducerStep{{ID: b, Sequence: 1, Entry: 2}, {ID: a, Sequence: 12, Entry: 1}}
	first := h.Next
	h, err := f.table.Commit(f.ctx, c)
	f.ok(err)
	if at, ok := h.Producers[b].Order(1); !ok || at != first+2 {
		f.Fatalf("%+v", h.Producers)
	}
	if at, ok := h.Producers[a].Order(12); !ok || at != first+1 {
		f.Fatalf("%+v", h.Producers)
	}
	c = commitTo(h, 2, f.entry(1, 0), f.entry(1, 0))
	c.Producers = []metadata.ProducerStep{{ID: b, Sequence: 2, Entry: 1}, {ID: a, Sequence: 12}} // one of two, and so neither
	f.notAdmitted(c, metadata.Repeated)
	c.Producers = c.Producers[:1]
	_, err = f.table.Commit(f.ctx, c)
	f.ok(err)
}

// testProducersCrowded: the head takes so many and no more, and one that was evicted stays out for ever.
func testProducersCrowded(f *fixture) {
	lane := f.lane()
	h := f.head(lane)
	const base = metadata.ProducerID(1 << 41)
	for i := range metadata.ProducerID(metadata.MaxProducers) {
		var err error
		h, err = f.table.Commit(f.ctx, f.once(h, step(base+i, 1)))
		f.ok(err)
	}
	h, err := f.table.Commit(f.ctx, f.once(h, step(base+3, 2)))
	f.ok(err)
	f.notAdmitted(f.once(h, step(base+100, 1)), metadata.Crowded)
	victim, ok := h.Idlest()
	if !ok || victim != base {
		f.Fatalf("the idlest is %d", victim)
	}
	stale := f.head(lane)
	h, err = f.table.Commit(f.ctx, f.once(h, step(base, 2))) // it has gone on: nobody evicts it by an older image
	f.ok(err)
	_, err = f.table.EvictProducers(f.ctx, stale, 0, base)
	f.is(err, metadata.ErrChanged)

	var after *metadata.Head
	f.costs(1, "EvictProducers", func() {
		after, err = f.table.EvictProducers(f.ctx, h, 0, base+1)
		f.ok(err)
	})
	if _, there := after.Producers[base+1]; there || len(after.Producers) != metadata.MaxProducers-1 || after.ProducerFloor != base+1 {
		f.Fatalf("%+v", after)
	}
	again, err := f.table.EvictProducers(f.ctx, h, 0, base+1) // a repeat finds it done
	f.ok(err)
	if !reflect.DeepEqual(again, after) {
		f.Fatalf("%+v, then %+v", after, again)
	}
	for _, s := range []metadata.ProducerStep{step(base+1, 1), step(base+1, 2), step(base-1, 1)} {
		f.notAdmitted(f.once(after, s), metadata.Evicted)
	}
	c := commitTo(after, 2, f.entry(1, 0))
	c.Producers = []metadata.ProducerStep{step(base+100, 1), step(base+101, 1)} // there is room for one
	f.notAdmitted(c, metadata.Crowded)
	h, err = f.table.Commit(f.ctx, f.once(after, step(base+100, 1)))
	f.ok(err)
	h, err = f.table.Commit(f.ctx, f.once(h, step(base, 3))) // below the floor, but known
	f.ok(err)
	after, err = f.table.EvictProducers(f.ctx, h, base+1000, base, base+100)
	f.ok(err)
	if len(after.Producers) != metadata.MaxProducers-2 || after.ProducerFloor != base+1000 {
		f.Fatalf("%+v", after)
	}
	f.notAdmitted(f.once(after, step(base+1000, 1)), metadata.Evicted)
	if _, err := f.table.EvictProducers(f.ctx, &metadata.Head{Lane: "none"}, 1); !errors.Is(err, metadata.ErrNoLane) {
		f.Fatal(err)
	}
}

// testProducersRace: of concurrent attempts of one request one is applied.
func testProducersRace(f *fixture) {
	lane := f.lane()
	h := f.head(lane)
	const id, callers = metadata.ProducerID(1 << 41), 6
	for n := int64(1); n <= 4; n++ {
		attempts := make([]metadata.Commit, callers)
		for i := range attempts {
			attempts[i] = f.once(h, step(id, n))
		}
		won := 0
		for i, err := range together(callers, func(i int) error {
			_, err := f.table.Commit(f.ctx, attempts[i])
			return err
		}) {
			if err == nil {
				won++
			} else if image := f.refused(err); metadata.WhyRefused(attempts[i], image) != metadata.ReasonProducer {
				f.Fatal(metadata.WhyRefused(attempts[i], image))
			}
		}
		if h = f.head(lane); won != 1 || h.Next != n || h.Ends[0] != n {
			f.Fatalf("sequence %d: %d have won, %+v", n, won, h)
		}
	}
}
