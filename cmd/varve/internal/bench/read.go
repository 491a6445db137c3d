package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/varvelog/varve/sdk"
)

// Read measures a reader against gets of the very segments that it reads, and against such gets by callers who take the checksum of what they got, as a
// reader has to.
func Read(ctx context.Context, c Config) (result *Result, err error) {
	err = c.on(ctx, func(ctx context.Context, r *run) error {
		segments, err := r.fill(ctx)
		if err != nil {
			return err
		}
		var took time.Duration // varve's last turn
		sides := []side{{name: "varve", turn: func(ctx context.Context) (turn, error) {
			t, err := r.anew(ctx, func(log *sdk.Log, m *meter) (turn, error) { return r.readTurn(ctx, log, m) })
			took = t.elapsed
			return t, err
		}}}
		sides = append(sides, r.rawGets(segments, &took)...)
		if err := r.alternate(ctx, sides); err != nil {
			return err
		}
		result = r.result("read", sides)
		return nil
	})
	return result, err
}

// rawGets are the sides that get these objects, or parts of them, for as long as varve's last turn took.
func (r *run) rawGets(objects []object, took *time.Duration) (sides []side) {
	for _, checked := range []bool{false, true} {
		for _, n := range streams {
			sides = append(sides, side{name: rawName(n, checked), streams: n, checked: checked, turn: func(ctx context.Context) (turn, error) {
				return r.anew(ctx, func(log *sdk.Log, m *meter) (turn, error) {
					return r.getRaw(ctx, log.Backend().Store, m, n, checked, objects, *took)
				})
			}})
		}
	}
	return sides
}

// fill writes what is read afterwards, one turn's bytes however long it takes, and returns its segments that are objects.
func (r *run) fill(ctx context.Context) ([]object, error) {
	r.Progress("writing what will be read")
	p, err := r.producer()
	if err != nil {
		return nil, err
	}
	_, err = (&source{run: r}).produce(ctx, p, math.MaxInt64)
	if err := errors.Join(err, p.Close(context.WithoutCancel(ctx))); err != nil {
		return nil, err
	}
	segments := stored(r.meter.put())
	if len(segments) == 0 {
		return nil, fmt.Errorf("%w: %d bytes went to the table as small segments, and no object is there to be got: measure more", sdk.ErrInvalid, r.TurnBytes)
	}
	return segments, nil
}

// anew runs a turn on the log opened anew: neither side has anything in its caches, nor connections that the other one lacks.
func (r *run) anew(ctx context.Context, do func(*sdk.Log, *meter) (turn, error)) (t turn, err error) {
	if r.Cold {
		if err := forget(r.Folder); err != nil {
			return turn{}, err
		}
	}
	m := &meter{}
	log, err := r.Open(ctx, m)
	if err != nil {
		return turn{}, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	return do(log, m)
}

// readTurn reads the topic from its beginning to its end.
func (r *run) readTurn(ctx context.Context, log *sdk.Log, m *meter) (turn, error) {
	opts := []sdk.ReaderOption{sdk.To(sdk.Latest)}
	if r.Recycle {
		opts = append(opts, sdk.RecycleRecords())
	}
	records, bytes := 0, int64(0)
	t, err := r.measure(m, func() error {
		reader, err := log.NewReader(ctx, r.topic, opts...)
		if err != nil {
			return err
		}
		defer reader.Close()
		for end := r.Env.Mono() + r.TurnTime; r.Env.Mono() < end; {
			fetches, err := reader.Poll(ctx)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			for _, f := range fetches {
				records += len(f.Records)
				for i := range f.Records {
					bytes += int64(len(f.Records[i].Key) + len(f.Records[i].Value))
				}
			}
		}
		return nil
	})
	t.records, t.bytes, t.took = records, bytes, m.takeFetches()
	t.objects = len(t.took)
	return t, err
}
