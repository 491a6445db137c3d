package compact

import (
	"time"
)

// Report is what a run has done, or a dry run would.
type Report struct {
	DryRun   bool        `json:"dryRun"`
	Topics   int         `json:"topics"`
	Lanes    int         `json:"lanes"`
	Jobs     []JobReport `json:"jobs"`     // the first thousand
	Segments int         `json:"segments"` // archive segments published
	Merged   int         `json:"merged"`   // of them, those that merge others
	Rows     int         `json:"rows"`     // of the table that they put
	Records  int64       `json:"records"`
	Bytes    int64       `json:"bytes"`   // written
	Requests int         `json:"reads"`   // of segments or ranges of them
	Read     int64       `json:"read"`    // bytes
	Idle     int         `json:"idle"`    // lanes that were idle, and whose heads were emptied
	Padding  int         `json:"padding"` // empty entries for that
	Lost     int         `json:"lost"`    // jobs that another compactor did first
	Gone     int         `json:"gone"`    // lanes whose topic was deleted meanwhile
	Left     int         `json:"left"`    // lanes with a backlog that there was no time for
	// LeftSince is the append time of the oldest commit in them.
	LeftSince time.Time `json:"leftSince,omitzero"`
	Failures  []Failure `json:"failures"`
	Seconds   float64   `json:"seconds"`
}

// JobReport is one archive segment.
type JobReport struct {
	Topic    string    `json:"topic"`
	Lane     string    `json:"lane"`
	From     int64     `json:"from"` // orders; equal to To where rows are merged
	To       int64     `json:"to"`
	Oldest   time.Time `json:"oldest"`
	Reads    int       `json:"reads"`
	Rows     int       `json:"rows"`
	Replaced int       `json:"replaced,omitempty"` // rows
	Records  int64     `json:"records"`
	Bytes    int64     `json:"bytes"` // of batches
}

// Failure is a lane that could not be compacted, and why.
type Failure struct {
	Topic string `json:"topic"`
	Lane  string `json:"lane"`
	What  string `json:"what"`
}

// Progress says how far a run is.
type Progress struct {
	Segments int   // published
	Read     int64 // bytes
	Bytes    int64 // written and published
}

// note changes the report, and tells of progress. mu is held, which is what makes it one goroutine at a time.
func (r *run) note(change func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r.report)
	if r.o.Progress != nil {
		r.o.Progress(Progress{Segments: r.report.Segments, Read: r.report.Read, Bytes: r.report.Bytes})
	}
}

// done notes a job. In a dry run it has no size.
func (r *run) done(j *Job, size int64) {
	r.note(func(p *Report) {
		if len(p.Jobs) < maxListed {
			p.Jobs = append(p.Jobs, JobReport{Topic: j.Topic.Name, Lane: string(j.Lane), From: j.From, To: j.To, Oldest: j.Oldest, Reads: len(j.Reads), Rows: len(j.Copies),
				Replaced: len(j.Replace), Records: j.Records, Bytes: j.Bytes})
		}
		p.Segments++
		if len(j.Replace) > 0 {
			p.Merged++
		}
		p.Rows += len(j.Copies)
		p.Records += j.Records
		p.Bytes += size
	})
}
