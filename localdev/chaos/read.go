package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/varvelog/varve/sdk"
)

// endsFile appears when nothing is appended any more, and says where each partition of each topic ends. Who has read up to there is done.
const endsFile = "ends.json"

type ends map[string][]int64

func (w *worker) ends() (e ends) {
	b, err := os.ReadFile(filepath.Join(w.Dir, endsFile))
	if err != nil || json.Unmarshal(b, &e) != nil {
		return nil
	}
	return e
}

// readAll follows all topics, from where earlier lives of this reader were, or now and then from the beginning.
func (w *worker) readAll(ctx context.Context, log *sdk.Log, earlier []line) error {
	from := map[string]map[int]int64{}
	for _, t := range topics {
		from[t.Name] = map[int]int64{}
	}
	if w.Life%8 != 0 {
		for _, l := range earlier {
			if l.Kind == read {
				from[l.Topic][l.Partition] = l.Offset + 1
			}
		}
	}
	var all sync.WaitGroup
	for _, t := range topics {
		all.Go(func() { w.follow(ctx, log, t.Name, from[t.Name]) })
	}
	all.Wait()
	return nil
}

const waitTime = 300 * time.Millisecond // of a Poll

// follow reads a topic until it ends.
func (w *worker) follow(ctx context.Context, log *sdk.Log, topic string, next map[int]int64) {
	r := w.newReader(ctx, log, topic, next)
	if r == nil {
		return
	}
	defer r.Close()
	for p := range partitionsOf(topic) {
		w.journal.write(line{Kind: begins, Topic: topic, Partition: p, Offset: next[p]})
	}
	for ctx.Err() == nil && !w.done(r, topic) {
		fetches, err := r.Poll(ctx)
		if err != nil && ctx.Err() == nil {
			w.pollFailed(topic, err)
			w.rest(ctx, waitTime)
		}
		var lines []line
		for _, f := range fetches {
			for i := range f.Records {
				x := &f.Records[i]
				lines = append(lines, line{Kind: read, Topic: topic, Partition: x.Partition, Offset: x.Offset, Value: valueOf(x)})
			}
		}
		if len(lines) > 0 {
			w.journal.write(lines...)
		}
	}
}

func (w *worker) newReader(ctx context.Context, log *sdk.Log, topic string, next map[int]int64) *sdk.Reader {
	options := []sdk.ReaderOption{sdk.FromOffsets(next), sdk.WithWait(waitTime)}
	if removes(topic) {
		options = append(options, sdk.OnExpired(sdk.ResetEarliest))
	}
	for ctx.Err() == nil {
		r, err := log.NewReader(ctx, topic, options...)
		if err == nil {
			return r
		}
		w.note("new reader of "+topic, err)
		w.rest(ctx, waitTime)
	}
	return nil
}

// pollFailed takes an error of Poll. That services do not answer may be.
func (w *worker) pollFailed(topic string, err error) {
	if errors.Is(err, sdk.ErrUnreachable) {
		w.note("poll of "+topic, err)
		return
	}
	w.wrong("poll of " + topic + ": " + err.Error())
}

// done tells whether all of the topic was read.
func (w *worker) done(r *sdk.Reader, topic string) bool {
	all := w.ends()
	for p, end := range all[topic] {
		if at, err := r.Position(p); err != nil || at < end {
			return false
		}
	}
	return all != nil
}
