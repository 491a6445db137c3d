package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/varvelog/varve/internal/wire"
)

// poster appends through the server: one request after another, each with this client's producer id and the next sequence, and again until it is answered. What
// a request is stands in the history before it is sent, so that the next life of the client sends it again, too.
type poster struct {
	*worker
	id       string
	sequence int64
}

// post is a client until it is to end.
func (w *worker) post(ctx context.Context, earlier []line) error {
	p := &poster{worker: w}
	open := p.remember(earlier)
	for ctx.Err() == nil || len(open) > 0 {
		if p.id == "" {
			p.identify(ctx)
			continue
		}
		if len(open) == 0 {
			open = p.request()
		}
		if !p.send(open) {
			w.rest(context.Background(), 200*time.Millisecond)
			continue
		}
		open = nil
		w.rest(ctx, w.Pace)
	}
	return nil
}

// remember takes in what earlier lives have done, and returns the request that was not answered.
func (p *poster) remember(earlier []line) (open []line) {
	for _, l := range earlier {
		switch l.Kind {
		case identity:
			p.id, p.sequence = l.Value, 0
		case append_:
			if l.Call != p.sequence {
				open = nil
			}
			p.sequence, open = l.Call, append(open, l)
		case told:
			open = nil
		}
	}
	return open
}

func (p *poster) identify(ctx context.Context) {
	var made wire.Producer
	if err := p.exchange(ctx, "/v1/producers", nil, nil, &made); err != nil {
		p.note("new producer", err)
		p.rest(ctx, 200*time.Millisecond)
		return
	}
	p.id, p.sequence = made.ID, 0
	p.journal.write(line{Kind: identity, Value: p.id})
}

// request is the next request.
func (p *poster) request() (lines []line) {
	p.sequence++
	for i := range 1 + p.below(3) {
		lines = append(lines, line{Kind: append_, Topic: web, Partition: p.below(partitionsOf(web)), Call: p.sequence, Value: fmt.Sprintf("%s/%s/%d/%d", p.Name, p.id, p.sequence, i)})
	}
	p.journal.write(lines...)
	return lines
}

// send sends a request, and tells whether it was answered for good.
func (p *poster) send(lines []line) bool {
	type record struct {
		Partition int    `json:"partition"`
		Value     string `json:"value"`
	}
	var body struct {
		Records []record `json:"records"`
	}
	for _, l := range lines {
		body.Records = append(body.Records, record{l.Partition, l.Value})
	}
	var answer wire.Produced
	err := p.exchange(context.Background(), "/v1/topics/"+web+"/records", body,
		http.Header{wire.ProducerIDHeader: {p.id}, wire.SequenceHeader: {strconv.FormatInt(p.sequence, 10)}}, &answer)
	var refused *refusal
	if err != nil && (!errors.As(err, &refused) || refused.said.Retriable) {
		p.note("send", err)
		return false
	}
	if err == nil && len(answer.Results) != len(lines) {
		err = fmt.Errorf("%d results for %d records", len(answer.Results), len(lines))
	}
	if err != nil { // nothing that this client may be told
		p.wrong(fmt.Sprintf("request %d of producer %s: %v", p.sequence, p.id, err))
	}
	var all []line
	for i, l := range lines {
		t := line{Kind: told, Value: l.Value, Failure: p.journal.failed(err)}
		if err == nil {
			t.Offset = -1
			if o := answer.Results[i].Offset; o != nil {
				t.Offset = *o
			}
		}
		all = append(all, t)
	}
	p.journal.write(all...)
	return true
}

// refusal is an answer that is not a success.
type refusal struct {
	said   *wire.Error
	status int
}

func (r *refusal) Error() string { return fmt.Sprintf("status %d: %v", r.status, r.said) }

const exchangeTime = 40 * time.Second

// exchange is one request to the server.
func (p *poster) exchange(ctx context.Context, path string, body any, header http.Header, into any) error {
	ctx, cancel := p.env.WithTimeout(ctx, exchangeTime)
	defer cancel()
	var sent []byte
	if body != nil {
		var err error
		if sent, err = json.Marshal(body); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.Web+path, bytes.NewReader(sent))
	if err != nil {
		return err
	}
	for name, values := range header {
		r.Header[name] = values
	}
	if body != nil {
		r.Header.Set("Content-Type", wire.JSONType)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode < 300 {
		return json.Unmarshal(b, into)
	}
	var f wire.Failure
	if err := json.Unmarshal(b, &f); err != nil || f.Error == nil {
		return fmt.Errorf("%s: status %d: %.200s", path, answer.StatusCode, b)
	}
	return &refusal{f.Error, answer.StatusCode}
}
