package sdk

import (
	"testing"
	"time"
)

const ms = time.Millisecond

func testLinger(opts ...ProducerOption) linger {
	c := defaultProducerConfig()
	for _, o := range opts {
		o(&c)
	}
	return newLinger(&c)
}

func TestLinger_GrowsToTheCeilingWhileSegmentsStaySmall(t *testing.T) {
	for name, f := range map[string]cutFlush{"pipelined": {pipelined: true}, "arriving": {arriving: true}} {
		l := testLinger()
		var got []time.Duration
		for range 8 {
			got = append(got, l.next(ms))
			l.cut(f)
		}
		want := []time.Duration{5 * ms, 10 * ms, 20 * ms, 40 * ms, 80 * ms, 160 * ms, 250 * ms, 250 * ms}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%s: waits %v, want %v", name, got, want)
			}
		}
	}
}

func TestLinger_ShrinksWhenBytesFillOrTrafficStops(t *testing.T) {
	for name, f := range map[string]cutFlush{"filled": {filled: true, pipelined: true, arriving: true}, "lone records": {}} {
		l := testLinger()
		l.wait = 250 * ms
		for _, want := range []time.Duration{125 * ms, 62500 * time.Microsecond} {
			if l.cut(f); l.next(0) != want {
				t.Fatalf("%s: %v, want %v", name, l.next(0), want)
			}
		}
		for range 10 {
			l.cut(f)
		}
		if l.next(0) != 5*ms {
			t.Errorf("%s: ends at %v, not at the floor", name, l.next(0))
		}
	}
}

func TestLinger_GrowsWhenThrottledWhateverElse(t *testing.T) {
	l := testLinger()
	for range 4 {
		l.cut(cutFlush{filled: true})
		l.throttled()
		l.throttled()
	}
	if l.next(0) <= 5*ms {
		t.Errorf("wait %v after throttling", l.next(0))
	}
}

func TestLinger_ACallersFlushTeachesNothing(t *testing.T) {
	l := testLinger()
	l.wait = 40 * ms
	if l.cut(cutFlush{forced: true}); l.next(0) != 40*ms {
		t.Errorf("wait %v", l.next(0))
	}
}

func TestLinger_LatencyTargetTakesWhatIsLeft(t *testing.T) {
	l := testLinger(WithLatencyTarget(200 * ms))
	if got := l.next(0); got != 5*ms {
		t.Errorf("%v before anything was measured, want the floor", got)
	}
	l.settled(80*ms, 1)
	if got := l.next(0); got != 120*ms {
		t.Errorf("%v, want 120ms", got)
	}
	for range 50 {
		l.settled(300*ms, 1)
	}
	if got := l.next(0); got != 5*ms {
		t.Errorf("%v with a slow store, want the floor", got)
	}
}

func TestLinger_RequestBudgetSpacesFlushes(t *testing.T) {
	l := testLinger(WithRequestBudget(2))
	if got := l.next(-1); got != 5*ms {
		t.Errorf("first flush waits %v", got)
	}
	for range 50 {
		l.settled(80*ms, 3) // three lanes each: 1.5 s apart
	}
	for idle, want := range map[time.Duration]time.Duration{0: 1500 * ms, 1000 * ms: 500 * ms, 10000 * ms: 5 * ms} {
		if got := l.next(idle); got.Round(ms) != want {
			t.Errorf("%v after the last flush it waits %v, want %v", idle, got, want)
		}
	}
}

func TestLinger_ZeroAndFixed(t *testing.T) {
	l := testLinger(WithLinger(0, 0))
	if l.cut(cutFlush{pipelined: true}); l.next(0) != 0 {
		t.Errorf("0 to 0 waits %v", l.next(0))
	}
	l = testLinger(WithLinger(0, 100*ms))
	for range 3 {
		l.cut(cutFlush{pipelined: true})
	}
	if l.next(0) != 4*ms {
		t.Errorf("from 0 it grew to %v", l.next(0))
	}
}
