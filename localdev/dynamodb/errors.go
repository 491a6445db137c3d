package dynamodb

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/varvelog/varve/localdev/dynamodb/expr"
	"github.com/varvelog/varve/localdev/dynamodb/storage"
	"github.com/varvelog/varve/localdev/dynamodb/value"
	"github.com/varvelog/varve/localdev/dynamodb/wire"
)

// Error is an answer of the service that is not a success. It is what a Fault's Reply may be.
type Error struct {
	Code    string // without namespace, e.g. "ConditionalCheckFailedException"
	Message string
	Status  int // HTTP status
	// Item is the item that failed a condition, if the request asked for it.
	Item value.Map
	// Reasons are those of a cancelled transaction, one for each action.
	Reasons []Reason
	// Throttling says which limit was met.
	Throttling []ThrottlingReason
}

// Reason is why one action of a transaction could not be performed. Code is "None" for one that could.
type Reason struct {
	Code    string
	Message string
	Item    value.Map
}

// ThrottlingReason names a limit and the table that met it.
type ThrottlingReason struct {
	Reason   string `json:"reason"`
	Resource string `json:"resource,omitempty"` // the table's ARN
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Message) }

// InternalServerError is the service's 500.
func InternalServerError() *Error {
	return &Error{Code: "InternalServerError", Message: "Internal server error", Status: http.StatusInternalServerError}
}

func clientError(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Status: http.StatusBadRequest}
}

func validation(format string, args ...any) *Error {
	return clientError("ValidationException", format, args...)
}

// constraint is a parameter outside its limits. shown is its value as the service prints it: quoted, or null.
func constraint(shown, parameter, rule string) *Error {
	return validation("1 validation error detected: Value %s at '%s' failed to satisfy constraint: %s", shown, parameter, rule)
}

func keyRangeThrottled(resource string) *Error {
	e := clientError("ProvisionedThroughputExceededException", "Throughput exceeds the current throughput limit for the key range. Retry with exponential backoff")
	e.Throttling = []ThrottlingReason{{Reason: "TableWriteKeyRangeThroughputExceeded", Resource: resource}}
	return e
}

// answerFor is what the service answers for err.
func answerFor(err error) *Error {
	var (
		answer    *Error
		malformed *wire.Error
		badExpr   *expr.Error
		invalid   value.Invalid
	)
	switch {
	case errors.As(err, &answer):
		return answer
	case errors.As(err, &malformed):
		return clientError("SerializationException", "%v", malformed)
	case errors.As(err, &badExpr):
		return validation("%v", badExpr)
	case errors.As(err, &invalid):
		return validation("%s", string(invalid))
	case errors.Is(err, storage.ErrBusy):
		return clientError("ThrottlingException", "%v", err)
	}
	failure := InternalServerError()
	failure.Message += ": " + err.Error()
	return failure
}

// namespaces are the prefixes of __type where they differ from the service's own.
var namespaces = map[string]string{
	"ValidationException":       "com.amazon.coral.validate#",
	"SerializationException":    "com.amazon.coral.service#",
	"UnknownOperationException": "com.amazon.coral.service#",
}

// body is the error as JSON.
func (e *Error) body() []byte {
	namespace, ok := namespaces[e.Code]
	if !ok {
		namespace = "com.amazonaws.dynamodb.v20120810#"
	}
	var o object
	o.text("__type", namespace+e.Code)
	switch {
	case e.Reasons != nil:
		o.text("Message", e.Message)
		o.raw("CancellationReasons", reasonsJSON(e.Reasons))
	default:
		o.text("message", e.Message)
	}
	if e.Item != nil {
		o.item("Item", e.Item)
	}
	if e.Throttling != nil {
		list, _ := json.Marshal(e.Throttling) // strings only
		o.raw("ThrottlingReasons", list)
	}
	return o.close()
}

func reasonsJSON(reasons []Reason) []byte {
	list := []byte{'['}
	for i, reason := range reasons {
		if i > 0 {
			list = append(list, ',')
		}
		var o object
		o.text("Code", reason.Code)
		if reason.Message != "" {
			o.text("Message", reason.Message)
		}
		if reason.Item != nil {
			o.item("Item", reason.Item)
		}
		list = append(list, o.close()...)
	}
	return append(list, ']')
}
