package bench

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// replayPiece is how many bytes a raw get of an archive segment asks for.
const replayPiece = 8 << 20

// Replay measures a replay of a compacted topic against ranged gets of the very bytes that it reads, and against such gets by callers who take the checksum.
func Replay(ctx context.Context, c Config) (result *Result, err error) {
	err = c.on(ctx, func(ctx context.Context, r *run) error {
		if _, err := r.fill(ctx); err != nil {
			return err
		}
		ranges, err := r.compact(ctx)
		if err != nil {
			return err
		}
		var took time.Duration // varve's last turn
		sides := []side{{name: "varve", turn: func(ctx context.Context) (turn, error) {
			t, err := r.anew(ctx, func(log *sdk.Log, m *meter) (turn, error) { return r.replayTurn(ctx, log, m) })
			took = t.elapsed
			return t, err
		}}}
		sides = append(sides, r.rawGets(ranges, &took)...)
		if err := r.alternate(ctx, sides); err != nil {
			return err
		}
		result = r.result("replay", sides)
		return nil
	})
	return result, err
}

// compact moves the topic to the archive, and returns the ranges of its segments that hold records.
func (r *run) compact(ctx context.Context) ([]object, error) {
	r.Progress("compacting what will be replayed")
	table := r.log.Backend().Table
	if _, err := compact.Run(ctx, table, r.store, compact.Options{Topics: []string{r.topic}, All: true, Env: r.Env}); err != nil {
		return nil, err
	}
	t, err := table.Topic(ctx, r.topic)
	if err != nil {
		return nil, err
	}
	var ranges []object
	kept := map[segment.ID]bool{}
	for p := range t.Partitions {
		rows, more, err := table.Rows(ctx, t.ID, p, 0, math.MaxInt64, 1000, metadata.Strong)
		switch {
		case err != nil:
			return nil, err
		case more:
			return nil, fmt.Errorf("%w: more than %d archive rows", sdk.ErrInvalid, len(rows))
		}
		for _, row := range rows {
			name := segment.ArchiveName(t.ID, row.Segment)
			if !kept[row.Segment] {
				kept[row.Segment] = true
				r.mu.Lock()
				r.written = append(r.written, name)
				r.mu.Unlock()
			}
			for at := int64(0); at < row.Bytes; at += replayPiece {
				ranges = append(ranges, object{name: name, off: row.Start + at, size: int(min(replayPiece, row.Bytes-at))})
			}
		}
	}
	return ranges, nil
}

// replayTurn replays the topic from its beginning to its end.
func (r *run) replayTurn(ctx context.Context, log *sdk.Log, m *meter) (turn, error) {
	opts := []sdk.ReplayOption{}
	if r.Recycle {
		opts = append(opts, sdk.ReplayRecycle())
	}
	var records, bytes atomic.Int64
	t, err := r.measure(m, func() error {
		replay, err := log.NewReplay(ctx, r.topic, opts...)
		if err != nil {
			return err
		}
		return replay.Run(ctx, func(_ context.Context, f sdk.Fetch) error {
			n := 0
			for i := range f.Records {
				n += len(f.Records[i].Key) + len(f.Records[i].Value)
			}
			records.Add(int64(len(f.Records)))
			bytes.Add(int64(n))
			return nil
		})
	})
	t.records, t.bytes, t.took = int(records.Load()), bytes.Load(), m.takeFetches()
	t.objects = len(t.took)
	return t, err
}
