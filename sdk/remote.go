package sdk

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/metadata"
)

// remote is a log that is reached over HTTP, through the functions produce and fetch or the local server (docs/openapi.yaml). It does what they do: produce,
// read, alone or as a member of a group, and answer for topics, offsets and groups. Everything else takes the table and the bucket themselves.
type remote struct {
	client *client
	fetch  *url.URL // of the function that serves reads
	logID  string
	hooks  hooks
	env    env.Env

	produce  *url.URL      // of the function that serves appends; the same where one server does both
	checking chan struct{} // room for one: who finds out whether produce is of this log
	checked  bool
}

// openRemote opens https://HOST[/stage] and, on loopback, http://.
func openRemote(ctx context.Context, u *url.URL, c *openConfig) (*Log, error) {
	if c.createTable || c.lostTable {
		return nil, unsupported("create or repair a table")
	}
	at, err := parseRemoteURL(u)
	if err != nil {
		return nil, err
	}
	keys, err := at.auth(ctx, c.env)
	if err != nil {
		return nil, err
	}
	r := &remote{client: newClient(c, keys), fetch: at.base, produce: at.produce, hooks: c.hooks, env: c.env, checking: make(chan struct{}, 1)}
	about, err := r.about(ctx, r.fetch)
	if err != nil {
		r.client.close()
		return nil, err
	}
	r.logID = about.LogID
	if r.produce == nil {
		if r.produce, err = at.producer(about.ProduceURL, keys); err != nil {
			r.client.close()
			return nil, err
		}
	}
	log := &Log{table: noTable{}, env: c.env, hooks: c.hooks, remote: r, close: func() error { r.client.close(); return nil }}
	return log, nil
}

// about asks what is served there.
func (r *remote) about(ctx context.Context, base *url.URL) (wire.Service, error) {
	var a wire.Service
	if err := r.client.json(ctx, request{op: "About", method: http.MethodGet, url: base.JoinPath("v1")}, &a); err != nil {
		if errors.Is(err, errNotFound) {
			err = fmt.Errorf("%w: nothing of varve's answers there: %w", ErrNoLog, err)
		}
		return a, err
	}
	if a.Version != wire.Version {
		return a, fmt.Errorf("%w: %s speaks version %d of the API, this build version %d: use the build that fits", metadata.ErrVersion, base.Host, a.Version, wire.Version)
	}
	if a.LogID == "" {
		return a, fmt.Errorf("%w: %s does not say which log it serves", ErrNoLog, base.Host)
	}
	return a, nil
}

// producer is where appends go, once it is known to be of the same log as reads are.
func (r *remote) producer(ctx context.Context) (*url.URL, error) {
	select {
	case r.checking <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-r.checking }()
	if r.checked || r.produce.String() == r.fetch.String() {
		return r.produce, nil
	}
	a, err := r.about(ctx, r.produce)
	switch {
	case err != nil:
		return nil, err
	case a.LogID != r.logID:
		return nil, fmt.Errorf("%w: %s appends to log %s, %s reads log %s; give functions of one log", ErrWrongLog, r.produce.Host, a.LogID, r.fetch.Host, r.logID)
	}
	r.checked = true
	return r.produce, nil
}

// noTable is the table of a log over HTTP. Nothing gets to it but the question of what time it is.
type noTable struct{ metadata.Table }

func (noTable) ServiceTime() (time.Time, bool) { return time.Time{}, false }

// UnsupportedError is something that a log cannot do over HTTP. It is ErrNotSupported and errors.ErrUnsupported.
type UnsupportedError struct{ What string }

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s: %v over HTTP; open the log by its aws:// URL for it (or file:// where it lives in a directory)", e.What, ErrNotSupported)
}

func (e *UnsupportedError) Unwrap() []error { return []error{ErrNotSupported, errors.ErrUnsupported} }

func unsupported(what string) error { return &UnsupportedError{what} }

// direct is an error unless the log is open and has its table and its store at hand, which what needs.
func (l *Log) direct(what string) error {
	if l.remote != nil {
		return unsupported(what)
	}
	return l.live()
}

// topicRow reads a topic's row.
func (l *Log) topicRow(ctx context.Context, name string) (*metadata.Topic, error) {
	if l.remote != nil {
		t, err := l.remote.topic(ctx, name)
		if err != nil {
			return nil, err
		}
		return t.row, nil
	}
	return l.table.Topic(ctx, name)
}
