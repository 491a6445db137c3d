package api

import (
	"context"
	"errors"
	"math"
	"net/http"

	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// status is the HTTP status of each code.
var status = map[string]int{
	wire.BadRequest: http.StatusBadRequest, wire.BadRecord: http.StatusBadRequest, wire.Unauthorized: http.StatusUnauthorized,
	wire.NotFound: http.StatusNotFound, wire.UnknownTopic: http.StatusNotFound, wire.UnknownPartition: http.StatusNotFound, wire.UnknownGroup: http.StatusNotFound, wire.UnknownMember: http.StatusNotFound,
	wire.MethodNotAllowed: http.StatusMethodNotAllowed, wire.NotAcceptable: http.StatusNotAcceptable, wire.SlowBody: http.StatusRequestTimeout,
	wire.GroupActive: http.StatusConflict, wire.OffsetLower: http.StatusConflict, wire.OffsetChanged: http.StatusConflict, wire.Changed: http.StatusConflict, wire.Fenced: http.StatusConflict,
	wire.SequenceGap: http.StatusConflict, wire.ProducerEvicted: http.StatusConflict, wire.TopicGone: http.StatusGone, wire.ConditionFailed: http.StatusPreconditionFailed,
	wire.TooLarge: http.StatusRequestEntityTooLarge, wire.UnsupportedType: http.StatusUnsupportedMediaType,
	wire.OffsetExpired: http.StatusRequestedRangeNotSatisfiable, wire.OffsetOutOfRange: http.StatusRequestedRangeNotSatisfiable,
	wire.HistoryRewritten: http.StatusRequestedRangeNotSatisfiable,
	wire.Throttled:        http.StatusTooManyRequests, wire.TooManyProducers: http.StatusTooManyRequests,
	wire.Internal: http.StatusInternalServerError, wire.Corrupt: http.StatusInternalServerError, wire.NotSupported: http.StatusNotImplemented,
	wire.Unavailable: http.StatusServiceUnavailable, wire.NotAppended: http.StatusServiceUnavailable, wire.UnknownOutcome: http.StatusServiceUnavailable,
}

// retryAfter is how many seconds a client should let pass. Producers are evicted after quiet hours, so there it is longer.
var retryAfter = map[string]int{wire.Throttled: 1, wire.TooManyProducers: 60, wire.Unavailable: 1, wire.NotAppended: 1, wire.UnknownOutcome: 1}

// StatusOf is the HTTP status of a code.
func StatusOf(code string) int {
	if s := status[code]; s != 0 {
		return s
	}
	return http.StatusInternalServerError
}

// conditions are the errors of the packages below, the most telling first, since an error may be several: what may be in the log is never called anything else.
var conditions = []struct {
	is        error
	code      string
	retriable bool
}{
	{sdk.ErrUnknown, wire.UnknownOutcome, false},
	{metadata.ErrOutcomeUnknown, wire.UnknownOutcome, false},
	{sdk.ErrTopicGone, wire.TopicGone, false},
	{sdk.ErrUnknownTopic, wire.UnknownTopic, false},
	{sdk.ErrUnknownGroup, wire.UnknownGroup, false},
	{metadata.ErrUnknownMember, wire.UnknownMember, false},
	{sdk.ErrFenced, wire.Fenced, false},
	{sdk.ErrNoPartition, wire.UnknownPartition, false},
	{sdk.ErrNotSupported, wire.NotSupported, false},
	{sdk.ErrThrottled, wire.Throttled, true},
	{store.ErrThrottled, wire.Throttled, true},
	{sdk.ErrTimedOut, wire.NotAppended, true},
	{sdk.ErrPriorFailed, wire.NotAppended, true},
	{sdk.ErrBufferFull, wire.Throttled, true},
	{sdk.ErrContended, wire.Unavailable, true},
	{sdk.ErrUnreachable, wire.Unavailable, true},
	{metadata.ErrUnavailable, wire.Unavailable, true},
	{store.ErrUnavailable, wire.Unavailable, true},
	{metadata.ErrNoCredentials, wire.Unavailable, true},
	{store.ErrNoCredentials, wire.Unavailable, true},
	{sdk.ErrCorrupt, wire.Corrupt, false},
	{sdk.ErrChanged, wire.Changed, false},
	{sdk.ErrClosed, wire.Unavailable, true},
	{context.DeadlineExceeded, wire.Unavailable, true},
	{context.Canceled, wire.Unavailable, true},
	{sdk.ErrInvalid, wire.BadRequest, false},
}

// ErrorOf is an error as clients get it.
func ErrorOf(err error) *wire.Error {
	var e *wire.Error
	if errors.As(err, &e) {
		return e
	}
	e = &wire.Error{Code: wire.Internal, Message: err.Error()}
	if detail(e, err) {
		return e
	}
	for _, c := range conditions {
		if errors.Is(err, c.is) {
			e.Code, e.Retriable = c.code, c.retriable
			return e
		}
	}
	e.Message = "something went wrong here that is not the request's fault" // its words are for whoever runs this: Tell has them
	return e
}

// detail fills in what typed errors say, and tells whether that decides the code.
func detail(e *wire.Error, err error) bool {
	var field *sdk.FieldError
	if errors.As(err, &field) {
		e.Topic, e.Field, e.Value, e.Valid = field.Topic, clip(field.Field), clip(field.Value), field.Valid
	}
	var delivery *sdk.DeliveryError
	if errors.As(err, &delivery) {
		e.Topic, e.Partition = delivery.Topic, &delivery.Partition
	}
	var outside *sdk.RangeError
	var large *sdk.TooLargeError
	var damaged *sdk.DataError
	var active *sdk.GroupActiveError
	var frame *wire.FrameError
	var gap *sdk.SequenceGapError
	var evicted *sdk.ProducerEvictedError
	var many *sdk.TooManyProducersError
	var refused *sdk.ConditionError
	switch {
	case errors.As(err, &refused):
		e.Code, e.Topic, e.Partition, e.End, e.Token = wire.ConditionFailed, refused.Topic, &refused.Partition, &refused.End, &refused.Token
	case errors.As(err, &gap):
		e.Code, e.Topic, e.Expected = wire.SequenceGap, gap.Topic, &gap.Expected
	case errors.As(err, &evicted):
		e.Code, e.Topic = wire.ProducerEvicted, evicted.Topic
	case errors.As(err, &many):
		seconds := int(max(1, math.Ceil(many.RetryAfter.Seconds())))
		e.Code, e.Topic, e.Retriable, e.RetryAfter = wire.TooManyProducers, many.Topic, true, &seconds
	case errors.As(err, &outside):
		rangeOf(e, outside)
	case errors.As(err, &damaged):
		e.Code, e.Topic, e.Partition, e.Offset, e.End = wire.Corrupt, damaged.Topic, &damaged.Partition, &damaged.From, &damaged.To
	case errors.As(err, &large):
		size, limit := int64(large.Size), int64(large.Limit)
		e.Code, e.Topic, e.Partition, e.Size, e.Limit = wire.TooLarge, large.Topic, &large.Partition, &size, &limit
	case errors.As(err, &active):
		e.Code, e.Members = wire.GroupActive, active.Members
		e.Message = "the group has members, who commit for themselves; stop them first"
	case errors.As(err, &frame):
		e.Code = wire.BadRequest
	case formatOf(e, err):
	default:
		return false
	}
	return true
}

func rangeOf(e *wire.Error, outside *sdk.RangeError) {
	e.Topic, e.Partition, e.Offset, e.Start, e.End = outside.Topic, &outside.Partition, &outside.Offset, &outside.Start, &outside.End
	switch {
	case errors.Is(outside.Err, sdk.ErrExpired):
		e.Code = wire.OffsetExpired
	case errors.Is(outside.Err, sdk.ErrRewritten):
		e.Code, e.CutFrom, e.CutTo = wire.HistoryRewritten, &outside.CutFrom, &outside.CutTo
	default:
		e.Code = wire.OffsetOutOfRange
	}
}

// formatOf is for record batches that a client sent. Those of the log are in a *sdk.DataError.
func formatOf(e *wire.Error, err error) bool {
	var format *segment.FormatError
	if !errors.As(err, &format) || errors.Is(err, sdk.ErrCorrupt) {
		return false
	}
	e.Code = wire.BadRecord
	if errors.Is(err, segment.ErrTooLarge) {
		e.Code = wire.TooLarge
	}
	return true
}
