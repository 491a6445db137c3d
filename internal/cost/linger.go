package cost

import (
	"math"
	"slices"
	"time"
)

// waits is how a producer's flushes wait: each possible wait in seconds, and the share of the flushes that have it.
type waits []wait

type wait struct{ seconds, share float64 }

// lingers is where the adaptive linger of the SDK settles when records come at random, rate of them a second. After a flush the wait doubles if another record came in its
// second half, or while the flush before it was on its way, which takes ack; else it halves. Bytes that fill the segment end the wait, and halve it too.
func lingers(rate, full float64, floor, ceiling, ack time.Duration) waits {
	clamp := func(w float64) float64 { return min(max(w, floor.Seconds()), ceiling.Seconds()) }
	states := []float64{clamp(0)}
	index := func(w float64) int {
		for i, s := range states {
			if math.Abs(s-w) < 1e-9 {
				return i
			}
		}
		states = append(states, w)
		return len(states) - 1
	}
	var up, down []int
	for i := 0; i < len(states); i++ {
		up = append(up, index(clamp(max(2*states[i], 1e-3))))
		down = append(down, index(clamp(states[i]/2)))
	}
	share := slices.Repeat([]float64{1 / float64(len(states))}, len(states))
	mean := make([]float64, len(states))
	const rounds = 4000 // the second half of which is averaged
	for round := range rounds {
		next := make([]float64, len(states))
		for i, p := range share {
			grow := 1 - math.Exp(-rate*(states[i]/2+ack.Seconds()))
			if full > 0 && rate*states[i] > full {
				grow = 0
			}
			next[up[i]] += p * grow
			next[down[i]] += p * (1 - grow)
		}
		share = next
		if round >= rounds/2 {
			for i, p := range share {
				mean[i] += p / (rounds - rounds/2)
			}
		}
	}
	var ws waits
	for i, s := range states {
		ws = append(ws, wait{s, mean[i]})
	}
	return ws
}

// mean is the average of f over the flushes.
func (ws waits) mean(f func(seconds float64) float64) (sum float64) {
	for _, w := range ws {
		if w.share > 0 {
			sum += w.share * f(w.seconds)
		}
	}
	return sum
}
