package cost

import (
	"math"
	"time"
)

// What the code of producers, readers and jobs goes by.
const (
	segmentMax  = 8 << 20 // bytes of records that end the linger
	chunkOrders = 8       // commits in a chunk
	tableCall   = 5 * time.Millisecond
)

// Flow is what producers do.
type Flow struct {
	Flushes        float64 `json:"flushesPerSecond"` // of all producers
	Records        float64 `json:"recordsPerSegment"`
	Touched        float64 `json:"partitionsPerSegment"`
	Bytes          float64 `json:"segmentBytes"`
	SmallShare     float64 `json:"smallShare"` // of the segments that are stored in the table
	Lanes          float64 `json:"lanes"`
	Commits        float64 `json:"commitsPerSecond"` // of all lanes
	CommitUnits    float64 `json:"writeUnitsPerCommit"`
	LaneWriteUnits float64 `json:"laneWriteUnitsPerSecond"` // of one lane's head and chunks
	Polls          float64 `json:"pollsPerSecond"`          // of one reader, in one lane
}

// model is a log at work. All rates are by the second.
type model struct {
	Flow
	in Input

	parts float64 // partitions of a lane
	lanes float64 // that a flush touches
	rate  float64 // commits of one lane
	fixed float64 // share of the time between a lane's commits that is always the same

	putUnits, getUnits float64 // of a small segment's item, to write and to read it

	head, entry, vary, chunk float64 // bytes of a head without entries, of an entry and how much it varies, of a chunk
	offset                   float64 // of the next record in a partition

	spill float64 // seconds that a spill takes
	other float64 // share of the spills before which somebody else has spilled
}

func newModel(in Input) *model {
	m := &model{in: in}
	m.Lanes = math.Ceil(float64(in.Partitions) / float64(in.LaneWidth))
	m.parts = float64(in.Partitions) / m.Lanes
	if in.Request > 0 {
		m.requests()
	} else {
		m.linger()
	}
	m.rate = m.Flushes * m.lanes / m.Lanes
	m.Commits = m.rate * m.Lanes
	m.Bytes = in.segment(m.Records, m.Touched)
	m.items()
	m.spill = (2 + m.other) * tableCall.Seconds()
	m.CommitUnits = m.commitUnits()
	m.LaneWriteUnits = m.rate * m.CommitUnits
	m.Polls = m.polls()
	return m
}

// linger is producers with the SDK.
func (m *model) linger() {
	in := &m.in
	producers := float64(in.Producers)
	rate := in.Rate / in.Record / producers // records of one producer
	full := max(1, segmentMax/in.Record)
	ws := lingers(rate, full, in.LingerFloor, in.Linger, in.Ack, in.Age)
	period := ws.mean(func(w float64) float64 { return max(1/rate, min(w+1/rate, full/rate)) })
	m.Flushes, m.Records = producers/period, rate*period
	touched := func(of float64) float64 { // of so many equal shares of the records, those that a flush has one of
		return ws.mean(func(w float64) float64 { return of * (1 - (1-1/of)*math.Exp(-min(rate*w, full-1)/of)) })
	}
	m.lanes, m.Touched = touched(m.Lanes), touched(float64(in.Partitions))
	m.small(func(do func(records, share float64) bool) {
		for _, w := range ws {
			more := rate * w.seconds
			share := w.share * math.Exp(-more) // of flushes that have one record
			for n := 1.0; do(n, share) && (n < more || share > 1e-12); n++ {
				share *= more / n
			}
		}
	})
	swaps := min(1, 1.13*producers/period/rate) // chance that two producers have changed places since the spill before
	m.other = swaps * (producers - 1) / producers
	if chunkOrders%in.Producers != 0 {
		m.other += 1 - swaps
	}
	if in.Producers == 1 {
		m.fixed = 1 - 1/rate/period
	}
}

// requests is functions, of which each request is a flush.
func (m *model) requests() {
	in := &m.in
	m.Records = in.Request / in.Record
	m.Flushes = in.Rate / in.Request
	touched := func(of float64) float64 { return of * (1 - math.Pow(1-1/of, m.Records)) }
	m.lanes, m.Touched = touched(m.Lanes), touched(float64(in.Partitions))
	m.small(func(do func(records, share float64) bool) { do(m.Records, 1) })
	m.other = 1 - 1/max(1, m.Flushes*in.FunctionTime.Seconds())
}

// Bytes that stand beside the records' own.
const (
	segmentExtra = 93 // of a segment: header, footer, trailer
	extentExtra  = 76 // of a partition in it: 61 of the batch's header, and footerExtra
	footerExtra  = 15 // of these, in the footer
	recordExtra  = 8  // of a record: lengths, offset, time
	smallExtra   = 29 // of a small segment's item: keys, the attribute's name
)

// segment is how many bytes a segment takes.
func (in *Input) segment(records, partitions float64) float64 {
	return segmentExtra + partitions*extentExtra + records*(in.Record+recordExtra)*in.Ratio
}

// small finds out which segments are, of flushes that are given by number of records and share, until do returns false.
func (m *model) small(each func(do func(records, share float64) bool)) {
	parts := float64(m.in.Partitions)
	var put, get float64
	each(func(n, share float64) bool {
		size := m.in.segment(n, parts*(1-math.Pow(1-1/parts, n)))
		if size > float64(m.in.Small) {
			return false
		}
		m.SmallShare += share
		put += share * math.Ceil((size+smallExtra)/1024)
		get += share * math.Ceil((size+smallExtra)/4096)
		return true
	})
	if m.SmallShare < 1e-9 {
		m.SmallShare = 0
	}
	if m.SmallShare = min(m.SmallShare, 1); m.SmallShare > 0 {
		m.putUnits, m.getUnits = put/m.SmallShare, get/m.SmallShare
	}
}

// items works out how large a lane's items are.
func (m *model) items() {
	in := &m.in
	rate := in.Rate / in.Record / float64(in.Partitions) // records of one partition
	m.offset = rate * in.Age.Seconds()
	order := number(m.rate * in.Age.Seconds())
	m.head = 24 + 2*(1+order) + 64 + 13 + 8 + 25 + m.parts*(2.9+number(m.offset))

	touched := m.Touched / m.lanes
	each := m.Records / m.Touched
	slot := uvarint(each) + uvarint(61+each*(in.Record+recordExtra)*in.Ratio) + 1 + m.late()
	packed := 4 + math.Ceil(m.parts*touched/(touched+1)/8) + touched*slot
	m.entry = 2*21 + order + packed
	m.vary = slot * math.Sqrt(touched*max(0, 1-touched/m.parts))

	latest := 1 + math.Exp(-0.128*rate) + math.Exp(-16.384*rate) // of a slot's running maximum
	m.chunk = 49 + 2*(1+math.Ceil(m.parts/8)) + m.parts*(uvarint(m.offset)+latest) + chunkOrders*(20+uvarint(packed)+packed)
}

// late is how many bytes more than one it takes to say how long before the flush's last record a partition's last one came: one from 128 ms on, another from 16,384 ms on.
func (m *model) late() (bytes float64) {
	if m.in.Request > 0 {
		return 0
	}
	producer := m.in.Rate / m.in.Record / float64(m.in.Producers)
	wait, rate := m.Records/producer, producer/float64(m.in.Partitions)
	for _, from := range []float64{0.128, 16.384} {
		if wait > from {
			bytes += (math.Exp(-from*rate) - math.Exp(-wait*rate)) / (1 - math.Exp(-wait*rate))
		}
	}
	return bytes
}

// number is the size of a DynamoDB number, uvarint that of a packed one.
func number(x float64) float64  { return 1 + math.Ceil((math.Floor(math.Log10(max(x, 1)))+1)/2) }
func uvarint(x float64) float64 { return max(1, math.Ceil(math.Log2(max(x, 1)+1)/7)) }

// units is how many units of that many bytes an item of about mean bytes takes, on average.
func units(mean, deviation, unit float64) float64 {
	if deviation < 1 {
		return max(1, math.Ceil(mean/unit))
	}
	n := 1.0
	for k := 1.0; ; k++ {
		more := math.Erfc((k*unit-mean)/deviation/math.Sqrt2) / 2 // chance of more than k units
		if n += more; more < 1e-6 && k*unit > mean {
			return n
		}
	}
}

// commitUnits is the write units of a commit and its share of a spill.
func (m *model) commitUnits() float64 {
	with := func(entries float64) float64 { return units(m.head+entries*m.entry, m.vary*math.Sqrt(entries), 1024) }
	during := m.rate * m.spill  // commits that come while a spill is under way
	chance := math.Exp(-during) // that there are none
	sum, late := chance*with(chunkOrders), 1-chance
	for k := 1.0; k <= chunkOrders; k++ { // late is the chance that there are k or more
		sum += (1-late)*with(k) + late*with(chunkOrders+k) // the k-th commit since a spill was due
		chance *= during / k
		sum += chance * with(chunkOrders+k) // the trim
		late = max(0, late-chance)
	}
	return (sum + units(m.chunk, m.vary*math.Sqrt(chunkOrders), 1024)) / chunkOrders
}

// chunkReads is the read units of reading a chunk by itself.
func (m *model) chunkReads() float64 { return math.Ceil(m.chunk / 4096) }

// produce is what producers use, without what functions cost.
func (m *model) produce() Usage {
	return Usage{
		Puts:       m.Flushes * (1 - m.SmallShare),
		WriteUnits: m.Flushes*m.SmallShare*m.putUnits + m.Commits*m.CommitUnits,
		ReadUnits:  m.Commits / chunkOrders * m.other * m.chunkReads(),
	}
}

func (m *model) functions() (u Usage) {
	if m.in.Request > 0 {
		u.Requests = m.Flushes
		u.GBs = m.Flushes * float64(m.in.Memory) / 1024 * m.in.FunctionTime.Seconds()
	}
	return u
}

// How a reader polls a head (sdk/lanes.go), in seconds.
const (
	tailFloor   = 0.025 // pause after news
	tailCeiling = 2.0
	tailGrowth  = 1.5  // from one pause to the next
	tailJitter  = 0.75 // of a pause, on average
)

// polls is how often a reader reads a head.
func (m *model) polls() float64 {
	gap := func(pause float64) float64 { return tailJitter*pause + tableCall.Seconds() }
	longer := func(pause float64) float64 { return min(pause*tailGrowth, tailCeiling) }
	// Commits at random: reads until one shows news, and how long they take.
	reads, took := 0.0, 0.0
	missed, pause := 1.0, tailFloor
	for ; pause < tailCeiling; pause = longer(pause) {
		reads, took = reads+missed, took+missed*gap(pause)
		missed *= math.Exp(-m.rate * gap(pause))
	}
	last := missed / -math.Expm1(-m.rate*gap(pause)) // all those at the ceiling
	random := (reads + last) / (took + last*gap(pause))
	if m.fixed == 0 {
		return random
	}
	// Commits at regular times: the reads that fit between two.
	reads = 0
	left := 1 / m.rate
	for pause = tailFloor; pause < tailCeiling && left > 0; pause = longer(pause) {
		reads += min(1, left/gap(pause))
		left -= gap(pause)
	}
	reads += max(0, left) / gap(tailCeiling)
	regular := min(max(1, reads)*m.rate, 1/gap(tailFloor))
	return m.fixed*regular + (1-m.fixed)*random
}

// How a member of a group goes on (sdk/consumer_options.go), in seconds; and bytes of a partition in the group's items.
const (
	heartbeat  = 3.0
	refresh    = 9.0
	autoCommit = 5.0
	groupSlot  = 46
	groupExtra = 60
)

// read is what one reader uses.
func (m *model) read() Usage {
	missed := max(0, 1-m.Polls*m.spill) // share of the spills that it has not seen all commits of before: then it reads state and chunk
	u := Usage{
		Gets: m.Flushes * (1 - m.SmallShare) * m.lanes,
		ReadUnits: m.Flushes*m.SmallShare*m.getUnits*m.lanes + m.Lanes*m.Polls*0.5*math.Ceil((m.head+chunkOrders/2*m.entry)/4096) +
			m.Commits/chunkOrders*missed*0.5*(1+m.chunkReads()),
	}
	if m.in.Group {
		u.WriteUnits += 1/heartbeat + m.Lanes*min(1/autoCommit, m.rate)*math.Ceil((groupExtra+groupSlot*m.parts)/1024)
		u.ReadUnits += math.Ceil((groupExtra+groupSlot*float64(m.in.Partitions))/4096)/heartbeat + 1/refresh
	}
	return u
}
