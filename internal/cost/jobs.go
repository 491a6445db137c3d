package cost

import (
	"math"
	"slices"
	"time"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/metadata"
)

// What compaction and the sweep go by.
const (
	jobBytes   = 512 << 20
	jobWorth   = 64 << 20
	jobOrders  = 16 << 10
	jobAge     = time.Hour
	partBytes  = 8 << 20
	restore    = 25 * time.Hour
	overlap    = 3 * time.Hour
	pageChunks = 32
)

// every is the seconds between two publications of a lane's backlog: by when it is large enough or old enough, rounded up to the schedule.
func (m *model) every() float64 {
	schedule := m.in.Compact.Seconds()
	due := min(jobAge.Seconds(), jobWorth/m.laneBytes())
	runs := max(1, math.Ceil(due/schedule-1e-9))
	if runs*schedule == jobAge.Seconds() {
		runs += 1.0 / chunkOrders // where no commit was left behind, the oldest is a moment too young
	}
	return schedule * runs
}

func (m *model) laneBytes() float64 { return m.Flushes * m.Bytes / m.Lanes }

// jobs is how many segments a publication takes, and the bytes of each.
func (m *model) jobs() (n, bytes float64) {
	backlog := m.every() * m.laneBytes()
	n = max(1, math.Ceil(max(backlog/jobBytes, m.every()*m.rate/jobOrders)-1e-9))
	return n, backlog / n
}

// pages is the read units of reading so many chunks in order; the price is half where stale reads will do.
func (m *model) pages(chunks, price float64) float64 {
	return price * (chunks*m.chunk/4096 + math.Ceil(chunks/pageChunks)/2)
}

func puts(bytes float64) float64 {
	if bytes <= partBytes {
		return 1
	}
	return math.Ceil(bytes/partBytes) + 2
}

// merged is what becomes of the rows that jobs make, for each row of a partition.
type merged struct {
	rows   float64 // that are replaced
	bytes  float64 // that are written again
	rounds float64 // in which a run finds something to merge
	jobs   float64 // transactions, for all partitions of the lane
	groups float64 // of partitions, each of which reads its part of a segment by itself
}

// mergedRows bounds how many rows merging looks at.
const mergedRows = 4000

// bucket is how far apart in time the records of one row may be; 0: any distance.
func (m *model) bucket() time.Duration {
	config := metadata.DefaultTopicConfig()
	if config.Retention = m.in.Retention; config.Retention == 0 {
		config.Retention = -1
	}
	return config.MergeBucket()
}

// merging lets compaction's own plan have a partition's rows as jobs make them, and counts what it does: nothing where they expire before.
func (m *model) merging() (d merged) {
	if m.in.Retention > 0 && m.in.Retention <= compact.MergeAfter {
		return d
	}
	n, bytes := m.jobs()
	gap := max(time.Microsecond, time.Duration(m.every()/n*float64(time.Second)))
	bucket := m.bucket()
	row := func(i int) *metadata.Row {
		at := time.Unix(0, 0).Add(time.Duration(i) * gap)
		return &metadata.Row{First: at, Last: at.Add(gap - 1), Bytes: int64(bytes / m.parts)}
	}
	each := 0
	if bucket > 0 && bucket <= compact.MergeAfter {
		each = d.atOnce(row, bucket, m.parts)
	} else {
		each = d.byAndBy(row, bucket, gap, m.parts)
	}
	if d.rows > 0 {
		d.groups /= d.rows
	}
	per := float64(max(1, each))
	return merged{d.rows / per, d.bytes / per, d.rounds / per, d.jobs / per, d.groups}
}

// old is what merging waits for.
func old(*metadata.Row) bool { return false }

// atOnce merges the rows of a bucket that is over by the time that they may be merged, and returns how many they are.
func (d *merged) atOnce(row func(int) *metadata.Row, bucket time.Duration, partitions float64) (each int) {
	rows := []*metadata.Row{row(0)}
	for rows[len(rows)-1].Last.Sub(rows[0].First) <= bucket && each < mergedRows {
		each++
		rows = append(rows, row(each))
	}
	rows[each] = &metadata.Row{First: rows[0].First.Add(3 * bucket), Last: rows[0].First.Add(3 * bucket)} // the next bucket
	due := compact.Merges(rows, bucket, jobBytes, old)
	for _, r := range due {
		d.count(float64(r[1]-r[0]), float64(mergeRows(rows[r[0]:r[1]]).Bytes), partitions)
	}
	if len(due) > 0 {
		d.rounds = 1
	}
	return each
}

// byAndBy merges what is due whenever a row has come, for two buckets of time, and counts the second. That each merge comes later by compact.MergeAfter changes little.
func (d *merged) byAndBy(row func(int) *metadata.Row, bucket, gap time.Duration, partitions float64) (each int) {
	from, to := 0, mergedRows
	if k := int(bucket / gap); bucket > 0 && 2*k <= mergedRows {
		from, to = k, 2*k
	}
	var rows []*metadata.Row
	for i := range to {
		rows = append(rows, row(i))
		for due := compact.Merges(rows, bucket, jobBytes, old); len(due) > 0; due = compact.Merges(rows, bucket, jobBytes, old) {
			for _, r := range slices.Backward(due) {
				one := mergeRows(rows[r[0]:r[1]])
				rows = slices.Replace(rows, r[0], r[1], one)
				if i >= from {
					d.count(float64(r[1]-r[0]), float64(one.Bytes), partitions)
				}
			}
			if i >= from {
				d.rounds++
			}
		}
	}
	return to - from
}

// mergeRows is one row in place of several.
func mergeRows(rows []*metadata.Row) *metadata.Row {
	one := &metadata.Row{First: rows[0].First, Last: rows[len(rows)-1].Last}
	for _, r := range rows {
		one.Bytes += r.Bytes
	}
	return one
}

// count counts the merging of so many rows in each of so many partitions.
func (d *merged) count(rows, bytes, partitions float64) {
	groups := math.Ceil(partitions / math.Floor(metadata.MaxPublishRows/rows))
	d.rows, d.bytes, d.jobs, d.groups = d.rows+rows, d.bytes+bytes, d.jobs+groups, d.groups+groups*rows
}

// compact is what compaction uses.
func (m *model) compact() (u Usage) {
	if m.in.Compact == 0 {
		return u
	}
	runs := 1 / m.in.Compact.Seconds()
	u.ReadUnits = 2 * runs
	n, bytes := m.jobs()
	chunks := m.every() * m.rate / chunkOrders
	idle := m.every()*runs - 1 // runs that find too little
	state := m.stateUnits()

	job := Usage{
		Gets:       m.every() * m.rate * (1 - m.SmallShare),
		Puts:       n * puts(bytes),
		WriteUnits: n * 2 * (m.parts + state + 1),
		ReadUnits:  m.every()*m.rate*m.SmallShare*m.getUnits + m.pages(chunks, 0.5) + 8 + m.rowUnits() + 4*(n-1) + idle*(7+m.rowUnits()+m.pages(chunks/2, 0.5)),
	}
	d := m.merging()
	job = job.add(Usage{
		Gets:       d.rows*d.groups + d.bytes*m.parts/partBytes,
		Puts:       d.jobs + d.bytes*m.parts/partBytes,
		WriteUnits: 2*d.rows*m.parts + 2*d.jobs*(state+1),
		ReadUnits:  d.rounds*(2*m.parts*m.rowUnits()+1) + d.jobs, // before it and after it
	}, n)
	return u.add(job, m.Lanes/m.every())
}

// rowUnits is the read units of looking at a partition's rows: those that are not merged yet, and one for each bucket of time before.
func (m *model) rowUnits() float64 {
	const rowBytes = 150
	n, _ := m.jobs()
	bucket := m.bucket().Seconds()
	rows := m.lasts(m.retained(compact.MergeAfter.Seconds()+bucket/2)) / m.every() * n
	if bucket > 0 {
		rows += max(0, m.retained(m.archiveLife())-compact.MergeAfter.Seconds()) / bucket
	}
	return math.Ceil(rows * rowBytes / 4096)
}

// stateUnits is the write units of a lane's state: two offsets of each slot.
func (m *model) stateUnits() float64 {
	return math.Ceil((150 + 2*m.parts*(2.9+number(m.offset))) / 1024)
}

// sweep is what the sweep uses.
func (m *model) sweep() (u Usage) {
	if m.in.Sweep == 0 {
		return u
	}
	seconds := m.in.Sweep.Seconds()
	segments, chunks := m.Flushes*seconds, m.rate*seconds/chunkOrders // since the last one; the chunks of a lane
	small := segments * m.SmallShare
	u = Usage{
		Puts:       3 + (segments-small)/1000,
		Gets:       1,
		WriteUnits: 18 + 2*m.Lanes,
		ReadUnits:  9 + 2*m.Lanes + 256 + max(256, 128+small*m.itemBytes()/4096) + m.Lanes*m.pages(chunks, 1),
	}
	if m.objects() > 1000 { // then each of its 256 collections is listed by itself
		u.Puts += 256
		u.WriteUnits += 16
	}
	if m.in.Compact > 0 {
		n, _ := m.jobs()
		jobs := n * seconds / m.every() // of a lane
		d := m.merging()
		again := m.Lanes * n / m.every() * max(0, m.in.Sweep+overlap-restore).Seconds() // segments that are looked for and not in the work list any more
		u = u.add(Usage{
			Gets:       2*(segments-small) + m.Lanes*jobs*d.rows*(1+d.groups) + 2*again,
			WriteUnits: small*m.putUnits + m.Lanes*(chunks*math.Ceil(m.chunk/1024)+1+jobs*(1+d.jobs)),
			ReadUnits: small*m.getUnits + m.Lanes*(m.pages(chunks, 1)+m.pages(chunks, 0.5)+1+m.parts+
				jobs*(1+d.jobs+m.parts*d.rows*d.groups)) + again,
		}, 1)
	}
	var all Usage
	return all.add(u, 1/seconds)
}

// itemBytes is the size of a small segment's item.
func (m *model) itemBytes() float64 { return smallExtra + min(m.Bytes, float64(m.in.Small)) }

// objects is how many objects of intake there are.
func (m *model) objects() float64 { return m.Flushes * (1 - m.SmallShare) * m.intakeLife() }

// retain is what the moving of log starts uses.
func (m *model) retain() (u Usage) {
	if m.in.Retain == 0 {
		return u
	}
	u.ReadUnits = 2 + 0.5*m.Lanes
	var all Usage
	all = all.add(u, 1/m.in.Retain.Seconds())
	if m.in.Retention > 0 && m.in.Age > m.in.Retention { // a bucket of rows expires at a time
		all = all.add(Usage{ReadUnits: m.parts + 4, WriteUnits: 1 + m.parts*(m.stateUnits()+1)}, m.Lanes/max(m.in.Retention.Seconds()/16, 3600, m.in.Retain.Seconds()))
	}
	return all
}

// intakeLife and archiveLife are the seconds until a segment is deleted.
func (m *model) intakeLife() float64 {
	if m.in.Compact > 0 && m.in.Sweep > 0 {
		return m.lasts(m.every()/2 + restore.Seconds() + m.in.Sweep.Seconds()/2)
	}
	return m.expires(36 * time.Hour) // a rule goes by whole days, and one more
}

func (m *model) archiveLife() float64 { return m.expires(36 * time.Hour) }

// replacedLife is the seconds for which what a merge has replaced is there besides what it has made. The first merges come after compact.MergeAfter.
func (m *model) replacedLife() float64 {
	life := m.archiveLife() // without a sweep a rule deletes it
	if m.in.Sweep > 0 {
		life = min(life, restore.Seconds()+m.in.Sweep.Seconds()/2)
	}
	return min(life+m.in.Undelete.Seconds(), max(0, m.in.Age.Seconds()-compact.MergeAfter.Seconds()))
}

// expires is for how long what retention deletes is there.
func (m *model) expires(later time.Duration) float64 {
	if m.in.Retention == 0 {
		return m.in.Age.Seconds()
	}
	return m.lasts((m.in.Retention + later).Seconds())
}

// retained bounds seconds by the retention.
func (m *model) retained(seconds float64) float64 {
	if m.in.Retention == 0 {
		return seconds
	}
	return min(seconds, m.in.Retention.Seconds())
}

func (m *model) lasts(seconds float64) float64 { return min(seconds, m.in.Age.Seconds()) }

// itemExtra is what DynamoDB adds to an item's size for storage.
const itemExtra = 100

// stored is what is there at the end of Age.
func (m *model) stored() Usage {
	const gib = 1 << 30
	life := m.in.Age.Seconds() // of chunks and small segments: only the sweep removes them, once they are archived
	if m.in.Compact > 0 && m.in.Sweep > 0 {
		life = m.intakeLife()
	}
	perSecond := m.Flushes * m.Bytes
	small := m.Flushes * m.SmallShare
	undelete := m.in.Undelete.Seconds()
	intake, archive, again := m.lasts(m.intakeLife()+undelete), 0.0, 0.0
	if m.in.Compact > 0 {
		archive = max(0, m.lasts(m.archiveLife()+undelete)-m.every()/2)
		n, _ := m.jobs()
		again = m.Lanes * n / m.every() * m.merging().bytes * m.parts * m.replacedLife()
	}
	batches := 1 - (segmentExtra+m.Touched*footerExtra)/m.Bytes // share of a segment that compaction copies
	return Usage{
		StoreGiB: (batches*(perSecond*archive+again) + max(0, perSecond-small*m.itemBytes())*intake) / gib,
		TableGiB: (small*(m.itemBytes()+itemExtra) + m.Commits/chunkOrders*(m.chunk+itemExtra)) * life / gib,
	}
}
