package verify

// Kind says what sort of thing was found.
type Kind string

// Kinds.
const (
	IdentityWrong      Kind = "identity-wrong"
	TopicUnreadable    Kind = "topic-unreadable"
	GoneUnreadable     Kind = "gone-unreadable"
	TopicDeleted       Kind = "topic-deleted"
	SlotShared         Kind = "slot-shared"
	SlotUnknown        Kind = "slot-unknown"
	HeadMissing        Kind = "head-missing"
	HeadUnreadable     Kind = "head-unreadable"
	HeadEntries        Kind = "head-entries"
	HeadEnds           Kind = "head-ends"
	ConfigAhead        Kind = "config-ahead"
	FloorWrong         Kind = "floor-wrong"
	StateMissing       Kind = "state-missing"
	StateUnreadable    Kind = "state-unreadable"
	StateWrong         Kind = "state-wrong"
	StartAboveEnd      Kind = "start-above-end"
	ChunkMissing       Kind = "chunk-missing"
	ChunkUnreadable    Kind = "chunk-unreadable"
	ChunkOutOfPlace    Kind = "chunk-out-of-place"
	ChunkForgotten     Kind = "chunk-forgotten"
	ChunkDiffers       Kind = "chunk-differs"
	BaseShifted        Kind = "base-shifted"
	BasesDisagree      Kind = "bases-disagree"
	MaximaBroken       Kind = "maxima-broken"
	ExtentDoubled      Kind = "extent-doubled"
	EntryLate          Kind = "entry-late"
	EntryElsewhere     Kind = "entry-elsewhere"
	ExtentOutside      Kind = "extent-outside"
	ObjectMissing      Kind = "object-missing"
	ObjectUnreadable   Kind = "object-unreadable"
	ObjectForeign      Kind = "object-foreign"
	PlaceDiffers       Kind = "place-differs"
	LengthDiffers      Kind = "length-differs"
	CountDiffers       Kind = "count-differs"
	TimeDiffers        Kind = "time-differs"
	BatchCorrupt       Kind = "batch-corrupt"
	OffsetsNotDense    Kind = "offsets-not-dense"
	Orphans            Kind = "orphans"
	TableBehind        Kind = "table-behind"
	RepairUnfinished   Kind = "repair-unfinished"
	EraUnreadable      Kind = "era-unreadable"
	OrphansUnknown     Kind = "orphans-unknown"
	NameUnknown        Kind = "name-unknown"
	RowUnreadable      Kind = "row-unreadable"
	RowMissing         Kind = "row-missing"
	RowOverlaps        Kind = "row-overlaps"
	RowAhead           Kind = "row-ahead"
	RowTimes           Kind = "row-times"
	ArchiveShifted     Kind = "archive-shifted"
	OffsetsDiffer      Kind = "offsets-differ"
	OffsetsOutside     Kind = "offsets-outside"
	ReplacedUnreadable Kind = "replaced-unreadable"
	RowSumDiffers      Kind = "row-sum-differs"
	HistoryChanged     Kind = "history-changed"
	HistoryShorter     Kind = "history-shorter"
	HistoryCut         Kind = "history-cut"
	HistoryGone        Kind = "history-gone"
	HistoryUncompared  Kind = "history-uncompared"
)

// What to do, where several kinds have it in common.
const (
	doObject = "Bring the object back from a backup or an older version of it in the bucket, byte for byte, under the same name. " +
		"Otherwise these offsets are lost: readers report them, and go on past them only where they are told to."
	doTable = "Keep writers away from the topic and have the table put back to a time before the damage (point-in-time recovery). " +
		"Do not mend items by hand while writers run."
	doReport  = "No part of varve does this: please report it, with this report. The records can be read."
	doNewer   = "If a newer varve wrote it, verify with that one. Otherwise: " + doTable
	doNothing = "Nothing."
	doHistory = "Compare with a backup, or with older versions of the archive's objects in the bucket, before the sweep removes what was replaced: stop it now. " +
		"Once it is settled, remove the proof file and prove the log anew."
)

// kinds says how severe each kind is, and what to do about it.
var kinds = map[Kind]struct {
	severity Severity
	do       string
}{
	IdentityWrong:      {Damage, "Name the bucket prefix and the table that belong together. Nothing else was checked."},
	TopicUnreadable:    {Damage, doNewer},
	GoneUnreadable:     {Damage, doNewer},
	TopicDeleted:       {Information, doNothing},
	SlotShared:         {Damage, "Stop the writers of both topics: their records mix. " + doTable},
	SlotUnknown:        {Damage, doTable},
	HeadMissing:        {Damage, "Nothing can be appended to the lane, and its newest commits are lost from the index. " + doTable},
	HeadUnreadable:     {Damage, doNewer},
	HeadEntries:        {Damage, doTable},
	HeadEnds:           {Damage, doTable},
	ConfigAhead:        {Suspicious, doReport},
	FloorWrong:         {Suspicious, doReport},
	StateMissing:       {Damage, doTable},
	StateUnreadable:    {Damage, doNewer},
	StateWrong:         {Damage, doTable},
	StartAboveEnd:      {Damage, doTable},
	ChunkMissing:       {Damage, doTable},
	ChunkUnreadable:    {Damage, doNewer},
	ChunkOutOfPlace:    {Damage, doTable},
	ChunkForgotten:     {Information, "Nothing: a writer of the time that the table has forgotten has put it. Whoever spills the lane's entries of these orders replaces it."},
	ChunkDiffers:       {Suspicious, "Whoever spills the lane's entries of these orders replaces it. If the table was put back, see 'varve repair --help'; if not, please report it, with this report."},
	BaseShifted:        {Damage, "Readers get these records under other offsets than their producers were told. " + doTable},
	BasesDisagree:      {Damage, "This build works offsets out wrongly. Do not write with it; please report it, with this report."},
	MaximaBroken:       {Damage, "Lookups by time in these partitions may miss records; reading by offset is not affected. " + doTable},
	ExtentDoubled:      {Damage, "Readers get these records twice. If consumers cannot bear that, remove the second ones by offset on their side."},
	EntryLate:          {Suspicious, "Was a clock set back? Otherwise: " + doReport},
	EntryElsewhere:     {Suspicious, "A newer varve may have written it: verify with that one."},
	ExtentOutside:      {Damage, doObject},
	ObjectMissing:      {Damage, doObject},
	ObjectUnreadable:   {Damage, doObject},
	ObjectForeign:      {Damage, "Something was copied over it, from another log or prefix. " + doObject},
	PlaceDiffers:       {Damage, doObject},
	LengthDiffers:      {Damage, doObject},
	CountDiffers:       {Damage, doObject},
	TimeDiffers:        {Damage, doObject},
	BatchCorrupt:       {Damage, doObject},
	OffsetsNotDense:    {Damage, doObject},
	Orphans:            {Information, "Nothing: producers that died before their commit leave them, and deleted topics. The sweep removes them."},
	TableBehind:        {Suspicious, "If the table was put back, stop compaction and sweep at once, and see 'varve repair --help'. If not, producers could not reach the table then: nothing is lost."},
	RepairUnfinished:   {Damage, "Stop compaction and sweep, and see 'varve repair --help'."},
	EraUnreadable:      {Damage, "No repair begins without it: bring it back from a backup or an older version of it in the bucket. If a newer varve wrote it, verify with that one."},
	OrphansUnknown:     {Information, "Verify again when what could not be read is mended."},
	NameUnknown:        {Information, "Remove it if it is not yours: varve does not read it."},
	RowUnreadable:      {Damage, doNewer},
	RowMissing:         {Damage, "Readers cannot get at these offsets. Their records are in archive segments, whose footers say which. " + doTable},
	RowOverlaps:        {Damage, "Readers get these records twice, or one row hides another. " + doTable},
	RowAhead:           {Damage, "The partition cannot be archived any further. " + doTable},
	RowTimes:           {Suspicious, "Was a clock set back? Otherwise: " + doReport},
	ArchiveShifted:     {Damage, "Between the archive and the index records are missing, or come twice. " + doTable},
	OffsetsDiffer:      {Damage, doObject},
	OffsetsOutside:     {Damage, doObject},
	RowSumDiffers:      {Damage, "The batches are sound and the records are not those that were archived: some were lost, added, changed or moved, or the row was. " + doObject},
	HistoryChanged:     {Damage, "Records were lost, added, changed or moved since the log was proven last. " + doHistory},
	HistoryShorter:     {Damage, "If the table was put back, stop compaction and sweep at once, and see 'varve repair --help'. Otherwise: " + doHistory},
	HistoryCut:         {Information, doNothing},
	HistoryGone:        {Information, "Nothing, if the topic was deleted. Otherwise the log is not what it was: look for the topic in a backup of the table."},
	HistoryUncompared:  {Information, "Nothing for now. To have all compared, check before keys are compacted or erased, not only after it."},
	ReplacedUnreadable: {Damage, "The sweep deletes nothing while it cannot be read; no record is lost by it. " + doNewer},
}
