package metadata

import (
	"context"
	"fmt"
	"time"

	"github.com/varvelog/varve/segment"
)

// All methods are safe for concurrent use, take a deadline of their own besides ctx's, and return *Error (or
// *RefusedError where said). Reads and the writes that are conditional on what they change may be retried
// by the adapter within its deadline; Commit and CommitAll never are.

// HeadReader reads heads.
type HeadReader interface {
	// Head returns the image of the lane's head. ErrNoLane after a Strong read means that the topic was deleted.
	Head(ctx context.Context, lane LaneID, c Consistency) (*Head, error)
}

// LaneReader reads everything a lane has in the table.
type LaneReader interface {
	HeadReader
	// Chunk returns the chunk whose first order is first, or ErrNoChunk.
	Chunk(ctx context.Context, lane LaneID, first int64, c Consistency) (*Chunk, error)
	// Chunks returns the chunks with first orders in [from, to), ascending, at most limit, in one request; fewer than
	// limit only when there are no more in the range or the service's page was full (then more is true).
	Chunks(ctx context.Context, lane LaneID, from, to int64, limit int, c Consistency) (chunks []*Chunk, more bool, err error)
	// State returns the lane's archive state, or ErrNoState.
	State(ctx context.Context, lane LaneID, c Consistency) (*State, error)
}

// Commit asks to append entries to one lane, all or none.
type Commit struct {
	Lane    LaneID
	Entries []Entry // Order is ignored; they take consecutive orders
	Minted  Stamp   // the oldest entry's id, by the clocks that the table has: it is not sent when that is MaxSegmentAge old; zero: whatever its age
	Writer  int     // which of the Epochs, in [0, Epochs)
	Epoch   int64   // what that epoch must be
	Cap     int64   // refused unless Next < Cap: last seen First + MaxHeadEntries + 1 - len(Entries)
	Expect  []Expect
	Tokens  []Token
	PadAt   int64 // for padding only, with PadIf: refused unless Next == PadAt
	PadIf   bool
	// Once is for commits that somebody else sends, perhaps again when they were applied: refused also if First > Since, an order that the lane had reached
	// before. The entry's order is Since or higher, so where this holds an entry that was applied is still in the head, which then refuses it.
	Once  bool
	Since int64
	// Producers are requests that may be repeated by anybody, each producer once: refused unless the head admits all of them. With Expect or Tokens one of them at most,
	// whose request they are the conditions of; with padding none.
	Producers []ProducerStep
}

// Expect makes a commit conditional on a slot's end offset. It is for the only batch of its commit.
type Expect struct {
	Slot   Slot
	Offset int64
}

// Token makes a commit conditional on a slot's fencing token.
type Token struct {
	Slot  Slot
	Token int64
}

// Validate reports ErrInvalid for a commit that no adapter can send: one request is bounded by the service in text and operators.
func (c *Commit) Validate() error {
	bad := func(field string, value any, valid string) error {
		return &FieldError{Field: fmt.Sprintf("commit to lane %s: %s", c.Lane, field), Value: fmt.Sprint(value), Valid: valid}
	}
	switch n := len(c.Entries); {
	case c.Lane == "":
		return bad("lane", "", "a lane id")
	case n < 1 || n > MaxCommitEntries:
		return bad("entries", n, fmt.Sprintf("1 to %d", MaxCommitEntries))
	case c.Writer < 0 || c.Writer >= Epochs:
		return bad("writer", c.Writer, fmt.Sprintf("0 to %d", Epochs-1))
	case len(c.Expect)+len(c.Tokens) > MaxCommitConditions:
		return bad("expected offsets and tokens", len(c.Expect)+len(c.Tokens), fmt.Sprintf("at most %d", MaxCommitConditions))
	}
	seen := make(map[segment.ID]bool, len(c.Entries))
	for i := range c.Entries {
		e := &c.Entries[i]
		if err := e.Validate(); err != nil {
			return err
		}
		if seen[e.ID] {
			return bad("entry", e.ID, "each segment once")
		}
		if e.Empty != c.PadIf {
			return bad("entry", e.ID, "empty entries with PadIf, and only then")
		}
		seen[e.ID] = true
	}
	if err := c.validateProducers(); err != nil {
		return err
	}
	for _, x := range c.Expect {
		if x.Slot >= SlotsPerLane || x.Offset < 0 {
			return bad("expected offset", fmt.Sprintf("slot %d: %d", x.Slot, x.Offset), fmt.Sprintf("a slot below %d, an offset", SlotsPerLane))
		}
	}
	for _, x := range c.Tokens {
		if x.Slot >= SlotsPerLane || x.Token < 1 {
			return bad("token", fmt.Sprintf("slot %d: %d", x.Slot, x.Token), fmt.Sprintf("a slot below %d, a token from 1", SlotsPerLane))
		}
	}
	return nil
}

func (c *Commit) validateProducers() error {
	bad := func(value any, valid string) error {
		return &FieldError{Field: fmt.Sprintf("commit to lane %s: producers", c.Lane), Value: fmt.Sprint(value), Valid: valid}
	}
	switch n := len(c.Producers); {
	case n > MaxProducers:
		return bad(n, fmt.Sprintf("at most %d", MaxProducers))
	case n > 0 && c.PadIf:
		return bad(n, "none with padding")
	case n > 1 && len(c.Expect)+len(c.Tokens) > 0:
		return bad(n, "one at most with expected offsets or tokens")
	}
	seen := make(map[ProducerID]bool, len(c.Producers))
	for _, s := range c.Producers {
		if err := s.Validate(); err != nil {
			return err
		}
		switch {
		case s.Entry < 0 || s.Entry >= len(c.Entries):
			return bad(fmt.Sprintf("entry %d", s.Entry), "an index of the entries")
		case seen[s.ID]:
			return bad(s.ID, "each producer once")
		}
		seen[s.ID] = true
	}
	return nil
}

// Sequencer changes heads and chunks.
type Sequencer interface {
	// Commit sends the update ONCE. Applied: the new image. *RefusedError or any error but ErrOutcomeUnknown: not applied, and never will be.
	// ErrOutcomeUnknown: settle it.
	Commit(ctx context.Context, c Commit) (*Head, error)
	// RaiseEpoch sets epoch writer to from+1 if it is from, and returns the image after that, or as it stands when it was not from.
	RaiseEpoch(ctx context.Context, lane LaneID, writer int, from int64) (*Head, error)
	// EvictProducers forgets producers of the image and raises ProducerFloor to the highest of them and of floor, if the head has the producers that the image has,
	// and those that go have not gone on. Returns the image after that, also when it was so already. ErrChanged with the image otherwise. ErrNoLane.
	EvictProducers(ctx context.Context, image *Head, floor ProducerID, ids ...ProducerID) (*Head, error)
	// PutChunk creates the chunk. The same chunk there already is nil; another one there is ErrCorrupt.
	PutChunk(ctx context.Context, c *Chunk) error
	// ReplaceChunk puts the chunk in the place of another one of the same orders, if that is still there as it was read; ErrChanged. The same chunk there already is nil.
	ReplaceChunk(ctx context.Context, c, there *Chunk) error
	// Trim removes from the head the entries of the given ids, and sets First from -> to, if it is still from and these are the entries of the orders [from, to): to whom remembers a
	// time that the table has forgotten they may have been others. Returns the new image, also when First was to already: whoever trimmed removed the same. ErrChanged with the image
	// otherwise.
	Trim(ctx context.Context, lane LaneID, from, to int64, ids []segment.ID) (*Head, error)
	// SetToken sets the fencing token of a slot from -> to by compare-and-set (from 0: not set yet); to must be larger. ErrChanged if it
	// was another. ErrOutcomeUnknown if an answer was lost and the token may have been set by this call or by another that wanted the same.
	SetToken(ctx context.Context, lane LaneID, slot Slot, from, to int64) error
	// SetStart raises the log start of a slot; lower or equal is left as it is. Returns the state after it.
	SetStart(ctx context.Context, lane LaneID, slot Slot, start int64) (*State, error)
	// SetOldest raises Oldest of the lane's state; lower or equal is left as it is. ErrNoState.
	SetOldest(ctx context.Context, lane LaneID, oldest time.Time) error
}

// Transactor appends to several lanes at once.
type Transactor interface {
	// CommitAll applies the commits, of different lanes, all or none, in one transaction. token makes a repeat within ten minutes idempotent.
	// No image comes back: read the heads. Errors as for Commit, *RefusedError carrying lane and image of the first that refused; ErrContended is
	// definite. token has 1 to 36 characters.
	CommitAll(ctx context.Context, token string, commits []Commit) error
}

// TopicReader reads topics; all its reads are strong.
type TopicReader interface {
	// Topic returns the row, or ErrUnknownTopic.
	Topic(ctx context.Context, name string) (*Topic, error)
	// Topics returns rows with names greater than after, ascending, at most limit. For a row that cannot be read (ErrCorrupt, ErrVersion) the rows
	// before it come with an *Error whose Key is that row's.
	Topics(ctx context.Context, after string, limit int) (topics []*Topic, more bool, err error)
	// Gone returns the topics being cleaned.
	Gone(ctx context.Context) ([]*GoneTopic, error)
}

// TopicWriter has the single steps of topic creation, change and deletion; the order of the steps is package topics' business. Each step may be
// repeated after an unknown outcome: it then reports ErrChanged or ErrTopicExists, and the caller reads.
type TopicWriter interface {
	// CreateTopic is one transaction: the name row if absent (ErrTopicExists), LOG|FLOOR still as given (ErrChanged), every lane's HEAD and STATE with that floor.
	CreateTopic(ctx context.Context, t *Topic, floor segment.ID) error
	// ReplaceTopic writes the row if its version is t.Version-1, its id t.ID and its Keyed as in t (ErrChanged), creating the HEAD and STATE of t's
	// lanes from index firstNew on, at most MaxLanes, in the same transaction, which also checks LOG|FLOOR as CreateTopic does. What a newer build
	// has put into the row besides stays.
	ReplaceTopic(ctx context.Context, t *Topic, firstNew int, floor segment.ID) error
	// SetHeadConfig sets config version and class and raises every epoch by one, if the head's version is lower; otherwise does nothing. ErrNoLane.
	SetHeadConfig(ctx context.Context, lane LaneID, version int64, class segment.Class) error
	// SetStateConfig sets Version and Class of the lane's state, if its version is lower; otherwise does nothing. From then on publications of another class are
	// refused. ErrNoState.
	SetStateConfig(ctx context.Context, lane LaneID, version int64, class segment.Class) error
	// SetStored replaces Stored of the topic's row if id, version and Stored are still t's; the version stays. That it is so already is nil. ErrUnknownTopic;
	// ErrChanged.
	SetStored(ctx context.Context, t *Topic, stored []segment.Class) error
	// MarkKeyed records that keyed records may come. ErrUnknownTopic; ErrTopicGone when the name is another topic's by now.
	MarkKeyed(ctx context.Context, name string, id segment.TopicID) error
	// DeleteTopic is one transaction: removes the name row if it is this version of this topic (ErrChanged), puts GONE.
	DeleteTopic(ctx context.Context, t *Topic, g *GoneTopic) error
	// DeleteHead, DeleteLaneRest remove a gone topic's items: the heads first, after a grace everything else of the lane (a bounded piece; done tells whether nothing is left).
	DeleteHead(ctx context.Context, lane LaneID) error
	DeleteLaneRest(ctx context.Context, lane LaneID) (done bool, err error)
	// PutGone rewrites a GONE row if it exists; DeleteGone removes it.
	PutGone(ctx context.Context, g *GoneTopic) error
	DeleteGone(ctx context.Context, id segment.TopicID) error
}

// LogKeeper has what concerns the whole log.
type LogKeeper interface {
	// Identity returns LOG|ID, ok false when a strong read shows none.
	Identity(ctx context.Context) (id Identity, ok bool, err error)
	// PutIdentity puts it if absent and returns the one that is there now.
	PutIdentity(ctx context.Context, id Identity) (Identity, error)
	// Floor returns LOG|FLOOR, zero when none was set.
	Floor(ctx context.Context) (segment.ID, error)
	// EnsureTable creates the table if there is none and waits until it is usable.
	EnsureTable(ctx context.Context) error
	// ServiceTime is the service's time as of its latest answer, carried on by the monotonic clock; ok is false before the first answer.
	ServiceTime() (now time.Time, ok bool)
	// Moment is this one by the clocks of the table's process, by which Stamps of what is sent to it are compared.
	Moment() Stamp
}

// Table is all of it, as an adapter provides it. Users take the narrowest interfaces they need.
type Table interface {
	LaneReader
	Sequencer
	Transactor
	TopicReader
	TopicWriter
	LogKeeper
	GroupTable
	ArchiveTable
	Repairer
}

// Call reports one request to the table, for hooks, tests and cost.
type Call struct {
	Op         string  // the contract's method: "Commit", "Head", …
	Lane       LaneID  // where it concerns one
	ReadUnits  float64 // as the service's answer says; an answer that a condition failed says nothing, though it is billed
	WriteUnits float64
	Duration   time.Duration
	Err        error // of this request; a failed condition is ErrChanged
}
