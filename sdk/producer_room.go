package sdk

import "slices"

// room is the producer's memory bound: bytes taken by records that were accepted and are not delivered. Who finds no
// room waits in a queue, so that a large record is not overtaken for ever by small ones. Guarded by Producer.mu.
type room struct {
	limit, used int
	queue       []*roomRequest
}

// roomRequest is one wait for room. granted is closed when the bytes have been taken for it.
type roomRequest struct {
	bytes   int
	granted chan struct{}
}

// fits: a record larger than the whole room is let in alone.
func (r *room) fits(n int) bool { return r.used == 0 || r.used+n <= r.limit }

// take takes n bytes if they are free and nobody was there before.
func (r *room) take(n int) bool {
	if len(r.queue) > 0 || !r.fits(n) {
		return false
	}
	r.used += n
	return true
}

// ask joins the queue.
func (r *room) ask(n int) *roomRequest {
	q := &roomRequest{bytes: n, granted: make(chan struct{})}
	r.queue = append(r.queue, q)
	return q
}

// give returns n bytes, and grants what now has room.
func (r *room) give(n int) {
	r.used -= n
	for len(r.queue) > 0 && r.fits(r.queue[0].bytes) {
		r.used += r.queue[0].bytes
		close(r.queue[0].granted)
		r.queue = r.queue[1:]
	}
}

// cancel ends a wait. The bytes may have been granted at the same moment: then they are given back, or the room they
// hold would be lost.
func (r *room) cancel(q *roomRequest) {
	if i := slices.Index(r.queue, q); i >= 0 {
		r.queue = slices.Delete(r.queue, i, i+1)
		r.give(0) // who stood behind may fit
		return
	}
	r.give(q.bytes)
}
