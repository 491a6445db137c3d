package store

import (
	"errors"
	"fmt"
)

// Conditions. Every error of an adapter is an *Error that wraps one of them or the context's error.
var (
	ErrNotExist    = errors.New("no such object")
	ErrExists      = errors.New("object exists with other content")
	ErrShort       = errors.New("object does not hold the range asked for")
	ErrThrottled   = errors.New("store is throttling")
	ErrDenied      = errors.New("store refused the credentials or the right")
	ErrUnavailable = errors.New("store did not answer") // time-outs, resets, 5xx after the adapter's own retries
	ErrBadName     = errors.New("malformed object name")
	ErrParts       = errors.New("parts are not what an object can be made of")
	ErrConfig      = errors.New("store is not usable as configured")  // wrong region, missing bucket, refused feature
	ErrReused      = errors.New("name was deleted and is used again") // only mem can tell

	// ErrNoCredentials is an ErrDenied of nobody's making: whoever gives out credentials gave none just now, and may later.
	ErrNoCredentials = fmt.Errorf("%w: no credentials to be had", ErrDenied)
)

// Op names a method of Store, or the opening of one: one of the constants.
type Op = string

const (
	OpOpen   Op = "open"
	OpPut    Op = "put"
	OpGet    Op = "get"
	OpStat   Op = "stat"
	OpList   Op = "list"
	OpDelete Op = "delete"

	OpPresign Op = "make a link to"

	OpGetRules Op = "get the lifecycle rules of"
	OpSetRules Op = "set the lifecycle rules of"
)

// Error says which operation failed on which object (for a list: on which prefix). Code is the service's own
// error code, if it gave one.
type Error struct {
	Op   Op
	Name string
	Code string
	Err  error
}

func (e *Error) Error() string {
	s := "store: " + e.Op
	if e.Name != "" {
		s += fmt.Sprintf(" %q", clip(e.Name))
	}
	if e.Code != "" {
		s += " [" + e.Code + "]"
	}
	return s + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Fail is err as the error of an operation, nil for nil. An *Error stays as it is.
func Fail(op Op, name string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := err.(*Error); ok {
		return err
	}
	return &Error{Op: op, Name: name, Err: err}
}
