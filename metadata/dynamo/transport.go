package dynamo

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/metadata"
)

type httpClient interface {
	Do(*http.Request) (*http.Response, error)
}

// maxAnswer bounds an answer's body. A page is at most 1 MB of items, which their JSON makes some five times as long when the
// attributes are tiny.
const maxAnswer = 16 << 20

// exchange is the HTTP client of one attempt. It sees what the SDK does not report: whether anything can have reached the service, and the
// Date of the answer.
type exchange struct {
	table   *Table
	fresh   freshness
	reached bool // the HTTP client was asked to send
	sent    bool // the service may have got the request

	date          time.Time     // of the answer, if it has one
	before, after time.Duration // it, on the monotonic clock
}

// freshness is how old the ids of a request are, and may be when it is sent. Zero: it has none, or they may have any age.
type freshness struct {
	minted metadata.Stamp // not after the oldest was made
	born   time.Time      // the time in it
	oldest time.Duration
}

// age is that of the oldest id, by the process's clocks since it was made, and by the service's time, if that is known: where both clocks of a machine have stood still, the service's refusal of
// the first signature tells. Of a clock that is ahead the service takes signatures for as much longer.
func (f *freshness) age(now metadata.Stamp, service time.Time, known bool) time.Duration {
	if f.minted == (metadata.Stamp{}) {
		return 0
	}
	age := f.minted.Age(now)
	if known {
		age = max(age, service.Sub(f.born)) + min(max(0, now.Wall.Sub(service)), metadata.MaxLate/2)
	}
	return age
}

// born is the oldest time in the ids of entries.
func born(entries []metadata.Entry) (oldest time.Time) {
	for i := range entries {
		if t := entries[i].ID.Time(); i == 0 || t.Before(oldest) {
			oldest = t
		}
	}
	return oldest
}

// errOld is a request for a segment that became too old while its process stood still. It is looked for after the request was signed: with the service's limit to the age of
// signatures, five minutes, that bounds how late a commit or a publication can apply, whatever stands still where.
var errOld = fmt.Errorf("%w: the segment has become too old", metadata.ErrUnavailable)

// Do sends the request and reads the whole answer.
func (x *exchange) Do(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	now := x.table.Moment()
	service, known := x.table.time.now(now.Mono)
	if age := x.fresh.age(now, service, known); age > 0 && age >= x.fresh.oldest {
		return nil, fmt.Errorf("%w: made %v ago, not less than %v", errOld, age.Round(time.Second), x.fresh.oldest)
	}
	x.reached, x.sent = true, true
	var connected atomic.Bool
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	}))
	x.before = x.table.env.Mono()
	resp, err := x.table.http.Do(req)
	if err != nil {
		// Only the dialler's own error, with no connection got before it by an attempt that the client repeated, proves that no byte left.
		var dial *net.OpError
		x.sent = connected.Load() || !errors.As(err, &dial) || dial.Op != "dial"
		return nil, err
	}
	if err := read(resp); err != nil {
		return nil, err
	}
	x.date, _ = http.ParseTime(resp.Header.Get("Date"))
	x.after = x.table.env.Mono()
	if resp.StatusCode == http.StatusOK { // by the service and not by a proxy
		x.observe()
	}
	return resp, nil
}

// observe takes in the time that the service's answer told.
func (x *exchange) observe() {
	if !x.date.IsZero() {
		x.table.time.observe(x.date, x.before, x.after)
	}
}

// read replaces the body by its bytes, which are complete and have the checksum that the service gave, if it gave one.
func read(resp *http.Response) error {
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if len(body) == 0 || len(body) > maxAnswer {
		return fmt.Errorf("answer of %d bytes, not 1 to %d", len(body), maxAnswer) // nothing is not "no such item"
	}
	if given := resp.Header.Get("X-Amz-Crc32"); given != "" {
		want, err := strconv.ParseUint(given, 10, 32)
		if got := crc32.ChecksumIEEE(body); err != nil || uint64(got) != want {
			return fmt.Errorf("answer has checksum %d, its header says %q", got, given)
		}
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// serviceTime follows the service's clock. Date is cut to seconds and made somewhere between request and answer, so each answer gives an
// interval in which service time minus our monotonic time lies; the estimate stays where it is while it is inside, and moves to the nearer
// bound otherwise. It so gets exact within a round trip and does not jump from answer to answer.
type serviceTime struct {
	offset atomic.Int64 // nanoseconds: service time since 1970 minus our monotonic time; 0 before the first answer
}

func (s *serviceTime) observe(date time.Time, before, after time.Duration) {
	low := date.UnixNano() - int64(after)
	high := date.UnixNano() + int64(time.Second) - int64(before)
	for {
		old := s.offset.Load()
		if s.offset.CompareAndSwap(old, max(min(old, high), low)) || old >= low && old <= high {
			return
		}
	}
}

func (s *serviceTime) now(mono time.Duration) (time.Time, bool) {
	offset := s.offset.Load()
	return time.Unix(0, offset+int64(mono)).UTC(), offset != 0
}
