package dynamodb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// maxBody is the largest request: 16 MB of a BatchWriteItem, and its JSON.
const maxBody = 24 << 20

const targetPrefix = "DynamoDB_20120810."

// Do performs one HTTP request in process. With it an Engine is the AWS SDK's HTTPClient. Once the request's context
// is done it returns an error that wraps the context's, as a transport would.
func (e *Engine) Do(r *http.Request) (*http.Response, error) {
	a, err := e.exchange(r)
	if err != nil {
		return nil, &url.Error{Op: "Post", URL: r.URL.String(), Err: err}
	}
	return &http.Response{
		Status:        fmt.Sprintf("%d %s", a.status, http.StatusText(a.status)),
		StatusCode:    a.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        a.header,
		Body:          io.NopCloser(bytes.NewReader(a.body)),
		ContentLength: int64(len(a.body)),
		Request:       r,
	}, nil
}

// ServeHTTP answers the same requests over a connection, which it breaks where Do would return an error.
func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, err := e.exchange(r)
	if err != nil {
		panic(http.ErrAbortHandler) // net/http's way to close a connection without an answer
	}
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // the client has gone if this fails
}

// answer is what goes back over the wire.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// exchange performs a request. An error is one of the transport's, or the request's context's.
func (e *Engine) exchange(r *http.Request) (*answer, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	if err := e.ctx.Err(); err != nil {
		return nil, fmt.Errorf("dynamodb: the engine is closed: %w", err)
	}
	if r.Context().Err() != nil {
		return nil, context.Cause(r.Context())
	}
	op, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), targetPrefix)
	if !ok || operations[op] == nil {
		return e.answer(nil, unknownOperation(r.Header.Get("X-Amz-Target"))), nil
	}
	c := &call{engine: e, op: op, body: body, signed: signed(r.Header)}
	if c.q, err = decode(body); err != nil {
		return e.answer(nil, err), nil
	}
	reply, err := e.faulted(r.Context(), c)
	if r.Context().Err() != nil {
		return nil, context.Cause(r.Context())
	}
	var served *Error
	if err != nil && !errors.As(err, &served) {
		return nil, err
	}
	return e.answer(reply, err), nil
}

func unknownOperation(target string) error {
	return clientError("UnknownOperationException", "This engine does not perform the operation %q", target)
}

func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	defer r.Body.Close()
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err == nil && len(body) > maxBody {
		return nil, fmt.Errorf("dynamodb: request body over %d bytes", maxBody)
	}
	return body, err
}

// answer wraps a reply or, if there is one, an error.
func (e *Engine) answer(reply []byte, err error) *answer {
	a := &answer{status: http.StatusOK, body: reply, header: http.Header{}}
	if err != nil {
		served := answerFor(err)
		a.status, a.body = served.Status, served.body()
	}
	a.header.Set("Content-Type", "application/x-amz-json-1.0")
	a.header.Set("Content-Length", strconv.Itoa(len(a.body)))
	a.header.Set("Date", e.options.Now().UTC().Format(http.TimeFormat))
	a.header.Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE(a.body)), 10))
	a.header.Set("X-Amzn-Requestid", fmt.Sprintf("%026d", e.requests.Add(1)))
	return a
}
