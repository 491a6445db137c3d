// Package sim is the seeded world: one seed decides everything that happens in a log that is used by many processes while a fifth of their requests
// go wrong. Play is called with a Scenario and plays it in virtual time: the log's own packages, the AWS SDK, the DynamoDB engine and a store in
// memory are the real ones; processes have clocks and networks of their own, are frozen, cut off and killed.
//
// What is played is the Actors' part: each is one goroutine that starts processes and uses the log through them. To add something to the world is to
// write another Actor, and a Check that knows from the History what must be true of the Log at the end. A run has these phases:
//
//	load     actors play while things fail
//	calm     nothing begins to fail any more, what is frozen is thawed, and what is late arrives
//	proof    each actor shows that it goes on
//	settle   where things are removed: days go by until all that has to be waited for is over
//	check    the log is read twice, from table and store and by a reader, and compared with the history; the history itself must be one that can be
//	sequel   in some seeds the table is put back to an earlier moment while writers go on, and repaired
//
// What groups of consumers do is recorded as facts: what the answers of the table show of leases and offsets, at the seam above the adapter, what members
// know and are given, and what stands, which the world itself reads all the time. What they ask of leases and offsets, and how that is answered, is recorded for
// porcupine too, above whatever rule was taken out.
//
// A seed replays if goroutines run one at a time (GOMAXPROCS(1), no collection of garbage, no race detector, a machine that has time): everything that a
// process does takes a time of its own, drawn to the nanosecond, so that no two things happen at one moment, and what is drawn depends on what it is
// drawn for and not on the order of drawing.
package sim
