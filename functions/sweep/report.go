package sweep

import (
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// Kind is what is deleted.
type Kind string

const (
	Object   Kind = "object"
	Small    Kind = "small segment"
	Chunk    Kind = "chunk"
	Row      Kind = "archive row"
	Replaced Kind = "work list entry"
	Topic    Kind = "deleted topic" // its GONE row, and with it the last of its items
)

// Deletion is one thing that is deleted. Name is an object's name, an item's key, or a topic's name and id.
type Deletion struct {
	Kind  Kind   `json:"kind"`
	Name  string `json:"name"`
	Bytes int64  `json:"bytes,omitempty"` // of objects and small segments, where known
	Why   string `json:"why"`
}

// Reasons of deletions.
const (
	whySuperseded = "archived, and older than the restore window"
	whyReplaced   = "replaced in the archive, and older than the restore window"
	whyExpired    = "below the log start"
	whyOrphan     = "named by nothing"
	whyTopic      = "of a deleted topic"
	whyDone       = "seen to"
)

// Heap is how many, and their bytes as far as known.
type Heap struct {
	Count int64 `json:"count"`
	Bytes int64 `json:"bytes"`
}

// Report is what a sweep did. Its JSON form is stable.
type Report struct {
	Log      string        `json:"log"` // id, 32 hexadecimal digits
	Floor    string        `json:"floor"`
	Below    time.Time     `json:"below"` // the floor's time
	DryRun   bool          `json:"dry_run"`
	Full     bool          `json:"full"`
	Finished bool          `json:"finished"`
	Deleted  map[Kind]Heap `json:"deleted"`
	Listed   int64         `json:"listed"`  // objects and small segments looked at for orphans
	Waiting  int64         `json:"waiting"` // deleted topics that still have something
	// Kept are objects that nothing is known to name and that were kept all the same; the first MaxKept of them by name.
	Kept      int64    `json:"kept"`
	KeptNames []string `json:"kept_names,omitempty"`
	Seconds   float64  `json:"seconds"`
}

// MaxKept is how many names of kept objects a report lists.
const MaxKept = 100

// Errors of a sweep.
var (
	// ErrReferences: something that names segments cannot be read, so that nothing can be said of those that nothing else names.
	ErrReferences = errors.New("not all references can be read")
	// ErrDeadline: the time was over before the work was done. What was deleted stays deleted, and the next run goes on.
	ErrDeadline = errors.New("the sweep's time is over before it is done; run it again")
)

// ClockError is a machine whose clock is too far off.
type ClockError struct {
	Own, Service time.Time
}

func (e *ClockError) Error() string {
	return fmt.Sprintf("this machine's clock says %s, the table's service %s: over %s apart; set the clock, a sweep goes by ages",
		e.Own.UTC().Format(time.RFC3339), e.Service.UTC().Format(time.RFC3339), MaxClockSkew)
}

// TooMuchError is a sweep that found nearly everything it looked at to be named by nothing: at least leastSuspicious segments of topics that are not deleted, and
// over nine for each that is named. Or at least leastInARow of intake, of the restore window, were made one after another while none was that is named.
type TooMuchError struct {
	Orphans, Named, InARow int64
}

const (
	leastSuspicious = 20
	leastInARow     = 10
)

func (e *TooMuchError) Error() string {
	if e.InARow >= leastInARow {
		return fmt.Sprintf("%d segments that nothing names were made one after another, at a time of which the table has no commit: was it put back to an earlier time? "+
			"Then 'varve repair' first. They are kept. If they are what producers left while they did not reach the table, sweep with force, or wait until they are %v old",
			e.InARow, RestoreWindow)
	}
	return fmt.Sprintf("%d segments are named by nothing and only %d by something: was the table put back to an earlier time, or is it another log's? "+
		"They are kept. If they are what producers left that never got to commit, sweep with force", e.Orphans, e.Named)
}

// tell notes a deletion. In a dry run one that was told of already does not count again.
func (r *run) tell(d Deletion) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.o.DryRun {
		if r.told[d.Name] {
			return
		}
		r.told[d.Name] = true
	}
	h := r.report.Deleted[d.Kind]
	r.report.Deleted[d.Kind] = Heap{h.Count + 1, h.Bytes + d.Bytes}
	if r.o.Tell != nil {
		r.o.Tell(d)
	}
}

// wouldBeGone tells, in a dry run, whether it was told of already.
func (r *run) wouldBeGone(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told[name]
}

// keep notes an object that is kept because it does not say what it is.
func (r *run) keep(name, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Kept++
	if len(r.report.KeptNames) < MaxKept {
		r.report.KeptNames = append(r.report.KeptNames, name+": "+why)
	}
}

func references(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrReferences, fmt.Errorf(format, args...))
}

// unreadable makes an item that is there and cannot be read an ErrReferences.
func unreadable(err error) error {
	if errors.Is(err, metadata.ErrCorrupt) || errors.Is(err, metadata.ErrVersion) {
		return references("%w", err)
	}
	return err
}

// objectName is where a segment's bytes are; topic only matters for archive segments.
func objectName(topic segment.TopicID, id segment.ID) string {
	switch id.Place() {
	case segment.Archived:
		return segment.ArchiveName(topic, id)
	case segment.InTable:
		return metadata.SmallKey(id).String()
	}
	return segment.IntakeName(id)
}
