package s3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"

	"github.com/minio/minio-go/v7"

	"github.com/varvelog/varve/segment/store"
)

// failure is what became of an attempt that did not succeed.
type failure struct {
	err       error // wraps one of store's conditions
	code      string
	retry     bool   // the same request may succeed later
	cut       bool   // its time was up
	throttled bool   // wait longer
	expired   bool   // renew the credentials first
	moved     bool   // the bucket is in another region
	region    string // which one, if the service says

	client *client // that was used,
	serial int     // and the credentials
}

// errBroken marks an answer that cannot be used though the service said nothing wrong, such as a body that
// breaks off. The attempt is repeated.
var errBroken = fmt.Errorf("%w: broken answer", store.ErrUnavailable)

// codes are the service's error codes that say more than their status, or something else.
var codes = map[string]failure{
	"NoSuchKey":    {err: store.ErrNotExist},
	"NoSuchBucket": {err: store.ErrConfig},

	"AccessDenied":          {err: store.ErrDenied},
	"InvalidAccessKeyId":    {err: store.ErrDenied},
	"InvalidToken":          {err: store.ErrDenied},
	"RequestTimeTooSkewed":  {err: store.ErrDenied},
	"SignatureDoesNotMatch": {err: store.ErrDenied},
	"ExpiredToken":          {err: store.ErrDenied, expired: true},
	"ExpiredTokenException": {err: store.ErrDenied, expired: true},
	"TokenRefreshRequired":  {err: store.ErrDenied, expired: true},

	"SlowDown":               {err: store.ErrThrottled, retry: true, throttled: true},
	"SlowDownRead":           {err: store.ErrThrottled, retry: true, throttled: true},
	"SlowDownWrite":          {err: store.ErrThrottled, retry: true, throttled: true},
	"Throttling":             {err: store.ErrThrottled, retry: true, throttled: true},
	"ThrottlingException":    {err: store.ErrThrottled, retry: true, throttled: true},
	"RequestLimitExceeded":   {err: store.ErrThrottled, retry: true, throttled: true},
	"RequestThrottled":       {err: store.ErrThrottled, retry: true, throttled: true},
	"TooManyRequests":        {err: store.ErrThrottled, retry: true, throttled: true},
	"BandwidthLimitExceeded": {err: store.ErrThrottled, retry: true, throttled: true},

	// the bytes were damaged or did not all arrive: these come with status 400
	"BadDigest":                   {err: store.ErrUnavailable, retry: true},
	"XAmzContentChecksumMismatch": {err: store.ErrUnavailable, retry: true},
	"IncompleteBody":              {err: store.ErrUnavailable, retry: true},
	"RequestTimeout":              {err: store.ErrUnavailable, retry: true},

	"AuthorizationHeaderMalformed":       {err: store.ErrConfig, moved: true},
	"IllegalLocationConstraintException": {err: store.ErrConfig, moved: true},
	"InvalidRegion":                      {err: store.ErrConfig, moved: true},
	"PermanentRedirect":                  {err: store.ErrConfig, moved: true},

	"InvalidObjectState": {err: store.ErrConfig}, // moved to a class that must be restored before it is read
}

// classify says what an error of an attempt in the given region means.
func classify(err error, region string) failure {
	var answer minio.ErrorResponse
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &answer):
		return classifyAnswer(answer, region)
	case errors.Is(err, errBroken):
		return failure{err: err, retry: true}
	case isCondition(err):
		return failure{err: err}
	case errors.As(err, &certificate):
		return failure{err: fmt.Errorf("%w: %w", store.ErrConfig, err)}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		// the attempt's own limit, not the caller's; so it must not look like the caller's
		return failure{err: fmt.Errorf("%w: time is up: %v", store.ErrUnavailable, err), retry: true, cut: true}
	}
	return failure{err: fmt.Errorf("%w: %w", store.ErrUnavailable, err), retry: true}
}

func classifyAnswer(a minio.ErrorResponse, region string) failure {
	f, known := codes[a.Code]
	if !known {
		f = classifyStatus(a.StatusCode)
	}
	if a.Region != "" && a.Region != region {
		f.moved, f.region = true, a.Region
	}
	f.code = a.Code
	f.err = fmt.Errorf("%w: %w", f.err, a)
	return f
}

func classifyStatus(status int) failure {
	switch status {
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return failure{err: store.ErrConfig, moved: true}
	case http.StatusUnauthorized, http.StatusForbidden:
		return failure{err: store.ErrDenied}
	case http.StatusNotFound:
		return failure{err: store.ErrNotExist}
	case http.StatusPreconditionFailed:
		return failure{err: store.ErrExists}
	case http.StatusRequestedRangeNotSatisfiable:
		return failure{err: store.ErrShort}
	case http.StatusTooManyRequests:
		return failure{err: store.ErrThrottled, retry: true, throttled: true}
	case http.StatusConflict: // a concurrent conditional put; who wins is open, so it does not mean "exists"
		return failure{err: store.ErrUnavailable, retry: true}
	case http.StatusNotImplemented:
		return failure{err: store.ErrConfig}
	case http.StatusRequestTimeout, 499:
		return failure{err: store.ErrUnavailable, retry: true}
	}
	if status >= 400 && status < 500 {
		return failure{err: store.ErrConfig}
	}
	return failure{err: store.ErrUnavailable, retry: true}
}

// isCondition tells whether this package made the error, having understood the answer.
func isCondition(err error) bool {
	for _, c := range []error{store.ErrNotExist, store.ErrExists, store.ErrShort, store.ErrDenied, store.ErrConfig} {
		if errors.Is(err, c) {
			return true
		}
	}
	return false
}

// status is the HTTP status of an error that is the service's answer, otherwise 0.
func status(err error) int {
	var answer minio.ErrorResponse
	if errors.As(err, &answer) {
		return answer.StatusCode
	}
	return 0
}
