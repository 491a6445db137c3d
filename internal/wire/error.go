package wire

// Codes of errors. A client decides by the code, a person reads the message.
const (
	BadRequest       = "bad_request"            // 400
	BadRecord        = "bad_record"             // 400
	Unauthorized     = "unauthorized"           // 401
	NotFound         = "not_found"              // 404: no such path
	UnknownTopic     = "unknown_topic"          // 404
	UnknownPartition = "unknown_partition"      // 404
	UnknownGroup     = "unknown_group"          // 404
	UnknownMember    = "unknown_member"         // 404
	MethodNotAllowed = "method_not_allowed"     // 405
	NotAcceptable    = "not_acceptable"         // 406
	SlowBody         = "slow_body"              // 408
	GroupActive      = "group_active"           // 409: the group has members
	OffsetLower      = "offset_lower"           // 409: more is committed already
	OffsetChanged    = "offset_changed"         // 409: what is committed is not what was expected
	Changed          = "changed"                // 409: what was to be changed is not as it was given
	Fenced           = "fenced"                 // 409: the member has another session by now
	SequenceGap      = "sequence_gap"           // 409: expected_sequence says which is next
	ProducerEvicted  = "producer_evicted"       // 409: whether it was applied cannot be told any more
	TopicGone        = "topic_gone"             // 410: deleted while it was used
	ConditionFailed  = "condition_failed"       // 412: end and token are what they are
	TooLarge         = "too_large"              // 413
	UnsupportedType  = "unsupported_media_type" // 415
	OffsetExpired    = "offset_expired"         // 416: below start
	OffsetOutOfRange = "offset_out_of_range"    // 416: past end
	HistoryRewritten = "history_rewritten"      // 416: in [cut_from, cut_to)
	Throttled        = "throttled"              // 429
	TooManyProducers = "too_many_producers"     // 429
	Internal         = "internal"               // 500
	Corrupt          = "corrupt"                // 500: stored data is damaged
	NotSupported     = "not_supported"          // 501
	Unavailable      = "unavailable"            // 503
	NotAppended      = "not_appended"           // 503: definitely not in the log, and may be sent again
	UnknownOutcome   = "unknown_outcome"        // 503: may or may not be in the log
)

// Error is what every failed request is answered with, and what stands in the place of a record's offset. Fields that do not apply are left out.
type Error struct {
	Code      string `json:"code"`
	Message   string `json:"message"`   // what, where, what is valid, what to do
	Retriable bool   `json:"retriable"` // the same request may be sent again, and nothing is in the log twice because of it

	Topic     string `json:"topic,omitempty"`
	Partition *int   `json:"partition,omitempty"`
	Record    *int   `json:"record,omitempty"` // its place in the request, from 0
	Field     string `json:"field,omitempty"`  // of bad input: which,
	Value     string `json:"value,omitempty"`  // what it was,
	Valid     string `json:"valid,omitempty"`  // and what is valid
	Size      *int64 `json:"size,omitempty"`   // of what is too large, where known
	Limit     *int64 `json:"limit,omitempty"`

	Offset  *int64 `json:"offset,omitempty"` // that was asked for; of damaged data, the first that cannot be read
	Start   *int64 `json:"start,omitempty"`  // and the valid ones
	End     *int64 `json:"end,omitempty"`    // or, of damaged data, where what can be read goes on; of a partition whose condition failed, its end
	CutFrom *int64 `json:"cut_from,omitempty"`
	CutTo   *int64 `json:"cut_to,omitempty"`

	RetryAfter *int `json:"retry_after_seconds,omitempty"` // the Retry-After header says the same

	Token     *int64   `json:"token,omitempty"` // with condition_failed; 0: none was ever set
	Expected  *int64   `json:"expected_sequence,omitempty"`
	Committed *int64   `json:"committed,omitempty"` // with offset_lower and offset_changed; -1: nothing
	Members   []string `json:"members,omitempty"`   // with group_active
}

// Failure is the body of a failed request. Results are only there for records that were to be appended.
type Failure struct {
	Error   *Error   `json:"error"`
	Results []Result `json:"results,omitempty"`
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }
