package dynamo

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/varvelog/varve/metadata"
)

// refused is a condition that failed: nothing was written. item is what stands there, nil if nothing does. Calls say what it means for them;
// where none was expected it stays a *metadata.Error.
type refused struct{ item item }

func (*refused) Error() string { return "condition failed" }
func (*refused) Unwrap() error { return metadata.ErrChanged }

// cancelled is a transaction in which at least one condition failed: nothing was written.
type cancelled struct{ reasons []types.CancellationReason }

func (*cancelled) Error() string { return "condition failed in a transaction" }
func (*cancelled) Unwrap() error { return metadata.ErrChanged }

const (
	codeConditionFailed = "ConditionalCheckFailed" // in a cancellation reason
	codeExpired         = "ExpiredTokenException"
)

// refusals are the service's own codes by which it says that it has not performed, and never will perform, the request. Any
// code that is not here leaves the outcome open.
var refusals = map[string]error{
	"ProvisionedThroughputExceededException": metadata.ErrThrottled,
	"ThrottlingException":                    metadata.ErrThrottled,
	"RequestLimitExceeded":                   metadata.ErrThrottled,
	"LimitExceededException":                 metadata.ErrThrottled, // too many tables being created

	"TransactionConflictException":         metadata.ErrContended,
	"ReplicatedWriteConflictException":     metadata.ErrContended,
	"ResourceInUseException":               metadata.ErrContended, // the table is being created or deleted
	"ResourceNotFoundException":            metadata.ErrNoTable,
	"ValidationException":                  metadata.ErrInvalid,
	"SerializationException":               metadata.ErrInvalid,
	"UnknownOperationException":            metadata.ErrInvalid,
	"IdempotentParameterMismatchException": metadata.ErrInvalid,

	"AccessDeniedException":               metadata.ErrDenied,
	"UnrecognizedClientException":         metadata.ErrDenied,
	"InvalidClientTokenId":                metadata.ErrDenied,
	"InvalidSignatureException":           metadata.ErrDenied,
	"SignatureDoesNotMatch":               metadata.ErrDenied,
	"IncompleteSignature":                 metadata.ErrDenied,
	"IncompleteSignatureException":        metadata.ErrDenied,
	"MissingAuthenticationToken":          metadata.ErrDenied,
	"MissingAuthenticationTokenException": metadata.ErrDenied,
	codeExpired:                           metadata.ErrDenied,
	"NotAuthorized":                       metadata.ErrDenied,
	"OptInRequired":                       metadata.ErrDenied,
}

// cancellations are the codes in the reasons of a cancelled transaction, besides a failed condition. The whole of
// it is definitely not applied whatever they are.
var cancellations = map[string]error{
	"TransactionConflict":             metadata.ErrContended,
	"ThrottlingError":                 metadata.ErrThrottled,
	"ProvisionedThroughputExceeded":   metadata.ErrThrottled,
	"AccessDenied":                    metadata.ErrDenied,
	"ValidationError":                 metadata.ErrInvalid,
	"ItemCollectionSizeLimitExceeded": metadata.ErrInvalid,
}

// judge says what the error of an attempt means. ctx is the caller's.
func (c *call) judge(ctx context.Context, x *exchange, err error) *metadata.Error {
	code, condition := x.refusal(err)
	switch {
	case !x.sent:
		return c.error("", unsent(ctx, x, err))
	case ctx.Err() != nil && !c.write:
		return c.error("", context.Cause(ctx))
	case condition != nil && status(err) < http.StatusInternalServerError:
		return c.error(code, condition)
	}
	c.doubt = true
	return c.error(code, because(c.open, err))
}

// refusal is the service's code, and the condition if by that code it says that it has not performed the request.
func (x *exchange) refusal(err error) (code string, condition error) {
	var failed *types.ConditionalCheckFailedException
	var stopped *types.TransactionCanceledException
	var api smithy.APIError
	switch {
	case errors.As(err, &failed):
		return failed.ErrorCode(), &refused{item: failed.Item}
	case errors.As(err, &stopped):
		return cancellation(stopped)
	case errors.As(err, &api):
		code = api.ErrorCode()
	}
	condition, ok := refusals[code]
	switch {
	case !ok:
		return code, nil
	case condition == metadata.ErrNoTable:
		condition = fmt.Errorf("%w: %q", condition, x.table.name)
	case condition == metadata.ErrDenied && skewed(err):
		x.observe()
		condition = metadata.ErrUnavailable
	case condition == metadata.ErrDenied && code == codeExpired && x.table.credentials.renew():
		condition = metadata.ErrUnavailable
	}
	return code, because(condition, err)
}

// unsent is the condition of an attempt of which no byte can have reached the service.
func unsent(ctx context.Context, x *exchange, err error) error {
	var params *smithy.InvalidParamsError
	var none *noCredentials
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &params):
		return because(metadata.ErrInvalid, err)
	case x.reached, errors.Is(err, context.DeadlineExceeded), errors.Is(err, errOld): // nobody there, or credentials did not come in time
		return because(metadata.ErrUnavailable, err)
	case errors.As(err, &none):
		return because(metadata.ErrNoCredentials, err)
	}
	return because(metadata.ErrDenied, err) // no endpoint for this region
}

// cancellation is the condition of a cancelled transaction: a failed condition of ours before anything else.
func cancellation(err *types.TransactionCanceledException) (code string, condition error) {
	for _, r := range err.CancellationReasons {
		if value(r.Code) == codeConditionFailed {
			return codeConditionFailed, &cancelled{reasons: err.CancellationReasons}
		}
	}
	for i, r := range err.CancellationReasons {
		if condition, ok := cancellations[value(r.Code)]; ok {
			return value(r.Code), fmt.Errorf("%w: action %d: %s", condition, i, value(r.Message))
		}
	}
	return err.ErrorCode(), because(metadata.ErrContended, err)
}

// skewed tells whether a signature was refused because our clock is minutes off. The SDK has then noted by how much, and the next request
// is signed with the service's time.
func skewed(err error) bool {
	var again interface{ RetryableError() bool }
	return errors.As(err, &again) && again.RetryableError()
}

func status(err error) int {
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) && response.Response != nil && response.Response.Response != nil {
		return response.HTTPStatusCode()
	}
	return 0
}

// because names the condition and keeps the SDK's words, with the request's id, but not its types.
func because(condition, err error) error { return fmt.Errorf("%w: %v", condition, err) }

func (c *call) error(code string, err error) *metadata.Error {
	key := ""
	if c.key != (metadata.Key{}) {
		key = c.key.String()
	}
	return &metadata.Error{Op: c.op, Key: key, Code: code, Err: err}
}
