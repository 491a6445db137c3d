// Package judge holds nothing but tests: whatever the engine answers, others answer the same, or a named entry says
// who is right and which page of AWS decides it.
//
// A seeded generator makes requests, the real SDK (without retries) sends each of them to the engine and to a judge,
// and the answers are compared field by field: success or code, what the message means, every attribute, the reasons
// of a cancelled transaction, LastEvaluatedKey. After a write the items that it names are compared too, and after
// every hundredth request the whole tables. Judges and engine are in the same state before each request, so the
// replay of a difference is the items that the request met and the request.
//
// In a plain go test the engine in memory is compared with the engine on a file, which may not differ at all.
// make test-judges brings in moto, dynoxide, dynalite and, by VARVE_JUDGE_ENDPOINT, any other endpoint.
//
// What a judge cannot decide is not asked: consumed capacity (moto bills a constant) has a golden table of its own in
// the engine's tests, and so have transaction conflicts (no judge has any), throttling and stale reads.
package judge
