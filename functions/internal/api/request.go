package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/varvelog/varve/internal/wire"
)

// Query reads the parameters of a request. Each may be there once; one that is not among the known ones is refused, so that a mistyped one is not taken for none.
func (c *Call) Query(known ...string) (url.Values, error) {
	q, err := url.ParseQuery(c.R.URL.RawQuery)
	if err != nil {
		return nil, BadField("query", c.R.URL.RawQuery, "name=value&name=value, percent-encoded")
	}
	for name, values := range q {
		if !slices.Contains(known, name) {
			valid := "none is known here"
			if len(known) > 0 {
				valid = strings.Join(known, ", ")
			}
			return nil, BadField("parameter", name, valid)
		}
		if len(values) != 1 {
			return nil, BadField(name, strings.Join(values, ", "), "one value")
		}
	}
	return q, nil
}

// Int reads a parameter that is a number in [least, most]; what is not there is otherwise.
func Int(q url.Values, name string, least, most, otherwise int64) (int64, error) {
	if !q.Has(name) {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil || n < least || n > most {
		return 0, BadField(name, q.Get(name), fmt.Sprintf("a whole number from %d to %d", least, most))
	}
	return n, nil
}

// Capped is Int for which more than most is as good as most.
func Capped(q url.Values, name string, least, most, otherwise int64) (int64, error) {
	n, err := Int(q, name, least, 1<<62, otherwise)
	return min(n, most), err
}

// Duration reads a parameter that is a duration, 0 if it is not there; more than most is most.
func Duration(q url.Values, name string, most time.Duration) (time.Duration, error) {
	if !q.Has(name) {
		return 0, nil
	}
	d, err := time.ParseDuration(q.Get(name))
	if err != nil || d < 0 {
		return 0, BadField(name, q.Get(name), "a duration such as 500ms or 10s, from 0 on")
	}
	return min(d, most), nil
}

// NoBody refuses a body where none is known.
func (c *Call) NoBody() error {
	var one [1]byte
	if c.R.Body == nil {
		return nil
	}
	if n, _ := io.ReadFull(c.R.Body, one[:]); n > 0 {
		return &wire.Error{Code: wire.BadRequest, Message: "this request has no body"}
	}
	return nil
}

// Body reads the body, of one of the types, and returns which. A body that is too large is refused before it is read, if it says so.
func (c *Call) Body(types ...string) (contentType string, body []byte, err error) {
	contentType, _, err = mime.ParseMediaType(c.R.Header.Get("Content-Type"))
	encoding := c.R.Header.Get("Content-Encoding")
	switch {
	case err != nil || !slices.Contains(types, contentType):
		return "", nil, &wire.Error{Code: wire.UnsupportedType, Field: "Content-Type", Value: clip(c.R.Header.Get("Content-Type")), Valid: strings.Join(types, ", "),
			Message: fmt.Sprintf("Content-Type %q is not known here: want %s", clip(c.R.Header.Get("Content-Type")), strings.Join(types, " or "))}
	case encoding != "" && encoding != "identity":
		return "", nil, &wire.Error{Code: wire.UnsupportedType, Field: "Content-Encoding", Value: clip(encoding), Valid: "none",
			Message: fmt.Sprintf("Content-Encoding %q is not known here: want none; record batches can be compressed in themselves", clip(encoding))}
	case c.R.ContentLength > wire.MaxBody:
		return "", nil, tooLargeBody(c.R.ContentLength)
	case c.R.Body == nil:
		return contentType, nil, nil
	}
	room := c.R.ContentLength
	if room < 0 {
		room = 4 << 10
	}
	b := &sink{buf: make([]byte, 0, room+1)}
	_, err = io.Copy(b, http.MaxBytesReader(nil, c.R.Body, wire.MaxBody))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return "", nil, tooLargeBody(0)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "", nil, &wire.Error{Code: wire.SlowBody, Retriable: true, Message: "the body did not come in time; nothing was done"}
	case err != nil:
		return "", nil, &wire.Error{Code: wire.BadRequest, Retriable: true, Message: "the body broke off; nothing was done"}
	}
	return contentType, b.buf, nil
}

// sink is a buffer that grows by what has really come.
type sink struct{ buf []byte }

func (s *sink) Write(p []byte) (int, error) {
	s.buf = append(s.buf, p...)
	return len(p), nil
}

func tooLargeBody(size int64) *wire.Error {
	limit := int64(wire.MaxBody)
	e := &wire.Error{Code: wire.TooLarge, Message: fmt.Sprintf("the body is larger than %d bytes, nothing was done: send less at a time", limit), Limit: &limit}
	if size > 0 {
		e.Size = &size
	}
	return e
}

// Accepts tells which of the types, of which the first is the default, the client wants.
func (c *Call) Accepts(types ...string) (string, error) {
	accept := strings.Join(c.R.Header.Values("Accept"), ",")
	if strings.TrimSpace(accept) == "" {
		return types[0], nil
	}
	for part := range strings.SplitSeq(accept, ",") {
		t, params, err := mime.ParseMediaType(part)
		if err != nil || params["q"] == "0" {
			continue
		}
		if i := slices.Index(types, t); i >= 0 {
			return types[i], nil
		}
		if t == "*/*" || t == "application/*" {
			return types[0], nil
		}
	}
	return "", &wire.Error{Code: wire.NotAcceptable, Field: "Accept", Value: clip(accept), Valid: strings.Join(types, ", "),
		Message: fmt.Sprintf("Accept %q is nothing that can be answered: want %s", clip(accept), strings.Join(types, " or "))}
}
