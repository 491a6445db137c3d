package cost

import (
	"math"
	"slices"
	"time"
)

// waits is how a producer's flushes wait: each possible wait in seconds, and the share of the flushes that have it.
type waits []wait

type wait struct{ seconds, share float64 }

// lingers is where the adaptive linger of the SDK is, at an age, when records come at random, rate of them a second: it begins with the floor, and where few records come it may take hours
// until enough have come together by chance for it to rise. After a flush the wait doubles if another record came in its
// second half, or while the flush before it was on its way, which takes ack; else it halves. Bytes that fill the segment end the wait, and halve it too.
func lingers(rate, full float64, floor, ceiling, ack, age time.Duration) waits {
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
	period := make([]float64, len(states)) // seconds from one flush to the next
	for i, w := range states {
		period[i] = max(1/rate, min(w+1/rate, orElse(full, math.Inf(1))/rate))
	}
	// In which state the producer is, by the share of time, after steps in which it leaves one half of the time at most.
	step := slices.Min(period) / 2
	move := make([][]float64, len(states))
	for i, w := range states {
		grow := 1 - math.Exp(-rate*(w/2+ack.Seconds()))
		if full > 0 && rate*w > full {
			grow = 0
		}
		move[i] = make([]float64, len(states))
		leave := step / period[i]
		move[i][i] = 1 - leave
		move[i][up[i]] += leave * grow
		move[i][down[i]] += leave * (1 - grow)
	}
	now := power(move, age.Seconds()/step)[0] // it begins with the floor
	flushes := 0.0
	for i := range now {
		now[i] /= period[i]
		flushes += now[i]
	}
	var ws waits
	for i, s := range states {
		ws = append(ws, wait{s, now[i] / flushes})
	}
	return ws
}

func orElse(x, otherwise float64) float64 {
	if x > 0 {
		return x
	}
	return otherwise
}

// power is the matrix to the power of n, rounded down to a power of two, 2^60 at most.
func power(m [][]float64, n float64) [][]float64 {
	for ; n >= 2; n /= 2 {
		square := make([][]float64, len(m))
		for i := range m {
			square[i] = make([]float64, len(m))
			for k, x := range m[i] {
				for j := range m {
					square[i][j] += x * m[k][j]
				}
			}
		}
		m = square
	}
	return m
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
