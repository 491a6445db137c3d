package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/sdk"
)

// Produce measures a producer against puts.
func Produce(ctx context.Context, c Config) (result *Result, err error) {
	err = c.on(ctx, func(ctx context.Context, r *run) (err error) {
		p, err := r.producer()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.Close(context.WithoutCancel(ctx))) }()
		source := &source{run: r}
		var sizes []object     // of the segments of varve's last turn
		var took time.Duration // by it
		sides := []side{{name: "varve", turn: func(ctx context.Context) (turn, error) {
			t, segments, err := r.produceTurn(ctx, source, p)
			sizes, took = segments, t.elapsed
			return t, err
		}}}
		for _, n := range streams {
			sides = append(sides, side{name: rawName(n, false), streams: n, turn: func(ctx context.Context) (turn, error) {
				return r.putRaw(ctx, n, sizes, took)
			}})
		}
		if err := r.alternate(ctx, sides); err != nil {
			return err
		}
		result = r.result("produce", sides)
		return nil
	})
	return result, err
}

func rawName(streams int, checked bool) string {
	name := fmt.Sprintf("raw %d streams", streams)
	if streams == 1 {
		name = "raw 1 stream"
	}
	if checked {
		name += " and checksum"
	}
	return name
}

// produceTurn is one turn of the producer, with the segments that it made.
func (r *run) produceTurn(ctx context.Context, s *source, p *sdk.Producer) (turn, []object, error) {
	before, records := len(r.meter.put()), 0
	t, err := r.measure(r.meter, func() (err error) {
		records, err = s.produce(ctx, p, r.TurnTime)
		return err
	})
	segments := r.meter.put()[before:]
	t.records, t.bytes, t.objects, t.took = records, int64(records)*int64(r.RecordSize), len(segments), s.takeAcks()
	return t, segments, err
}
