package sdk

import "testing"

func granted(q *roomRequest) bool {
	select {
	case <-q.granted:
		return true
	default:
		return false
	}
}

// Who waits is served in order: a small request does not pass a large one, which would then wait for ever.
func TestRoom_IsGivenInOrder(t *testing.T) {
	r := room{limit: 10}
	if !r.take(6) || r.take(5) {
		t.Fatal("6 of 10 taken, 5 more do not fit")
	}
	large, small := r.ask(8), r.ask(2)
	if r.take(1) {
		t.Error("who has just come passed those who wait")
	}
	if granted(small) {
		t.Error("the small request passed the large one")
	}
	r.give(6)
	if !granted(large) || !granted(small) || r.used != 10 {
		t.Errorf("granted %v and %v, %d used", granted(large), granted(small), r.used)
	}
}

// Something larger than everything is let in alone.
func TestRoom_LetsAGiantInAlone(t *testing.T) {
	r := room{limit: 10}
	r.take(1)
	q := r.ask(100)
	if r.give(1); !granted(q) || r.used != 100 {
		t.Errorf("granted %v, %d used", granted(q), r.used)
	}
}

// A wait is cancelled in the moment in which it is granted: what was granted comes back. One that was not granted makes
// way for those behind it.
func TestRoom_CancelLosesNothing(t *testing.T) {
	r := room{limit: 10}
	r.take(10)
	q := r.ask(10)
	r.give(10)
	if r.cancel(q); r.used != 0 {
		t.Errorf("%d used by nobody", r.used)
	}
	r.take(6)
	large, small := r.ask(8), r.ask(2)
	if r.cancel(large); !granted(small) || r.used != 8 || len(r.queue) != 0 {
		t.Errorf("behind a cancelled request: granted %v, %d used", granted(small), r.used)
	}
}
