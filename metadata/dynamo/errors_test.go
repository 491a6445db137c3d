package dynamo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/dynamo"
	"github.com/varvelog/varve/segment"
)

var aHead = &metadata.Head{Lane: "lane"}

// What each answer means for a write that is sent once. A code that says "not performed" is believed only with a status
// that says so too; whatever is not known is unknown.
func TestCommitOutcomeByAnswer(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		want   error
	}{
		{400, "ProvisionedThroughputExceededException", metadata.ErrThrottled},
		{400, "ThrottlingException", metadata.ErrThrottled},
		{400, "RequestLimitExceeded", metadata.ErrThrottled},
		{400, "TransactionConflictException", metadata.ErrContended},
		{400, "ReplicatedWriteConflictException", metadata.ErrContended},
		{400, "ValidationException", metadata.ErrInvalid},
		{400, "SerializationException", metadata.ErrInvalid},
		{400, "ResourceNotFoundException", metadata.ErrNoTable},
		{400, "AccessDeniedException", metadata.ErrDenied},
		{400, "UnrecognizedClientException", metadata.ErrDenied},
		{403, "InvalidSignatureException", metadata.ErrDenied},
		{403, "MissingAuthenticationTokenException", metadata.ErrDenied},
		{500, "InternalServerError", metadata.ErrOutcomeUnknown},
		{503, "ServiceUnavailable", metadata.ErrOutcomeUnknown},
		{503, "ThrottlingException", metadata.ErrOutcomeUnknown},
		{500, "ConditionalCheckFailedException", metadata.ErrOutcomeUnknown},
		{400, "TransactionInProgressException", metadata.ErrOutcomeUnknown},
		{400, "SomethingNewException", metadata.ErrOutcomeUnknown},
	} {
		table, s := scripted(t, func(int, *http.Request) (*http.Response, error) { return reply(c.status, refusal(c.code)) })
		for name, err := range map[string]error{
			"Commit":    second(table.Commit(t.Context(), commitTo(aHead, entry(1, 1, 0)))),
			"CommitAll": table.CommitAll(t.Context(), "token", []metadata.Commit{commitTo(aHead, entry(1, 1, 0))}),
		} {
			var e *metadata.Error
			if !errors.Is(err, c.want) || !errors.As(err, &e) || e.Code != c.code || e.Op != name || !strings.Contains(e.Key, "lane") {
				t.Errorf("%s, %d %s: %v, want %v", name, c.status, c.code, err, c.want)
			}
		}
		if s.requests() != 2 {
			t.Errorf("%d %s: two calls made %d requests", c.status, c.code, s.requests())
		}
	}
}

func second[T any](_ T, err error) error { return err }

// Answers that cannot be believed: a write is unknown, and a read of them is not "nothing there".
func TestAnswersThatCannotBeBelieved(t *testing.T) {
	for name, answer := range map[string]func(int, *http.Request) (*http.Response, error){
		"wrong checksum": func(int, *http.Request) (*http.Response, error) {
			r, _ := reply(200, `{"Attributes":{}}`)
			r.Header.Set("X-Amz-Crc32", "1")
			return r, nil
		},
		"wrong checksum of a refusal": func(int, *http.Request) (*http.Response, error) {
			r, _ := reply(400, refusal("ThrottlingException"))
			r.Header.Set("X-Amz-Crc32", "1")
			return r, nil
		},
		"cut short": func(int, *http.Request) (*http.Response, error) {
			r, _ := reply(200, "")
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"Attri`), broken{}))
			return r, nil
		},
		"cut short, unnoticed": func(int, *http.Request) (*http.Response, error) { return reply(200, `{"Attributes":{"pk":{"S":"L`) },
		"nothing":              func(int, *http.Request) (*http.Response, error) { return reply(200, "") },
		"a page of a proxy":    func(int, *http.Request) (*http.Response, error) { return reply(200, "<html>welcome</html>") },
		"an error of a proxy":  func(int, *http.Request) (*http.Response, error) { return reply(404, "<html>not here</html>") },
		"endless": func(n int, _ *http.Request) (*http.Response, error) {
			r, _ := reply(200, "")
			if n > 1 {
				return r, nil // no answer to the read's repetitions: megabytes take the race detector seconds
			}
			r.Body = io.NopCloser(endless{})
			return r, nil
		},
		"reset": func(int, *http.Request) (*http.Response, error) { return nil, errors.New("connection reset by peer") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // where the read's pauses take no time
				table, s := scripted(t, answer)
				if _, err := table.Commit(t.Context(), commitTo(aHead, entry(1, 1, 0))); !errors.Is(err, metadata.ErrOutcomeUnknown) {
					t.Errorf("commit: %v", err)
				}
				if s.requests() != 1 {
					t.Errorf("the commit was sent %d times", s.requests())
				}
				h, err := table.Head(t.Context(), "lane", metadata.Strong)
				if !errors.Is(err, metadata.ErrUnavailable) || errors.Is(err, metadata.ErrNoLane) || h != nil {
					t.Errorf("read: %v %v", h, err)
				}
			})
		})
	}
	// An image that no head has is no proof that the update was not applied.
	table, _ := scripted(t, func(int, *http.Request) (*http.Response, error) {
		return reply(200, `{"Attributes":{"pk":{"S":"L#lane"}}}`)
	})
	if _, err := table.Commit(t.Context(), commitTo(aHead, entry(1, 1, 0))); !errors.Is(err, metadata.ErrOutcomeUnknown) || !errors.Is(err, metadata.ErrCorrupt) {
		t.Errorf("undecodable image: %v", err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

type endless struct{}

// blanks is what endless gives at a time: a byte at a time takes the race detector seconds.
var blanks = bytes.Repeat([]byte{' '}, 64<<10)

func (endless) Read(p []byte) (int, error) { return copy(p, blanks), nil }

// What certainly was not sent is certainly not applied: nobody listens, or there are no credentials.
func TestNeverSentIsDefinite(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + l.Addr().String()
	l.Close()
	c := local(nil)
	c.BaseEndpoint = &nobody
	table := openTable(t, dynamo.Config{AWS: c})
	_, err = table.Commit(t.Context(), commitTo(aHead, entry(1, 1, 0)))
	if !errors.Is(err, metadata.ErrUnavailable) || errors.Is(err, metadata.ErrOutcomeUnknown) {
		t.Errorf("nobody listens: %v", err)
	}

	s := &script{answer: func(int, *http.Request) (*http.Response, error) { return reply(200, "{}") }}
	c = local(s)
	c.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{}, errors.New("no role here")
	})
	table = openTable(t, dynamo.Config{AWS: c})
	_, err = table.Commit(t.Context(), commitTo(aHead, entry(1, 1, 0)))
	if !errors.Is(err, metadata.ErrDenied) || !strings.Contains(fmt.Sprint(err), "no role here") || s.requests() != 0 {
		t.Errorf("no credentials: %v, %d requests", err, s.requests())
	}
	if _, err = table.Head(t.Context(), "lane", metadata.Strong); !errors.Is(err, metadata.ErrDenied) {
		t.Errorf("no credentials, read: %v", err)
	}

	left := errors.New("the user left")
	ctx, cancel := context.WithCancelCause(t.Context())
	c.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		cancel(left)
		return aws.Credentials{}, ctx.Err()
	})
	_, err = openTable(t, dynamo.Config{AWS: c}).Commit(ctx, commitTo(aHead, entry(1, 1, 0)))
	if !errors.Is(err, left) || errors.Is(err, metadata.ErrDenied) || s.requests() != 0 {
		t.Errorf("left before it was sent: %v", err)
	}
}

// A cancelled transaction is definite, whatever the reasons of its actions. A condition of ours that failed comes before what was only
// in the way, since no repetition mends it.
func TestCancellationReasons(t *testing.T) {
	commits := []metadata.Commit{commitTo(aHead, entry(1, 1, 0)), commitTo(&metadata.Head{Lane: "other"}, entry(2, 1, 0))}
	for reasons, want := range map[string]error{
		`{"Code":"None"},{"Code":"ThrottlingError"}`:                       metadata.ErrThrottled,
		`{"Code":"ProvisionedThroughputExceeded"},{"Code":"None"}`:         metadata.ErrThrottled,
		`{"Code":"None"},{"Code":"TransactionConflict"}`:                   metadata.ErrContended,
		`{"Code":"None"},{"Code":"ValidationError","Message":"too large"}`: metadata.ErrInvalid,
		`{"Code":"AccessDenied"},{"Code":"None"}`:                          metadata.ErrDenied,
		`{"Code":"SomethingNew"},{"Code":"None"}`:                          metadata.ErrContended,
		``: metadata.ErrContended,
		`{"Code":"TransactionConflict"},{"Code":"ConditionalCheckFailed"}`:    nil,
		`{"Code":"ConditionalCheckFailed"},{"Code":"ConditionalCheckFailed"}`: nil,
	} {
		table, _ := scripted(t, func(int, *http.Request) (*http.Response, error) {
			return reply(400, `{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","Message":"cancelled","CancellationReasons":[`+reasons+`]}`)
		})
		err := table.CommitAll(t.Context(), "token", commits)
		var r *metadata.RefusedError
		switch {
		case want != nil && (!errors.Is(err, want) || errors.Is(err, metadata.ErrOutcomeUnknown)):
			t.Errorf("%s: %v, want %v", reasons, err, want)
		case want == nil && (!errors.As(err, &r) || r.Lane != "other" && !strings.HasPrefix(reasons, `{"Code":"Cond`)):
			t.Errorf("%s: %v, want a refusal", reasons, err)
		}
	}
}

// A dialler's error after a connection was had, as a client that repeats by itself would report it, proves nothing.
func TestDialErrorAfterSendingIsUnknown(t *testing.T) {
	table, _ := scripted(t, func(int, *http.Request) (*http.Response, error) {
		return nil, &net.OpError{Op: "read", Err: errors.New("connection reset")}
	})
	if _, err := table.Commit(t.Context(), commitTo(aHead, entry(1, 1, 0))); !errors.Is(err, metadata.ErrOutcomeUnknown) {
		t.Error(err)
	}
	table, _ = scripted(t, func(_ int, req *http.Request) (*http.Response, error) {
		gotConnection(req)
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	})
	if _, err := table.Commit(t.Context(), commitTo(aHead, entry(1, 1, 0))); !errors.Is(err, metadata.ErrOutcomeUnknown) {
		t.Error(err)
	}
}

// A caller that leaves while the request is on its way: a read is over, a commit unknown.
func TestCallerLeaves(t *testing.T) {
	left := errors.New("the user left")
	for _, write := range []bool{false, true} {
		ctx, cancel := context.WithCancelCause(t.Context())
		table, _ := scripted(t, func(_ int, req *http.Request) (*http.Response, error) {
			cancel(left)
			<-req.Context().Done()
			return nil, req.Context().Err()
		})
		if write {
			if _, err := table.Commit(ctx, commitTo(aHead, entry(1, 1, 0))); !errors.Is(err, metadata.ErrOutcomeUnknown) {
				t.Errorf("commit: %v", err)
			}
		} else if _, err := table.Head(ctx, "lane", metadata.Strong); !errors.Is(err, left) || errors.Is(err, metadata.ErrUnavailable) {
			t.Errorf("read: %v", err)
		}
	}
}

// Nobody answers: a commit ends after its time-out, a read after its repetitions, both in virtual time.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, s := scripted(t, func(_ int, req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		})
		start := time.Now()
		if _, err := table.Commit(t.Context(), commitTo(aHead, entry(1, 1, 0))); !errors.Is(err, metadata.ErrOutcomeUnknown) {
			t.Errorf("commit: %v", err)
		}
		if took := time.Since(start); took != 3*time.Second || s.requests() != 1 {
			t.Errorf("the commit took %v and %d requests", took, s.requests())
		}
		start = time.Now()
		_, err := table.Head(t.Context(), "lane", metadata.Strong)
		if took := time.Since(start); !errors.Is(err, metadata.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || took > 20*time.Second {
			t.Errorf("read: %v after %v", err, took)
		}
		start = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = table.Head(ctx, "lane", metadata.Strong)
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("read with a deadline: %v after %v", err, took)
		}
	})
}

// A machine whose clock is an hour off: signatures are refused until the service's time is known, which the first answer tells.
func TestClockIsAnHourOff(t *testing.T) {
	for _, write := range []bool{false, true} {
		table, s := scripted(t, func(_ int, req *http.Request) (*http.Response, error) {
			now := time.Now().Add(time.Hour)
			signed, err := time.Parse("20060102T150405Z", req.Header.Get("X-Amz-Date"))
			if err != nil {
				t.Error(err)
			}
			r, _ := reply(200, `{"ConsumedCapacity":{"CapacityUnits":1}}`)
			if now.Sub(signed) > 5*time.Minute {
				r, _ = reply(400, refusal("InvalidSignatureException"))
			}
			r.Header.Set("Date", now.UTC().Format(http.TimeFormat))
			return r, nil
		})
		if write {
			_, err := table.Commit(t.Context(), commitTo(aHead, entry(1, 1, 0)))
			if !errors.Is(err, metadata.ErrUnavailable) || errors.Is(err, metadata.ErrOutcomeUnknown) {
				t.Errorf("commit: %v", err)
			}
		}
		_, err := table.Head(t.Context(), "lane", metadata.Strong)
		if !errors.Is(err, metadata.ErrNoLane) || s.requests() != 2 {
			t.Errorf("read: %v after %d requests", err, s.requests())
		}
	}
}

// The process stands still while a request is signed, as a machine does that is suspended, whose timers stand still with it: it finds that its segment is too old by now, and sends nothing.
func TestASegmentTooOldToBeSent(t *testing.T) {
	unavailable := func(err error) bool {
		return errors.Is(err, metadata.ErrUnavailable) && !errors.Is(err, metadata.ErrOutcomeUnknown)
	}
	for name, c := range map[string]struct {
		oldest time.Duration
		send   func(*dynamo.Table, metadata.Stamp) error
		unsent func(error) bool
	}{
		"commit": {metadata.MaxSegmentAge, func(t *dynamo.Table, minted metadata.Stamp) error {
			c := commitTo(aHead, entry(1, 1, 0))
			c.Minted = minted
			_, err := t.Commit(context.Background(), c)
			return err
		}, unavailable},
		"commits": {metadata.MaxSegmentAge, func(t *dynamo.Table, minted metadata.Stamp) error {
			c := commitTo(aHead, entry(1, 1, 0))
			c.Minted = minted
			return t.CommitAll(context.Background(), "token", []metadata.Commit{c})
		}, unavailable},
		"publication": {metadata.MaxArchiveAge, func(t *dynamo.Table, minted metadata.Stamp) error {
			return t.Publish(context.Background(), &metadata.Publication{Lane: "lane", ID: segment.NewID(minted.Wall, 7, segment.Archived, 1, segment.ID{}), Minted: minted, To: 8})
		}, func(err error) bool {
			stale := new(metadata.StaleError)
			return errors.As(err, &stale) && stale.Floor.IsZero()
		}},
	} {
		for still, sent := range map[time.Duration]int{c.oldest - time.Minute: 1, c.oldest: 0} {
			clock := &wall{Clock: env.System().Clock}
			s := &script{answer: func(int, *http.Request) (*http.Response, error) {
				return reply(400, refusal("ConditionalCheckFailedException"))
			}}
			config := local(s)
			config.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				clock.ahead.Store(int64(still))
				return aws.Credentials{AccessKeyID: "a", SecretAccessKey: "b"}, nil
			})
			e := env.System()
			e.Clock = clock
			err := c.send(openTable(t, dynamo.Config{AWS: config, Env: e}), metadata.Stamp{Wall: clock.Now(), Mono: clock.Mono()})
			if err == nil || s.requests() != sent || c.unsent(err) != (sent == 0) {
				t.Errorf("%s, still for %v: %d requests, %v", name, still, s.requests(), err)
			}
		}
	}
}

// Both clocks of a machine stood still, as a guest's do that is paused: nothing of its own tells. The service refuses the first signature, and by the time that it says what is asked for is too old.
func TestBothClocksStoodStill(t *testing.T) {
	const still = 20 * time.Hour
	e := env.System()
	minted := metadata.Stamp{Wall: e.Now(), Mono: e.Mono()}
	id := segment.NewID(minted.Wall, 7, segment.InBucket, 1, segment.ID{})
	commit := commitTo(aHead, metadata.Entry{ID: id, Slots: []metadata.SlotEntry{{Slot: 1, Count: 1, Bytes: 70}}})
	commit.Minted = minted
	for name, send := range map[string]func(*dynamo.Table) error{
		"publication": func(t *dynamo.Table) error {
			return t.Publish(context.Background(), &metadata.Publication{Lane: "lane", ID: segment.NewID(minted.Wall, 7, segment.Archived, 1, segment.ID{}), Minted: minted, To: 8})
		},
		"commit": func(t *dynamo.Table) error {
			_, err := t.Commit(context.Background(), commit)
			return errors.Join(err, func() error { _, err := t.Commit(context.Background(), commit); return err }())
		},
	} {
		s := &script{answer: func(_ int, req *http.Request) (*http.Response, error) {
			now := time.Now().Add(still)
			signed, err := time.Parse("20060102T150405Z", req.Header.Get("X-Amz-Date"))
			r, _ := reply(200, `{}`)
			if err != nil || now.Sub(signed) > 5*time.Minute {
				r, _ = reply(400, refusal("InvalidSignatureException"))
			} else {
				t.Errorf("%s: taken, signed %v ago", name, now.Sub(signed))
			}
			r.Header.Set("Date", now.UTC().Format(http.TimeFormat))
			return r, nil
		}}
		if err := send(openTable(t, dynamo.Config{AWS: local(s), Env: e})); err == nil || s.requests() != 1 {
			t.Errorf("%s: %d requests, %v", name, s.requests(), err)
		}
	}
}

// wall is a clock of which the monotonic part stands still where the wall goes on.
type wall struct {
	env.Clock
	ahead atomic.Int64
}

func (c *wall) Now() time.Time { return c.Clock.Now().Add(time.Duration(c.ahead.Load())) }
