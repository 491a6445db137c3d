package metadata

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// producerModel is a lane that remembers everything: which sequences of which producers it has appended, and which producers it was told to forget.
type producerModel struct {
	applied map[ProducerID][]int64 // orders by sequence
	evicted map[ProducerID]bool
}

// apply is what a head makes of a request that was let through.
func (h *Head) apply(s ProducerStep) {
	if h.Producers == nil {
		h.Producers = map[ProducerID]ProducerState{}
	}
	state := h.Producers[s.ID]
	state.Sequence = s.Sequence
	state.Orders[(s.Sequence-1)%ProducerWindow] = h.Next
	h.Producers[s.ID] = state
	h.Next++
}

// Whatever is sent, sent again, in whatever order, with evictions in between: a head that is asked by Admit alone appends each request once at most, in order,
// knows the orders of the last five, and never takes anything of a producer that it has forgotten.
func TestProperty_Admit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &Head{}
		m := &producerModel{applied: map[ProducerID][]int64{}, evicted: map[ProducerID]bool{}}
		ids := rapid.SliceOfNDistinct(rapid.Int64Range(1, 60), 20, 24, rapid.ID[int64]).Draw(t, "ids")
		for range rapid.IntRange(20, 200).Draw(t, "steps") {
			if len(h.Producers) > 0 && rapid.IntRange(0, 9).Draw(t, "evict") == 0 {
				id, _ := h.Idlest()
				for other, orders := range m.applied {
					if !m.evicted[other] && len(orders) > 0 && orders[len(orders)-1] < m.applied[id][len(m.applied[id])-1] {
						t.Fatalf("%d was taken for the idlest, %d had its last before", id, other)
					}
				}
				delete(h.Producers, id)
				h.ProducerFloor = max(h.ProducerFloor, id)
				m.evicted[id] = true
				continue
			}
			id := ProducerID(rapid.SampledFrom(ids).Draw(t, "id"))
			s := ProducerStep{ID: id, Sequence: max(1, int64(len(m.applied[id])+rapid.IntRange(-6, 2).Draw(t, "sequence")))}
			floor := slices.Max(append([]ProducerID{0}, slices.Collect(maps.Keys(m.evicted))...))
			began, last := len(m.applied[id]) > 0, int64(len(m.applied[id]))
			live := 0
			for other := range m.applied {
				if !m.evicted[other] {
					live++
				}
			}
			want := Gapped
			switch {
			case m.evicted[id], !began && id <= floor:
				want = Evicted
			case s.Sequence <= last:
				want = Repeated
			case s.Sequence == last+1 && (began || live < MaxProducers):
				want = Admitted
			case s.Sequence == last+1:
				want = Crowded
			}
			got := h.Admit(s)
			if got != want {
				t.Fatalf("%+v: %v, want %v; head %+v, model %+v", s, got, want, h, m)
			}
			if got == Admitted {
				m.applied[id] = append(m.applied[id], h.Next)
				h.apply(s)
			}
			if got == Repeated {
				order, known := h.Producers[id].Order(s.Sequence)
				if known != (s.Sequence > last-ProducerWindow) || known && order != m.applied[id][s.Sequence-1] {
					t.Fatalf("%+v: order %d, %v; the model has %v", s, order, known, m.applied[id])
				}
			}
			if got == Gapped && h.Expected(id) != last+1 {
				t.Fatalf("%d expected, want %d", h.Expected(id), last+1)
			}
		}
	})
}

// AdmitAll lets requests through together exactly if the head lets them through one after another.
func TestProperty_AdmitAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &Head{ProducerFloor: 5}
		for i := range rapid.IntRange(0, MaxProducers).Draw(t, "known") {
			h.apply(ProducerStep{ID: ProducerID(i + 1), Sequence: 1})
		}
		var steps []ProducerStep
		for _, id := range rapid.SliceOfNDistinct(rapid.Int64Range(1, 40), 1, 16, rapid.ID[int64]).Draw(t, "ids") {
			steps = append(steps, ProducerStep{ID: ProducerID(id), Sequence: rapid.Int64Range(1, 3).Draw(t, "sequence")})
		}
		got := h.AdmitAll(steps)
		one := &Head{ProducerFloor: h.ProducerFloor, Producers: maps.Clone(h.Producers), Next: h.Next}
		for i, s := range steps {
			want := one.Admit(s)
			if got[i] != want {
				t.Fatalf("%+v: %v together, %v alone", s, got[i], want)
			}
			if want == Admitted {
				one.apply(s)
			}
		}
	})
}

func TestProducerIDsAreOrderedByTime(t *testing.T) {
	at := time.UnixMilli(1_790_000_000_123).UTC()
	a, b := NewProducerID(at, 1<<64-1), NewProducerID(at.Add(time.Millisecond), 0)
	if a >= b || a.Time() != at || b.Time() != at.Add(time.Millisecond) || NewProducerID(time.Time{}, 0) < 1 || NewProducerID(time.UnixMilli(1<<60), 1) < b {
		t.Fatal(a, b, a.Time(), NewProducerID(time.Time{}, 0))
	}
}
