package verify

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// PartitionSum is what was found of a partition's records, from its log start on, or from where the row or the commit begins that holds it.
type PartitionSum struct {
	Topic     string      `json:"topic"`
	Partition int         `json:"partition"`
	From      int64       `json:"from"` // offsets
	To        int64       `json:"to"`
	Records   int64       `json:"records"`
	Removed   int64       `json:"removed"`  // since they were archived, as rows say
	Sum       segment.Sum `json:"sum"`      // of the records
	Appended  segment.Sum `json:"appended"` // of them and those that were removed
	Partial   bool        `json:"partial"`  // not all could be read: it is damaged, or changed during the check
}

// account is what the check finds of the records of one partition, piece by piece: the archive's rows, then all commits behind them as one. A walk makes the pieces, checkers fill
// them in. Held are some 150 bytes for each row of the lanes that are walked.
type account struct {
	topic     *metadata.Topic
	partition int
	slot      metadata.Slot
	old       *provenPartition // as it was proven before, or nil
	pieces    []*piece
	tail      *piece // the last one, or nil
}

// piece is offsets [base, end) that are read, or known, together.
type piece struct {
	base, end int64
	known     bool        // proven before, and not read
	row       bool        // an archive row, not commits
	unsummed  bool        // a row with records that has no sum
	forgot    bool        // a row with offsets of which it does not know what became of them, as those have that a repair made of footers, and what was made of these since
	print     uint64      // rowPrint of a row
	gone      segment.Sum // of what was removed

	mu      sync.Mutex
	pending int         // parts that have not been read
	kept    segment.Sum // of the records
	split   int64       // end that was proven before, if it lies within
	below   segment.Sum // of the records before it
}

func (p *piece) read(sum, below segment.Sum) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending, p.kept, p.below = p.pending-1, p.kept.Plus(sum), p.below.Plus(below)
}

// account is that of a slot; nil where no sums are taken. Only the walk asks.
func (w *walk) account(slot metadata.Slot) (*account, error) {
	if w.accounts[slot] != nil || w.o.IndexOnly {
		return w.accounts[slot], nil
	}
	t, partition, ok := w.place(slot)
	if !ok {
		return nil, nil
	}
	a := &account{topic: t, partition: partition, slot: slot}
	var err error
	if w.proof != nil {
		a.old, err = w.proof.before(t.ID, partition)
	}
	w.accounts[slot] = a
	return a, err
}

// addRow makes a piece of a row that goes on where those before it end. A row that begins before that has taken the place of some of them.
func (a *account) addRow(r *metadata.Row, all bool) *piece {
	for n := len(a.pieces); n > 0 && a.pieces[n-1].base >= r.Base; n-- {
		a.pieces = a.pieces[:n-1]
	}
	p := &piece{base: r.Base, end: r.End, row: true, unsummed: r.Count > 0 && !r.Summed, forgot: r.Count+r.Gone.Records < r.End-r.Base, print: rowPrint(r), gone: r.Gone, pending: 1}
	if r.Count == 0 {
		p.pending = 0
	} else if was, ok := a.old.row(r.Base); ok && !all && was.is(p) {
		p.pending, p.known, p.kept = 0, true, was.Kept
	}
	p.split = a.old.splits(p)
	a.pieces = append(a.pieces, p)
	return p
}

// addCommit counts a slot's records in a commit into the piece of commits.
func (a *account) addCommit(base, end int64) *piece {
	if a.tail == nil {
		a.tail = &piece{base: base}
		if a.old != nil {
			a.tail.split = a.old.end()
		}
		a.pieces = append(a.pieces, a.tail)
	}
	a.tail.end = end
	a.tail.mu.Lock()
	defer a.tail.mu.Unlock()
	a.tail.pending++
	return a.tail
}

// rowPrint tells whether a row is the same as another in all that it says.
func rowPrint(r *metadata.Row) uint64 {
	return xxhash.Sum64String(fmt.Sprint(r.Topic, r.Partition, r.Base, r.End, r.Count, r.Segment, r.Start, r.Bytes, r.MaxTime, r.RunMax, r.First.UnixMilli(), r.Last.UnixMilli(),
		r.Summed, r.Sum, r.Gone))
}

// bound is the sum of all records that were appended from a partition's first piece up to an offset.
type bound struct {
	offset   int64
	appended segment.Sum
}

// bounds are those between pieces, and where the partition ended when it was proven before, if all that has been removed of the piece in which that is was on one side of it: offsets are dense, so
// a side that has a record at each of them has lost none.
func (a *account) bounds(from int64) []bound {
	at := bound{offset: from}
	all := []bound{at}
	for _, p := range a.pieces {
		if p.split > p.base && p.split < p.end && !p.known {
			switch below := at.appended.Plus(p.below); {
			case p.kept.Records-p.below.Records == p.end-p.split:
				all = append(all, bound{p.split, below.Plus(p.gone)})
			case p.below.Records == p.split-p.base:
				all = append(all, bound{p.split, below})
			}
		}
		at = bound{p.end, at.appended.Plus(p.kept).Plus(p.gone)}
		all = append(all, at)
	}
	return all
}

// whole tells whether the pieces hold every offset from the first on to the partition's end, but for cuts, and all of them could be read.
func (a *account) whole(end int64, cuts metadata.Cuts) bool {
	next := int64(-1)
	follows := func(base int64) bool {
		c := cuts.At(next)
		return next < 0 || base == next || c != nil && next < base && base <= c.To
	}
	for _, p := range a.pieces {
		if p.pending != 0 || !follows(p.base) {
			return false
		}
		next = p.end
	}
	return follows(end)
}

// settle ends the accounts of a lane, of which everything has been read: it reports them, compares them with what was proven before, and proves them.
func (w *walk) settle() error {
	if w.head == nil {
		return nil
	}
	for s, a := range w.accounts {
		if a == nil {
			continue
		}
		state := w.state.Load()
		end, cuts := w.head.Ends[s], state.SlotCuts(metadata.Slot(s))
		from := end
		for len(a.pieces) > 0 && a.pieces[0].end <= state.Starts[s] { // expired during the check
			a.pieces = a.pieces[1:]
		}
		if len(a.pieces) > 0 {
			from = a.pieces[0].base
		}
		sum := PartitionSum{Topic: a.topic.Name, Partition: a.partition, From: from, To: end, Partial: w.isDamaged(a) || !a.whole(end, cuts)}
		for _, p := range a.pieces {
			sum.Sum = sum.Sum.Plus(p.kept)
			sum.Removed += p.gone.Records
			sum.Appended = sum.Appended.Plus(p.kept).Plus(p.gone)
			if p.known {
				w.progress(func(t *Progress) { t.Known++ })
			}
			if p.unsummed {
				w.progress(func(t *Progress) { t.Unsummed++ })
			}
		}
		sum.Records = sum.Sum.Records
		w.mu.Lock()
		w.report.Partitions = append(w.report.Partitions, sum)
		w.mu.Unlock()
		if w.proof == nil {
			continue
		}
		if !sum.Partial && a.old != nil && !w.compare(a, from, end, cuts) {
			sum.Partial = true
		}
		if err := w.proof.settle(a, from, sum.Partial, w.isDamaged(a)); err != nil {
			return err
		}
	}
	return nil
}

// isDamaged tells whether damage was found of a partition.
func (w *walk) isDamaged(a *account) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.damaged[Range{Topic: a.topic.Name, Partition: a.partition}] || w.damagedLanes[string(w.id)]
}

// sortSums puts the report's partitions in order.
func (r *run) sortSums() {
	slices.SortFunc(r.report.Partitions, func(a, b PartitionSum) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}
