package verify

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/varvelog/varve/metadata"
)

const (
	// chunksPage is how many chunks are asked for at once: some 10 to 100 KB.
	chunksPage = 32
	// maxAhead is how many chunks are looked at that are put and whose entries are in the head still: a head holds fewer.
	maxAhead = 64
	// maxLate is how much older than another segment of its lane a segment may be when it is committed: the age at which no
	// producer commits it any more, and half of that for clocks that differ.
	maxLate = metadata.MaxSegmentAge * 3 / 2
)

// walk is the check of one lane's index, by one goroutine.
type walk struct {
	*lane
	*run
	ledger
	seen  recent
	tasks chan<- work
	given sync.WaitGroup // tasks that have not been done
	head  *metadata.Head // as it was first read; nil if it cannot be
	k     int64          // orders in a chunk
	ahead []*metadata.Chunk
	lost  []Finding // missing or unreadable chunks just below next, to be told when the offsets behind them are known
	alien uint64    // slots told of already that are no partition's

	accounts [metadata.SlotsPerLane]*account // of what it has

	// archived is the state as it was first read: what is below it is looked for in rows, the rest in the index. nil if it cannot be read.
	archived *metadata.State
	meets    *metadata.State // by which rows and index are compared where they meet; nil if they have been, or cannot be
}

// errGone is a lane whose topics were deleted meanwhile.
var errGone = errors.New("topic was deleted")

// all walks the lane up to the head as it is now.
func (w *walk) all(ctx context.Context) error {
	err := w.steps(ctx)
	if errors.Is(err, errGone) {
		w.deleted()
		return nil
	}
	return err
}

func (w *walk) steps(ctx context.Context) error {
	for _, step := range []func(context.Context) error{w.readState, w.readHead, w.readAhead, w.rows, w.chunks, w.entries} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	w.given.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := w.settle(); err != nil {
		return err
	}
	if w.seen.late > 0 {
		w.tell(EntryLate, metadata.HeadKey(w.id), nil, "%d segments were committed more than %s after they were made; whether any of them was committed twice is not known", w.seen.late, maxLate)
	}
	return nil
}

// tell adds a finding about an item of the lane.
func (w *walk) tell(kind Kind, item metadata.Key, ranges []Range, format string, args ...any) {
	w.find(Finding{Kind: kind, Lane: string(w.id), Item: item.String(), Ranges: ranges, What: fmt.Sprintf(format, args...)})
}

// deleted tells of the lane's topics that they are gone, each once.
func (w *walk) deleted() {
	w.unclear()
	for _, t := range w.who.Load().topics {
		if t.Lanes[0] == w.id {
			w.find(Finding{Kind: TopicDeleted, Ranges: []Range{{Topic: t.Name}}, What: "topic " + t.Name + " was deleted while it was verified"})
		}
	}
}

// readState reads the state before the head, so that no log start is above its end. A topic's heads go before its states.
func (w *walk) readState(ctx context.Context) error {
	state, err := w.table.State(ctx, w.id, metadata.Strong)
	key := metadata.StateKey(w.id)
	switch {
	case errors.Is(err, metadata.ErrNoState):
		if err := w.alive(ctx); err != nil {
			return err
		}
		w.tell(StateMissing, key, nil, "lane %s has no state", w.id)
	case unreadable(err):
		w.tell(StateUnreadable, key, nil, "the state of lane %s cannot be read: %v", w.id, err)
	case err != nil:
		return err
	default:
		w.state.Store(state)
		w.archived, w.meets = state, state
	}
	return nil
}

// alive is errGone if the lane's topics were deleted: their rows go first.
func (w *walk) alive(ctx context.Context) error {
	gone, err := w.refresh(ctx, w.lane)
	if err == nil && gone {
		return errGone
	}
	return err
}

func (w *walk) readHead(ctx context.Context) error {
	head, err := w.table.Head(ctx, w.id, metadata.Strong)
	key := metadata.HeadKey(w.id)
	w.k = metadata.ChunkOrders
	switch {
	case errors.Is(err, metadata.ErrNoLane):
		if err := w.alive(ctx); err != nil {
			return err
		}
		w.tell(HeadMissing, key, nil, "lane %s has no head, though topic %s still names it", w.id, w.who.Load().topics[0].Name)
		w.unclear()
		return nil
	case unreadable(err):
		w.tell(HeadUnreadable, key, nil, "the head of lane %s cannot be read: %v", w.id, err)
		w.unclear()
		return nil
	case err != nil:
		return err
	}
	w.progress(func(*Progress) {
		if w.floor.Less(head.Floor) {
			w.floor = head.Floor
		}
	})
	return w.checkHead(ctx, head)
}

// checkHead checks what a head and a state say by themselves. A head that cannot be used is dropped.
func (w *walk) checkHead(ctx context.Context, h *metadata.Head) error {
	key, state := metadata.HeadKey(w.id), w.state.Load()
	sound := h.K > 0 && h.First%h.K == 0 && h.First >= 0 && h.Next-h.First == int64(len(h.Entries)) && len(h.Entries) <= metadata.MaxHeadEntries
	for i := range h.Entries {
		sound = sound && h.Entries[i].Order == h.First+int64(i)
	}
	if !sound {
		w.tell(HeadEntries, key, nil, "the head of lane %s has %d entries for orders [%d, %d), with %d orders a chunk", w.id, len(h.Entries), h.First, h.Next, h.K)
		w.unclear()
		return nil
	}
	w.head, w.k = h, h.K
	if state.First%h.K != 0 || state.First > h.First || state.First > state.Archived || state.Archived > h.Next {
		w.tell(StateWrong, metadata.StateKey(w.id), nil, "the lane's index is said to begin at order %d and to be archived up to %d; its head has orders [%d, %d), %d a chunk", state.First, state.Archived, h.First, h.Next, h.K)
		w.meets = nil
	}
	for s, c := range state.Cleaned {
		if cleaned := max(c.To, c.Settled, c.Purged); cleaned > state.Ends[s] {
			w.tell(StateWrong, metadata.StateKey(w.id), w.span(metadata.Slot(s), state.Ends[s], cleaned), "slot %d is said to be key-compacted up to offset %d, and archived up to %d", s, cleaned, state.Ends[s])
		}
	}
	if err := w.known(ctx, h); err != nil {
		return err
	}
	for s, start := range state.Starts {
		if start > h.Ends[s] {
			w.tell(StartAboveEnd, metadata.StateKey(w.id), w.span(metadata.Slot(s), h.Ends[s], start), "the log start of slot %d is %d, above its end, %d", s, start, h.Ends[s])
		}
	}
	return nil
}

// known compares the head with its topics' rows. Those are read again before anything is concluded: a row changes before its heads.
func (w *walk) known(ctx context.Context, h *metadata.Head) error {
	var unknown []metadata.Slot
	version := int64(0)
	look := func() bool {
		unknown, version = nil, 0
		for s, end := range h.Ends {
			if _, _, ok := w.place(metadata.Slot(s)); !ok && end > 0 {
				unknown = append(unknown, metadata.Slot(s))
			}
		}
		for _, t := range w.who.Load().topics {
			version = max(version, t.Version)
		}
		return len(unknown) == 0 && h.ConfigVersion <= version
	}
	if look() {
		return nil
	}
	if err := w.alive(ctx); err != nil || look() {
		return err
	}
	for _, s := range unknown {
		w.alien |= 1 << s
		w.tell(SlotUnknown, metadata.HeadKey(w.id), nil, "slot %d of lane %s has %d offsets, but no topic has a partition there", s, w.id, h.Ends[s])
	}
	if h.ConfigVersion > version {
		w.tell(ConfigAhead, metadata.HeadKey(w.id), nil, "the head of lane %s has config version %d, its topic is at %d", w.id, h.ConfigVersion, version)
	}
	return nil
}

// entries takes the head's entries, and what the head says of the lane's end.
func (w *walk) entries(ctx context.Context) error {
	if w.head == nil {
		w.mend(w.ends)
		return nil
	}
	h, key := w.head, metadata.HeadKey(w.id)
	start := h.Ends
	for i := range h.Entries {
		for _, s := range h.Entries[i].Slots {
			start[s.Slot] -= int64(s.Count)
		}
	}
	w.mend(start)
	if err := w.leap(ctx, start); err != nil {
		return err
	}
	for _, s := range w.enter(start) {
		counted := w.ends[s] + h.Ends[s] - start[s]
		w.tell(HeadEnds, key, w.span(s, min(counted, h.Ends[s]), max(counted, h.Ends[s])), "the head of lane %s says that slot %d ends at offset %d; its commits hold %d records", w.id, s, h.Ends[s], counted)
	}
	for _, s := range disagree(h.Entries, start, h.Ends) {
		w.tell(BasesDisagree, key, w.span(s, start[s], h.Ends[s]), "slot %d: metadata.Bases does not count what the head's entries hold", s)
	}
	w.compareAhead()
	bases := w.count(h.Entries)
	w.join(h.First, append(bases, w.ends))
	return w.take(ctx, key, h.Entries, bases)
}
