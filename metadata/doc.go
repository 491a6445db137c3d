// Package metadata is the state of a log: what the one table holds, the contract by which the rest of varve
// reads and changes it, the pure decisions made from it, and its errors. It does no I/O; metadata/dynamo is
// the adapter, metadata/metatest the suite that an adapter must pass, metadata/lane the writer's side of the
// commit protocol and metadata/walk the reader's.
//
// Invariants that everything here serves: an offset is assigned and its index entry written in ONE atomic
// update of a lane's head; the entries in a head are exactly the orders [First, Next order); what is older
// is in immutable chunks; base offsets are computed by Bases and by nothing else; "no answer" is never read
// as "nothing there".
package metadata
