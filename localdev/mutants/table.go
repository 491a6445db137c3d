package main

// The judges. The simulations print the seed that failed. Those that are tests of one package are so because the simulations do not reach what the mutant breaks in so many seeds: a
// chunk that is missing or whose put fails at the one moment that matters, two requests of members that cross, rules that show after hours.
var (
	oneLane   = judge{"./localdev/sim", "TestBR13_Simulation$", 25}
	manyLanes = judge{"./localdev/sim", "TestBR13_SimulationOfLanes$", 25}
	groups    = judge{"./localdev/sim", "TestGroups$", 40}
	archive   = judge{"./localdev/sim", "TestArchive$", 20}
	sweeps    = judge{"./functions/sweep", "Test", 0}
	batches   = judge{"./segment", "Test", 0}
	lanes     = judge{"./metadata/lane", "Test", 0}
	items     = judge{"./metadata/dynamo", "TestSuite", 0}
	repairs   = judge{"./functions/repair", "StoodStill", 0}
	retainers = judge{"./functions/retain", "Test", 0}
	cleaners  = judge{"./functions/clean", "Test", 0}
)

// table is the mutants, by what they break.
var table = []mutant{
	// Commits.
	{"epoch-ignored", "a commit is refused when its writer's epoch was raised, so that an attempt that was settled as not applied never applies later",
		"metadata/dynamo/commit.go", `x.require(x.isNumber(metadata.EpochAttr(c.Writer), c.Epoch),`, `x.require(x.exists(metadata.EpochAttr(c.Writer)),`, oneLane},
	{"floor-ignored", "a commit is refused at or below the head's floor, so that no head comes to name an object that a sweep may delete",
		"metadata/dynamo/commit.go", "\t\tx.absentOrUnder(attrFloor, text(smallest.String())),\n", "", sweeps},
	{"cap-ignored", "a head has at most 64 entries",
		"metadata/dynamo/commit.go", `x.under(attrNext, number(c.Cap)))`, `x.exists(attrNext))`, oneLane},
	{"offset-condition-dropped", "a conditional append is made only where its partition ends as expected",
		"metadata/dynamo/commit.go", `x.require(x.isNumber(metadata.EndAttr(e.Slot), e.Offset))`, `x.require(x.exists(metadata.EndAttr(e.Slot)))`, manyLanes},
	{"token-ignored", "an append under a fencing token is refused once the token was taken by another",
		"metadata/dynamo/commit.go", `x.require(x.isNumber(metadata.TokenAttr(f.Slot), f.Token))`, `x.require(x.exists(metadata.TokenAttr(f.Slot)))`, manyLanes},
	{"sequence-ignored", "a request of a producer that repeats is appended only after the one before it",
		"metadata/dynamo/commit.go", "\t\tx.require(state + \"[0]=\" + x.num(s.Sequence-1))\n", "", oneLane},
	{"condition-before-producer", "a request under a condition that is sent again is judged by its producer first, as it has ended its condition itself",
		"metadata/decide.go", "\tcase len(c.FailedProducers(h)) > 0:\n\t\treturn ReasonProducer\n\tcase c.FailedToken(h) != nil:\n\t\treturn ReasonToken\n\tcase c.FailedExpect(h) != nil:\n\t\treturn ReasonOffset\n",
		"\tcase c.FailedToken(h) != nil:\n\t\treturn ReasonToken\n\tcase c.FailedExpect(h) != nil:\n\t\treturn ReasonOffset\n\tcase len(c.FailedProducers(h)) > 0:\n\t\treturn ReasonProducer\n", oneLane},
	{"fence-left-out", "an attempt with an unknown outcome is fenced before it is called not applied",
		"metadata/lane/settle.go", "\tif !s.fenced {\n\t\ts.env.At(env.BeforeFence)", "\tif s.writer < 0 {\n\t\ts.env.At(env.BeforeFence)", oneLane},
	{"retry-blind", "an attempt with an unknown outcome is settled before it is sent again",
		"metadata/lane/commit.go", "case errors.Is(err, metadata.ErrOutcomeUnknown):\n\t\t\tw.settle(ctx, b, c, since)",
		"case errors.Is(err, metadata.ErrOutcomeUnknown):\n\t\t\tw.wait(ctx, b, metadata.ErrUnavailable)", oneLane},
	{"chunks-not-searched", "what is no longer in the head is sought in the chunks before an attempt is called not applied",
		"metadata/lane/settle.go", "\t\ts.env.At(env.AfterFence)\n\t\tif s.inHead() {\n\t\t\treturn FoundInHead, nil\n\t\t}\n\t}\n\treturn s.chunks(ctx)",
		"\t\ts.env.At(env.AfterFence)\n\t\tif s.inHead() {\n\t\t\treturn FoundInHead, nil\n\t\t}\n\t}\n\treturn NotApplied, nil", oneLane},
	{"missing-chunk-believed", "a chunk that is missing decides nothing",
		"metadata/lane/settle.go", "\t\tcase metadata.Undecided:\n\t\t\tmissing = true\n", "\t\tcase metadata.Undecided:\n", lanes},
	{"order-given-up", "after a failure nothing that was accepted before its owner was told follows",
		"metadata/lane/ticket.go", "\tfor slot, err := range w.failing {\n\t\tt.withdraw(slot, err)\n\t}\n", "", lanes},

	// Spilling.
	{"trimmed-past-another", "a head is trimmed only from where the chunks begin that were put",
		"metadata/dynamo/sequencer.go", "\tx.require(x.isNumber(attrFirst, from))\n\tfor i, id := range ids {\n\t\tx.remove(metadata.EntryAttr(id))\n\t\tx.remove(metadata.OrderAttr(id))\n\t\tx.require(x.isNumber(metadata.OrderAttr(id), from+int64(i)))\n",
		"\tx.require(x.exists(attrFirst))\n\tfor _, id := range ids {\n\t\tx.remove(metadata.EntryAttr(id))\n\t\tx.remove(metadata.OrderAttr(id))\n", oneLane},
	{"chunk-failure-passed-over", "a head is trimmed only when all chunks are there",
		"metadata/lane/spill.go", "if event.ByAnother, err = h.put(ctx, &plan, c); err != nil || event.ByAnother {", "if event.ByAnother, err = h.put(ctx, &plan, c); event.ByAnother {", lanes},

	// Groups.
	{"lease-ignored-by-commits", "offsets are committed under the partition's lease only",
		"metadata/dynamo/offsets.go", "\t\tx.require(x.leaseIs(oc.Slot, oc.Lease))\n", "", groups},
	{"offsets-go-back", "no commit takes a committed offset back",
		"metadata/dynamo/offsets.go", `x.require(x.name(attr) + "<=" + x.num(oc.Offset))`, `x.require(x.exists(attr))`, groups},
	{"step-from-anywhere", "a step moves offsets from where its inputs began, by the lease under which they were read",
		"metadata/dynamo/offsets.go", "\t\tx.require(x.leaseIs(m.Slot, m.Lease), x.offsetIs(m.Slot, m.From))\n", "", groups},
	{"taken-from-the-living", "a partition is claimed when its holder has released it, or is dead",
		"metadata/group/claim.go", "case l.Held() && l.Session != m.session() && state.Plan.Lives(l.Session):", "case l.Held() && l.Session != m.session() && state.Plan == nil:", groups},
	{"plan-overwritten", "a plan follows the one that it was made from",
		"metadata/dynamo/groups.go", "\t\tx.require(x.isNumber(attrGeneration, p.Generation-1))\n", "\t\tx.require(x.exists(attrGeneration))\n", items},
	{"buried-though-it-moved", "a member is buried only if its row stands as it was watched",
		"metadata/dynamo/groups.go", "\tx.require(asRead(x, m)...)\n\tok, err := t.deleteIf(ctx, c, x)", "\tx.require(x.exists(attrSession))\n\tok, err := t.deleteIf(ctx, c, x)", items},
	{"committed-before-finished", "a record is not committed before the Poll after the one that returned it",
		"sdk/consumer_commit.go", "func(o *ownership) int64 { return o.finished })", "func(o *ownership) int64 { return o.delivered })", groups},

	// The archive.
	{"publish-from-anywhere", "a publication continues what is archived",
		"metadata/dynamo/archive.go", "\t\tx.require(x.isNumber(attrArchived, p.From))\n", "\t\tx.require(x.exists(attrArchived))\n", items},
	{"publish-below-floor", "a publication is refused at or below the archive's floor",
		"metadata/dynamo/archive.go", "\tx.require(x.absentOrUnder(attrStateFloor, text(p.ID.String())))\n", "", sweeps},
	{"publish-however-late", "a publication whose writing began an hour ago is not sent",
		"metadata/dynamo/archive.go", "\tc.fresh = freshness{p.Minted, p.ID.Time(), metadata.MaxArchiveAge}\n", "", repairs},
	{"rows-replaced-unseen", "a row is replaced only if it is still the one that was read",
		"metadata/dynamo/archive.go", "\tx := newExpr()\n\tx.require(x.isNumber(attrRowEnd, r.End))\n", "\tx := newExpr()\n\tx.require(x.exists(attrRowEnd))\n\tif true {\n\t\treturn x\n\t}\n", archive},
	{"chunks-before-heads", "a sweep reads heads before chunks, so that what is spilled in between is seen",
		"functions/sweep/read.go", "\ttell(l.head.Entries)\n\treturn r.chunks(ctx, l, l.needed, l.head.First, func(c *metadata.Chunk) bool {\n\t\ttell(c.Entries)\n\t\treturn true\n\t})",
		"\terr := r.chunks(ctx, l, l.needed, l.head.First, func(c *metadata.Chunk) bool {\n\t\ttell(c.Entries)\n\t\treturn true\n\t})\n\tif h, e := r.table.Head(ctx, l.id, metadata.Strong); e == nil {\n\t\ttell(h.Entries)\n\t}\n\treturn err", sweeps},
	{"restore-window-ignored", "what a publication replaced is kept for the restore window",
		"functions/sweep/archive.go", "\tif r.replaced[s.id] {\n\t\ts.needed = true\n\t\treturn nil\n\t}\n", "", sweeps},
	{"forgotten-before-deleted", "an entry of the sweep's work list goes after what it names",
		"functions/sweep/archive.go", "\tif err := r.judge(ctx, suspects); err != nil {\n\t\treturn err\n\t}\n\tfor _, e := range done {", "\tdefer r.judge(ctx, suspects)\n\tfor _, e := range done {", archive},
	{"shared-objects-deleted", "an intake segment goes when none of its lanes needs it",
		"functions/sweep/judge.go", "\t\t\tfor _, l := range r.mayName(s) {", "\t\t\tfor _, l := range r.mayName(s)[:0] {", archive},
	{"young-deleted", "nothing is deleted that may still be committed",
		"functions/sweep/superseded.go", "\tif !b.old(id) {\n\t\treturn\n\t}\n", "", sweeps},
	{"chunks-gone-before-first", "a lane's first order is raised before its chunks go",
		"functions/sweep/superseded.go", "\tr.o.Env.At(env.BeforeDelete)\n\treturn r.table.DeleteChunks(ctx, c.id, 0, c.to)\n", "\treturn nil\n", archive},
	{"expired-early", "a record goes when its own retention is over, not that which its topic has by now",
		"functions/retain/lane.go", "metadata.Expired(appended, l.now, l.topic.KeepFor(id))", "metadata.Expired(appended, l.now, l.keep.Time)", retainers},
	{"tombstones-at-once", "a tombstone stays for a time after what it deletes",
		"functions/clean/clean.go", "c.Settled > 0 && now.Sub(c.Since) >= p.o.Tombstones", "c.Settled > 0", cleaners},
	{"sum-not-compared", "what a rewrite has kept and left out comes to the sum of the row that it replaces, or nothing is published",
		"functions/internal/archive/archive.go", "\tif from.Summed && from.Sum != all {", "\tif from.Summed && from.Sum != all && left.Records < 0 {", cleaners},
	{"removed-not-summed", "a row keeps the sum of what was removed of it",
		"functions/internal/archive/archive.go", "row.Sum, row.Gone.Plus(left)", "row.Sum, row.Gone", cleaners},

	// Bytes.
	{"checksum-not-compared", "a batch is delivered only if its checksum is right",
		"segment/decode.go", "castagnoli); got != h.CRC {", "castagnoli); got != h.CRC && len(batch) == 0 {", batches},
}
