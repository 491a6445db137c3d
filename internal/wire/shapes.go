package wire

import (
	"encoding/json"
	"time"
)

// Service answers GET /v1: what is served here, and of which log.
type Service struct {
	Service    string `json:"service"` // "produce", "fetch" or "local", which is both
	LogID      string `json:"log_id"`  // 32 hexadecimal digits
	Version    int    `json:"version"`
	ProduceURL string `json:"produce_url,omitempty"` // where the other service is, if it is known
}

// Producer answers POST /v1/producers. The id is decimal, in a string because many clients' numbers have 53 bits.
type Producer struct {
	ID string `json:"producer_id"`
}

// Result is what became of one record: partition and offset, or an error. Offset is null where it was appended at an offset that is not known any more.
type Result struct {
	Partition *int   `json:"partition,omitempty"`
	Offset    *int64 `json:"offset"`
	Error     *Error `json:"error,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (r Result) MarshalJSON() ([]byte, error) {
	if r.Error != nil {
		return json.Marshal(struct {
			Error *Error `json:"error"`
		}{r.Error})
	}
	type plain Result
	return json.Marshal(plain(r))
}

// Produced answers POST /v1/topics/{topic}/records once at least one record was appended.
type Produced struct {
	Results      []Result `json:"results"`                 // in the order of the records
	Repeated     bool     `json:"repeated,omitempty"`      // the request had been applied before
	OffsetsKnown *bool    `json:"offsets_known,omitempty"` // false: it had, and its offsets cannot be told any more
}

// Topics answers GET /v1/topics: by name, up to MaxListed.
type Topics struct {
	Topics []TopicName `json:"topics"`
	More   bool        `json:"more,omitempty"` // ask for those after the last
}

// TopicName is a topic in a list.
type TopicName struct {
	Name       string `json:"name"`
	ID         string `json:"topic_id"`
	Partitions int    `json:"partitions"`
}

// TopicMeant is a topic that records are for: no other of that name than the one with this id.
type TopicMeant struct {
	Name string `json:"name"`
	ID   string `json:"topic_id"`
}

// Topic answers GET /v1/topics/{topic}.
type Topic struct {
	Name        string            `json:"name"`
	ID          string            `json:"topic_id"`
	Version     int64             `json:"version"` // of the configuration
	Partitions  []PartitionLane   `json:"partitions"`
	Config      map[string]string `json:"config"`
	Partitioner string            `json:"partitioner"`
	Keyed       bool              `json:"keyed"`
	Before      []int             `json:"partitions_before,omitempty"` // how many it has had before it grew, ascending
}

// PartitionLane says in which lane a partition is sequenced. Sequences of a producer are counted by lane.
type PartitionLane struct {
	Partition int    `json:"partition"`
	Lane      string `json:"lane"`
}

// Offsets answers GET /v1/topics/{topic}/offsets.
type Offsets struct {
	Partitions []PartitionOffsets `json:"partitions"`
}

// PartitionOffsets is log start and end of a partition, and what repairs have cut out of it.
type PartitionOffsets struct {
	Partition int           `json:"partition"`
	Start     int64         `json:"start"`
	End       int64         `json:"end"`
	Cuts      []OffsetRange `json:"cuts,omitempty"`
	Removed   *Removed      `json:"removed_tombstones,omitempty"`
}

// Removed tells that of the tombstones below an offset some were removed, the last of them at a time.
type Removed struct {
	Below int64     `json:"below"`
	Until time.Time `json:"until"`
}

// OffsetRange is the offsets [From, To).
type OffsetRange struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// OffsetAt answers GET /v1/topics/{topic}/partitions/{partition}/offsets: the offset, or null and the partition's end.
type OffsetAt struct {
	Offset *int64 `json:"offset"`
	End    *int64 `json:"end,omitempty"`
}

// Plan answers GET /v1/topics/{topic}/partitions/{partition}/plan.
type Plan struct {
	Extents []Extent `json:"extents"`
	Next    int64    `json:"next_offset"`
	Start   int64    `json:"start"`
	End     int64    `json:"end"`
}

// Extent is bytes of record batches: to be got by the link, with all of Headers, or Inline. A batch's base offset is its own; Relative: it counts from BaseOffset.
type Extent struct {
	BaseOffset int64             `json:"base_offset"`
	EndOffset  int64             `json:"end_offset"`
	Bytes      int64             `json:"bytes"`
	Relative   bool              `json:"relative"`
	URL        string            `json:"url,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	Expires    time.Time         `json:"expires,omitzero"`
	Inline     []byte            `json:"inline,omitempty"`
}

// Groups answers GET /v1/groups: names, up to MaxListed.
type Groups struct {
	Groups []string `json:"groups"`
	More   bool     `json:"more,omitempty"` // ask for those after the last
}

// GroupOffsets answers GET /v1/groups/{group}/offsets.
type GroupOffsets struct {
	Offsets []GroupOffset `json:"offsets"`
}

// GroupOffset is what a group has committed for a partition: the next offset to be read.
type GroupOffset struct {
	Partition int       `json:"partition"`
	Offset    int64     `json:"offset"`
	Metadata  string    `json:"metadata"`
	At        time.Time `json:"committed_at,omitzero"`
}

// Commit asks, as POST /v1/groups/{group}/offsets, for offsets to be committed.
type Commit struct {
	Topic   string         `json:"topic"`
	Offsets []CommitOffset `json:"offsets"`
}

// CommitOffset is a partition of a Commit.
type CommitOffset struct {
	Partition int      `json:"partition"`
	Offset    int64    `json:"offset"`
	Expected  Expected `json:"expected,omitzero"`
	Metadata  string   `json:"metadata,omitempty"`
}
