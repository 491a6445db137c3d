package sdk

import (
	"time"
)

// Hook observes a log. It implements one or more of the one-method interfaces below; a hook that implements none is refused by Open. Methods
// are called inline, concurrently, and must return at once.
type Hook any

// PutHook sees every segment put.
type PutHook interface{ OnPut(PutEvent) }

// CommitHook sees every update of a lane's head that was sent, when it is answered or its answer is given up.
type CommitHook interface{ OnCommit(CommitEvent) }

// SettleHook sees how each commit of unknown outcome was settled.
type SettleHook interface{ OnSettle(SettleEvent) }

// FetchHook sees every range read of a segment.
type FetchHook interface{ OnFetch(FetchEvent) }

// ResetHook sees every partition of a reader that was found below the log start.
type ResetHook interface{ OnReset(ResetEvent) }

// TombstonesHook sees every partition of a topic whose keys are compacted in which a group goes on at a commit of so long ago that tombstones after it have been
// removed since: keys that it has read may be deleted, and it will not hear of it. A group whose effect is a state of these keys has to be reset to the start.
type TombstonesHook interface{ OnTombstones(TombstonesEvent) }

// TopicGoneHook sees every topic that a consumer of a group has subscribed to and that was deleted, once for each member; called by Poll.
type TopicGoneHook interface{ OnTopicGone(TopicGoneEvent) }

// RequestHook sees every call of store and table.
type RequestHook interface{ OnRequest(RequestEvent) }

// PutEvent is one segment put, retries included.
type PutEvent struct {
	Object   string
	Bytes    int
	Records  int
	Duration time.Duration
	Err      error
}

// CommitEvent is one update of a lane's head. Attempts is how many were sent for its first segment, this one included. Outcome is what its answer says:
// an Unknown one is settled next, which a SettleHook sees. What it cost is in the RequestEvent of the table's "Commit".
type CommitEvent struct {
	Lane     string
	Segments int // committed by the one update
	Attempts int
	Duration time.Duration
	Outcome  Outcome
	Err      error
}

// SettleEvent says by which branch a commit of unknown outcome was settled: "found in head", "found in chunk", "committed again", "unknown".
type SettleEvent struct {
	Lane     string
	Branch   string
	Duration time.Duration
}

// FetchEvent is one range read.
type FetchEvent struct {
	Object   string
	Extents  int // partitions' extents that it served
	Bytes    int
	Duration time.Duration
	Err      error
}

// ResetEvent is a reader's partition that was overtaken: the offsets [From, To) were removed before it read them. Position is where it goes on,
// or From when its policy is to fail.
type ResetEvent struct {
	Topic     string
	Partition int
	From, To  int64
	Position  int64
}

// TombstonesEvent is a group's commit of Offset, at the time At, and tombstones in [Offset, To) that were removed after that.
type TombstonesEvent struct {
	Group, Topic string
	Partition    int
	Offset, To   int64
	At           time.Time
}

// TopicGoneEvent is a topic that was deleted while a member of a group was subscribed to it.
type TopicGoneEvent struct {
	Group, Topic string
	Anew         bool // another topic of the name is there already, and is read instead
	Left         int  // topics that the member has still to read, that one included
}

// RequestEvent is one call of a service. Service is "store" or "table". Requests is how many it took, retries included; the table's adapter reports each
// attempt on its own, the store's all attempts at once.
type RequestEvent struct {
	Service    string
	Op         string
	Lane       string // of the table's requests that concern one
	Requests   int
	Bytes      int
	ReadUnits  float64
	WriteUnits float64
	Duration   time.Duration
	Err        error
}

// hooks fans events out to those who want them.
type hooks []Hook

func fire[H any](hs hooks, call func(H)) {
	for _, h := range hs {
		if x, ok := h.(H); ok {
			call(x)
		}
	}
}

// observes tells whether h implements any of the hook interfaces.
func observes(h Hook) bool {
	switch h.(type) {
	case PutHook, CommitHook, SettleHook, FetchHook, ResetHook, TombstonesHook, TopicGoneHook, RequestHook:
		return true
	}
	return false
}
