package wire

// What members of a group tell one another: GET and POST below /v1/groups/{group}. Leases are as docs/format.md has them in the table: an epoch, and the session that holds it.

// GroupState answers GET /v1/groups/{group}/state.
type GroupState struct {
	Plan    *GroupPlan    `json:"plan,omitempty"`
	Members []GroupMember `json:"members"`
	Lanes   []GroupLane   `json:"lanes"`
	NowMs   int64         `json:"now_ms"` // the table's time
}

// GroupPlan is who reads what; it is also the body of PUT /v1/groups/{group}/plan. Packed is as docs/format.md has it.
type GroupPlan struct {
	Generation int64  `json:"generation"`
	Packed     []byte `json:"packed"`
}

// GroupMember is a member's row, and answers GET /v1/groups/{group}/members/{member}.
type GroupMember struct {
	Name      string   `json:"name"`
	Session   string   `json:"session"`
	Beat      int64    `json:"beat"`
	QuietMs   int64    `json:"quiet_ms"`
	TimeoutMs int64    `json:"session_timeout_ms"`
	Topics    []string `json:"topics"`
	Pattern   string   `json:"pattern,omitempty"`
	Client    string   `json:"client,omitempty"`
}

// GroupLane is what a group has of a lane: the slots that have anything.
type GroupLane struct {
	Lane  string      `json:"lane"`
	Slots []GroupSlot `json:"slots"`
}

// GroupSlot is what was committed for a slot, if anything was, and its lease.
type GroupSlot struct {
	Slot     int    `json:"slot"`
	Lease    string `json:"lease,omitempty"`
	Offset   *int64 `json:"offset,omitempty"`
	AtMs     int64  `json:"committed_at_ms,omitempty"`
	Metadata string `json:"metadata,omitempty"`
}

// What POST /v1/groups/{group}/members/{member} does.
const (
	Join    = "join"    // makes the row, in place of that of the session Before
	Beat    = "beat"    // counts a heartbeat
	Watched = "watched" // adds MoreMs to for how long the member is known to have been silent
	Leave   = "leave"   // removes the row
	Bury    = "bury"    // removes the row of a member that was judged dead
)

// MemberAction is the body of POST /v1/groups/{group}/members/{member}. Session is that of the row; Beat and QuietMs, of watched and bury, are as they were read.
type MemberAction struct {
	Action    string   `json:"action"`
	Session   string   `json:"session"`
	Before    string   `json:"before,omitempty"` // of join, and those that follow
	TimeoutMs int64    `json:"session_timeout_ms,omitempty"`
	Topics    []string `json:"topics,omitempty"`
	Pattern   string   `json:"pattern,omitempty"`
	Client    string   `json:"client,omitempty"`
	Beat      int64    `json:"beat,omitempty"`
	QuietMs   int64    `json:"quiet_ms,omitempty"`
	MoreMs    int64    `json:"more_ms,omitempty"`
}

// LaneAction is the body of POST /v1/groups/{group}/lanes/{lane}: changes of leases, or offsets, all or none.
type LaneAction struct {
	Leases  []LeaseChange `json:"leases,omitempty"`
	Offsets []LeaseOffset `json:"offsets,omitempty"`
}

// LeaseChange replaces the lease From, "" where there was none.
type LeaseChange struct {
	Slot int    `json:"slot"`
	From string `json:"from"`
	To   string `json:"to"`
}

// LeaseOffset commits an offset by a lease. First: nothing was committed before.
type LeaseOffset struct {
	Slot     int    `json:"slot"`
	Lease    string `json:"lease"`
	First    bool   `json:"first,omitempty"`
	Offset   int64  `json:"offset"`
	Metadata string `json:"metadata,omitempty"`
}

// LaneAnswer answers POST /v1/groups/{group}/lanes/{lane}: the lane after the change or, if it was not done, as it is that refuses it.
type LaneAnswer struct {
	Done bool      `json:"done"`
	Lane GroupLane `json:"lane"`
}

// GroupMoves is the body of POST /v1/groups/{group}/moves: offsets of several lanes, all or none. Token, of at most 36 characters, makes a repeat within ten minutes, which has to be
// the same in everything, the same request. AtMs is when they were committed, by the table's time.
type GroupMoves struct {
	Token string      `json:"token"`
	AtMs  int64       `json:"at_ms"`
	Lanes []LaneMoves `json:"lanes"`
}

// LaneMoves are a lane's.
type LaneMoves struct {
	Lane  string       `json:"lane"`
	Moves []OffsetMove `json:"moves"`
}

// OffsetMove moves a committed offset from exactly where it is, null if nothing was committed.
type OffsetMove struct {
	Slot     int    `json:"slot"`
	Lease    string `json:"lease"`
	From     *int64 `json:"from"`
	To       int64  `json:"to"`
	Metadata string `json:"metadata,omitempty"`
}

// MovesAnswer answers POST /v1/groups/{group}/moves. Lane is one that refuses it.
type MovesAnswer struct {
	Done bool       `json:"done"`
	Lane *GroupLane `json:"lane,omitempty"`
}
