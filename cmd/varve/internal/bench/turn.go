package bench

import (
	"context"
	"fmt"
	"time"
)

// turn is what one turn of one side did.
type turn struct {
	bytes   int64 // of records, raw of objects
	records int
	objects int
	elapsed time.Duration
	cpu     time.Duration   // of the whole process
	took    []time.Duration // latencies
	used    use
}

// add sums turns up.
func (t *turn) add(o turn) {
	t.bytes += o.bytes
	t.records += o.records
	t.objects += o.objects
	t.elapsed += o.elapsed
	t.cpu += o.cpu
	t.took = append(t.took, o.took...)
	t.used = t.used.plus(o.used)
}

// measure times do. Garbage is collected when it is, which is in the turns that make it: raw ones make next to none. To collect it before every turn
// would also empty varve's pools, which stay filled in a producer that is at work.
func (r *run) measure(m *meter, do func() error) (t turn, err error) {
	used, cpu, start := m.read(), cpuTime(), r.Env.Mono()
	err = do()
	t.elapsed, t.cpu, t.used = r.Env.Mono()-start, cpuTime()-cpu, m.read().minus(used)
	return t, err
}

// side is one of those that take turns.
type side struct {
	name    string
	streams int // of a raw side, 0 for varve
	checked bool
	turn    func(context.Context) (turn, error)
	turns   []turn
}

// alternate gives every side its turns. Each round begins with another side, so that none has the same one before it every time. The first round,
// in which folders, connections and memory are made, does not count.
func (r *run) alternate(ctx context.Context, sides []side) error {
	for round := range r.Turns + 1 {
		for i := range sides {
			s := &sides[(i+round)%len(sides)]
			if round == 0 {
				r.Progress("warming up: " + s.name)
			} else {
				r.Progress(fmt.Sprintf("turn %d of %d: %s%s", round, r.Turns, s.name, soFar(sides)))
			}
			t, err := s.turn(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if round > 0 {
				s.turns = append(s.turns, t)
			}
		}
	}
	chargeVarve(sides)
	return nil
}

// chargeVarve takes what raw turns used of the table, which is varve's: a producer may go on spilling for a moment when everything is acknowledged.
func chargeVarve(sides []side) {
	var late use
	for _, s := range sides {
		for i := range s.turns {
			if t := &s.turns[i]; s.streams > 0 {
				late = late.plus(t.used.ofTable())
				t.used = t.used.minus(t.used.ofTable())
			}
		}
	}
	for _, s := range sides {
		if s.streams == 0 {
			s.turns[0].used = s.turns[0].used.plus(late)
		}
	}
}

// soFar is each side's best rate.
func soFar(sides []side) string {
	text := ""
	for _, s := range sides {
		if len(s.turns) > 0 {
			text += fmt.Sprintf(", %s %.0f MiB/s", s.name, rates(s.turns).Best/mib)
		}
	}
	return text
}
