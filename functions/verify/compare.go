package verify

import (
	"fmt"
	"slices"

	"github.com/varvelog/varve/metadata"
)

// compare holds what a partition has against what was proven before: between any two offsets at which both have a bound the same has been appended. It tells whether nothing is wrong.
//
// What it relies on: of rows only their neighbours are made one, and none is ever cut. So the bounds of rows are bounds that were proven, unless they lie behind all rows of that time; and the end
// of that time lies within at most one row, whose records before it are what was proven if nothing has been removed of that row.
func (w *walk) compare(a *account, from, end int64, cuts metadata.Cuts) bool {
	old, repaired := a.old, w.mark.Done > w.proof.old.head.Era
	if end < old.end() && !repaired {
		w.tellHistory(HistoryShorter, a, end, old.end(), "the partition ends at offset %d; up to %d it was there", end, old.end())
		return false
	}
	sound, compared := true, int64(0)
	before, now := old.bounds(), a.bounds(from)
	var last [2]bound // at the same offset
	common := false
	for len(before) > 0 && len(now) > 0 {
		b, n := before[0], now[0]
		if b.offset != n.offset {
			if b.offset < n.offset {
				before = before[1:]
			} else {
				now = now[1:]
			}
			continue
		}
		before, now = before[1:], now[1:]
		if common {
			was, is := b.appended.Minus(last[0].appended), n.appended.Minus(last[1].appended)
			switch lower := last[0].offset; {
			case repaired && overlap(cuts, lower, b.offset) != nil:
			case was == is:
				compared += was.Records
			case repaired && a.forgot(lower, b.offset):
			default:
				sound = false
				w.tellHistory(HistoryChanged, a, lower, b.offset, "of offsets [%d, %d) was appended what comes to the sum %s; it is %s now%s", lower, b.offset, was, is, moved(was.Records == is.Records && was.Plain == is.Plain))
			}
		}
		last, common = [2]bound{b, n}, true
	}
	if c := overlap(cuts, max(from, old.From), old.end()); repaired && c != nil {
		w.tellHistory(HistoryCut, a, c.From, c.To, "the log was repaired since it was proven last, and the offsets [%d, %d) were cut", c.From, c.To)
	}
	all := int64(0)
	for i := range old.Pieces {
		if p := &old.Pieces[i]; p.End > from {
			all += p.appended().Records
		}
	}
	if compared < all && !repaired && sound {
		w.tellHistory(HistoryUncompared, a, max(from, old.From), old.end(), "%d of %d records that were proven cannot be compared: records were removed of what they share a row with, older and newer ones", all-compared, all)
	}
	w.progress(func(p *Progress) {
		p.Compared += compared
		p.Uncompared += all - compared
	})
	return sound
}

// overlap is the first cut that has offsets from one to another, or nil.
func overlap(cuts metadata.Cuts, from, to int64) *metadata.Cut {
	for i := range cuts {
		if c := &cuts[i]; c.From < to && from < c.To {
			return c
		}
	}
	return nil
}

func moved(only bool) string {
	if only {
		return ": the same records, under other offsets"
	}
	return ""
}

// forgot tells whether some row from an offset to another does not know what became of its offsets.
func (a *account) forgot(from, to int64) bool {
	return slices.ContainsFunc(a.pieces, func(p *piece) bool { return p.forgot && p.base >= from && p.end <= to })
}

func (w *walk) tellHistory(kind Kind, a *account, from, to int64, format string, args ...any) {
	w.tell(kind, metadata.RowKey(a.topic.ID, a.partition, from), w.span(a.slot, from, to), "partition %d of topic %s: %s", a.partition, a.topic.Name, fmt.Sprintf(format, args...))
}
