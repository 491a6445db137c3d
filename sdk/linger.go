package sdk

import "time"

// linger decides how long a flush waits for company after its first record. Cost follows flushes, not bytes, so a
// longer wait is cheaper; but only if it gathers more. It does when records come faster than acknowledgements, which
// shows in two ways: a flush opens while an earlier one is still on its way, or records keep coming in the second half
// of the wait. A caller that sends one record, waits for its acknowledgement and sends the next shows neither, however
// fast it is, and keeps the floor.
//
// It is plain state without a clock or a lock: the producer tells it what happened.
type linger struct {
	floor, ceiling time.Duration
	target         time.Duration // acknowledgement wanted within; 0: none
	budget         float64       // commits per second; 0: none

	wait    time.Duration // of the next flush; in [floor, ceiling]
	latency time.Duration // put and commit, smoothed; 0 before the first
	commits float64       // per flush, smoothed; 0 before the first
}

func newLinger(c *producerConfig) linger {
	return linger{floor: c.lingerFloor, ceiling: c.lingerCeiling, target: c.latencyTarget, budget: c.requestBudget, wait: c.lingerFloor}
}

// next is how long the flush that opens now shall wait, idle being the time since the last one was cut (negative if
// there was none).
func (l *linger) next(idle time.Duration) time.Duration {
	switch {
	case l.budget > 0:
		apart := time.Duration(max(l.commits, 1) / l.budget * float64(time.Second))
		if idle < 0 {
			return l.floor
		}
		return max(l.floor, apart-idle)
	case l.target > 0 && l.latency > 0:
		return l.clamp(l.target - l.latency)
	}
	return l.wait
}

// cutFlush is how a flush ended its wait.
type cutFlush struct {
	pipelined bool // an earlier flush was on its way when this one opened
	arriving  bool // a record came in the second half of the wait
	filled    bool // bytes ended the wait
	forced    bool // a caller's Flush or Close ended it, which says nothing about traffic
}

// cut learns from a flush that goes out.
func (l *linger) cut(f cutFlush) {
	switch {
	case f.forced:
	case f.filled, !f.pipelined && !f.arriving:
		l.wait = l.clamp(l.wait / 2)
	default:
		l.grow()
	}
}

// settled learns from a flush that has been committed: how long put and commit took, and how many lanes it touched.
func (l *linger) settled(latency time.Duration, commits int) {
	l.latency = smooth(l.latency, latency)
	l.commits = smooth(l.commits, float64(commits))
}

// throttled learns that the table asks for fewer requests.
func (l *linger) throttled() { l.grow() }

// grow doubles the wait; from nothing it starts at a millisecond.
func (l *linger) grow() { l.wait = l.clamp(max(2*l.wait, time.Millisecond)) }

func (l *linger) clamp(d time.Duration) time.Duration { return min(max(d, l.floor), l.ceiling) }

// smooth is a moving average in which the newest value weighs a quarter; the first stands alone.
func smooth[N ~int64 | ~float64](old, new N) N {
	if old == 0 {
		return new
	}
	return old + (new-old)/4
}
