package judge

import "slices"

// stop is one operation with one of wovenFaults or, after those, badValues.
type stop struct {
	op    string
	fault int
}

// tourWithout is every operation but those with every fault.
func tourWithout(without []string) []stop {
	var tour []stop
	for _, w := range weights {
		for fault := range len(wovenFaults) + len(badValues) {
			if !slices.Contains(without, w.op) {
				tour = append(tour, stop{w.op, fault})
			}
		}
	}
	return tour
}

// toured makes the next request of the tour, nil if there is none. Operations that cannot have a fault are passed over.
func (g *generator) toured() *request {
	for len(g.tour) > 0 {
		at := g.tour[0]
		g.tour = g.tour[1:]
		for range 3 { // chance may have made a request that has no place for it
			r := g.make(at.op)
			g.again = nil
			part := pick(g.r, r.actions())
			if i := at.fault - len(wovenFaults); i >= 0 {
				r.fault = g.badValue(part, badValues[i])
			} else if g.weave(r, part, wovenFaults[at.fault].woven) {
				r.fault = wovenFaults[at.fault].meaning
			}
			if r.fault != "" {
				return r
			}
		}
	}
	return nil
}
