package verify

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/varvelog/varve/internal/price"
	"github.com/varvelog/varve/metadata"
)

// MaxFindings is how many findings a report lists. All are counted.
const MaxFindings = 1000

// Report is what a check found. Its JSON form is stable: names are not reused for something else.
type Report struct {
	Log         string    `json:"log"`        // id, 32 hexadecimal digits
	Incomplete  bool      `json:"incomplete"` // the check could not be finished
	IndexOnly   bool      `json:"index_only"`
	Damage      int64     `json:"damage"` // findings of each severity
	Suspicious  int64     `json:"suspicious"`
	Information int64     `json:"information"`
	Findings    []Finding `json:"findings"` // the first MaxFindings, in the order in which they were found
	Totals      Totals    `json:"totals"`
	// Partitions is what the records of each partition come to that could be looked at; none where only the index is. Those of other topics that share a lane are among them.
	Partitions []PartitionSum `json:"partitions,omitempty"`
	Proof      *Proven        `json:"proof,omitempty"` // with Options.Proof
	Spent      *Spent         `json:"spent,omitempty"`
	Seconds    float64        `json:"seconds"`
}

// OK tells whether all was checked and nothing is damaged.
func (r *Report) OK() bool { return !r.Incomplete && r.Damage == 0 }

// Totals is what was checked.
type Totals struct {
	Topics     int64 `json:"topics"`
	Partitions int64 `json:"partitions"`
	Commits    int64 `json:"commits"`    // that the index has; one for each lane that a segment is committed to
	Rows       int64 `json:"rows"`       // that the archive has from the log starts on
	Records    int64 `json:"records"`    // in rows, and in commits that are not archived
	Bytes      int64 `json:"bytes"`      // of their record batches, as stored
	Objects    int64 `json:"objects"`    // looked at; one that several lanes name counts for each
	Unsummed   int64 `json:"unsummed"`   // rows that have no sum yet; the next that rewrites them takes it
	Known      int64 `json:"known"`      // rows that were not read, as they are what was proven before
	Compared   int64 `json:"compared"`   // records that were proven before, and are there as they were or have been removed since
	Uncompared int64 `json:"uncompared"` // records that were proven before, and cannot be compared: some of their row were removed together with newer ones, or a repair has cut there
	Expired    int64 `json:"expired"`    // named below a log start or past their class's days, and not looked at, or gone
	Listed     int64 `json:"listed"`     // objects of the bucket, listed for what nothing names; 0: that was not looked for
	Superseded Heap  `json:"superseded"` // by the archive, or in it by other segments; they wait for the sweep
	Orphans    Heap  `json:"orphans"`    // named by no commit and no row, and too old for that to come
	Recent     Heap  `json:"recent"`     // named by no commit and no row yet
}

// Proven is what became of the proof file.
type Proven struct {
	File string `json:"file"`
	// Since is when what was compared with was proven; zero: there was nothing.
	Since    time.Time `json:"since,omitzero"`
	Replaced bool      `json:"replaced"`
}

// Heap is some objects, and segments in the table, which count as objects without bytes.
type Heap struct {
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

// Spent is what a check used. Who opened the log fills it in: only the adapters see the requests.
type Spent struct {
	TableRequests int     `json:"table_requests"`
	StoreRequests int     `json:"store_requests"`
	Units         float64 `json:"read_units"`
	Dollars       float64 `json:"dollars"` // by internal/price
}

// SpentOf is what this usage comes to.
func SpentOf(table, objects int, u price.Usage) *Spent {
	return &Spent{TableRequests: table, StoreRequests: objects, Units: u.ReadUnits, Dollars: u.Dollars()}
}

// Severity of a finding.
type Severity string

const (
	Damage      Severity = "damage"      // records cannot be read, or not as they were written, or the lane cannot go on
	Suspicious  Severity = "suspicious"  // something that no part of varve does; nothing is lost by it as far as can be seen
	Information Severity = "information" // nothing is wrong
)

// Finding is one thing found.
type Finding struct {
	Severity Severity `json:"severity"`
	Kind     Kind     `json:"kind"`
	What     string   `json:"what"`
	Do       string   `json:"do"`
	Ranges   []Range  `json:"ranges,omitempty"` // partitions and offsets that it concerns
	Object   string   `json:"object,omitempty"` // name under the log's prefix
	Item     string   `json:"item,omitempty"`   // key in the table, pk|sk
	Lane     string   `json:"lane,omitempty"`
}

// Range is offsets [From, To) of a partition; To 0 means that they are not known.
type Range struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
}

func (r Range) String() string {
	if r.To == 0 {
		return fmt.Sprintf("topic %s partition %d", r.Topic, r.Partition)
	}
	return fmt.Sprintf("topic %s partition %d offsets [%d, %d)", r.Topic, r.Partition, r.From, r.To)
}

// maxRanges is how many ranges Where spells out.
const maxRanges = 4

// Where says what a finding concerns, in one line.
func (f *Finding) Where() string {
	var parts []string
	for _, r := range f.Ranges[:min(len(f.Ranges), maxRanges)] {
		parts = append(parts, r.String())
	}
	if n := len(f.Ranges) - maxRanges; n > 0 {
		parts = append(parts, fmt.Sprintf("%d more partitions", n))
	}
	for _, p := range [...]struct{ word, value string }{{"object ", f.Object}, {"item ", f.Item}} {
		if p.value != "" {
			parts = append(parts, p.word+p.value)
		}
	}
	if len(f.Ranges) == 0 && f.Lane != "" {
		parts = append(parts, "lane "+f.Lane)
	}
	return strings.Join(parts, "; ")
}

// find adds a finding, whose kind says how severe it is and what to do.
func (r *run) find(f Finding) {
	k := kinds[f.Kind]
	f.Severity, f.Do = k.severity, k.do
	r.mu.Lock()
	defer r.mu.Unlock()
	switch f.Severity {
	case Damage:
		r.report.Damage++
		r.harm(f)
	case Suspicious:
		r.report.Suspicious++
	default:
		r.report.Information++
	}
	if len(r.report.Findings) < MaxFindings {
		f.Ranges = slices.Clip(f.Ranges)
		r.report.Findings = append(r.report.Findings, f)
	}
	r.inform()
}

// harm notes what a finding of damage concerns. mu is held.
func (r *run) harm(f Finding) {
	for _, at := range f.Ranges {
		r.damaged[Range{Topic: at.Topic, Partition: at.Partition}] = true
	}
	if len(f.Ranges) == 0 && f.Lane != "" {
		r.damagedLanes[f.Lane] = true
	}
}

// unreadable tells whether an item is there and cannot be read, however often it is asked for.
func unreadable(err error) bool {
	return errors.Is(err, metadata.ErrCorrupt) || errors.Is(err, metadata.ErrVersion)
}
