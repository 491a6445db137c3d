package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/internal/price"
	"github.com/varvelog/varve/sdk"
)

// Latencies is what a measurement from append to delivery found.
type Latencies struct {
	Bench string `json:"bench"` // "e2e"
	Settings
	Scenes    []Scene `json:"scenes"`
	PriceDate string  `json:"price_date"`
}

// Scene is one way of using the log. The raw side puts an object as large as a segment of varve's was, and then gets it: what nobody can do without
// who hands something on through the store. Its turns lie between varve's.
type Scene struct {
	Name  string      `json:"name"`
	Varve Percentiles `json:"varve_ms"` // from Produce until Poll has returned the record to a reader with connections of its own
	Raw   Percentiles `json:"raw_ms"`
	// Ratio is varve's latency divided by the raw one's.
	Ratio struct {
		P50 float64 `json:"p50"`
		P99 float64 `json:"p99"`
	} `json:"ratio"`
	RecordsPerSecond float64 `json:"records_per_second"`
	CPUSecondsPerGiB float64 `json:"cpu_seconds_per_gib,omitempty"` // of producer and reader together, as is the cost
	Cost
}

// trickleRecords is how many records a trickle has for each of the turns.
const trickleRecords = 50

// EndToEnd measures how long a record takes from append to delivery: at full load, at a trickle, and after a pause.
func EndToEnd(ctx context.Context, c Config) (result *Latencies, err error) {
	err = c.on(ctx, func(ctx context.Context, r *run) error {
		e, err := newEcho(ctx, r)
		if err != nil {
			return err
		}
		result = &Latencies{Bench: "e2e", Settings: c.Settings, PriceDate: price.Date}
		for _, s := range []struct {
			name string
			play func(context.Context) (turn, error)
		}{
			{"full load", e.load},
			{fmt.Sprintf("%g records/s", c.Rate), e.trickle},
			{fmt.Sprintf("after %v idle", c.Idle), e.pause},
		} {
			scene, err := e.scene(ctx, s.name, s.play)
			if err != nil {
				return errors.Join(fmt.Errorf("%s: %w", s.name, err), e.close(ctx))
			}
			result.Scenes = append(result.Scenes, scene)
		}
		return e.close(ctx)
	})
	return result, err
}

// echo is a producer, and a reader of the same log that another process might be.
type echo struct {
	*run
	producer *sdk.Producer
	source   *source
	ear      *ear
	far      *sdk.Log // the reader's
	heard    *meter   // what it uses
}

func newEcho(ctx context.Context, r *run) (*echo, error) {
	e := &echo{run: r, heard: &meter{}, source: &source{run: r, stamped: true}}
	var err error
	if e.far, err = r.Open(ctx, e.heard); err != nil {
		return nil, err
	}
	reader, err := e.far.NewReader(ctx, r.topic, sdk.From(sdk.Latest), sdk.RecycleRecords())
	if err != nil {
		return nil, errors.Join(err, e.far.Close())
	}
	e.ear = listen(ctx, reader, r.Env)
	e.source.tell = e.ear.fail
	if e.producer, err = r.producer(); err != nil {
		return nil, errors.Join(err, e.close(ctx))
	}
	return e, nil
}

func (e *echo) close(ctx context.Context) (err error) {
	if e.producer != nil {
		err = e.producer.Close(context.WithoutCancel(ctx))
	}
	return errors.Join(err, e.ear.close(), e.far.Close())
}

// scene plays the turns of a scene, each followed by the raw side's.
func (e *echo) scene(ctx context.Context, name string, play func(context.Context) (turn, error)) (Scene, error) {
	var all, raw turn
	for i := range e.Turns {
		e.Progress(fmt.Sprintf("turn %d of %d: %s", i+1, e.Turns, name))
		before := len(e.meter.put())
		t, err := play(ctx)
		if err != nil {
			return Scene{}, err
		}
		all.add(t)
		took, err := e.there(ctx, e.meter.put()[before:])
		if err != nil {
			return Scene{}, err
		}
		raw.took = append(raw.took, took...)
	}
	s := Scene{Name: name, Varve: percentiles(all.took), Raw: percentiles(raw.took), Cost: costOf(all.used, all.bytes)}
	s.Ratio.P50, s.Ratio.P99 = over(s.Varve.P50, s.Raw.P50), over(s.Varve.P99, s.Raw.P99)
	s.RecordsPerSecond = over(float64(all.records), all.elapsed.Seconds())
	s.CPUSecondsPerGiB = over(all.cpu.Seconds(), float64(all.bytes)/gib)
	return s, nil
}

// there puts objects of those sizes and gets each, and returns how long the two together took.
func (e *echo) there(ctx context.Context, sizes []object) ([]time.Duration, error) {
	const most = 32
	sizes = sizes[:min(most, len(sizes))]
	bodies := e.bodies(sizes)
	var done spans
	err := e.each(ctx, 1, len(sizes), len(sizes), 0, func(ctx context.Context, _, i int) error {
		name, start := e.mint(), e.Env.Mono()
		if err := e.store.Put(ctx, name, bodies(i)); err != nil {
			return err
		}
		if _, err := e.store.Get(ctx, name, 0, int64(sizes[i].size), nil); err != nil {
			return err
		}
		done.add(sizes[i].size, e.Env.Mono()-start)
		return nil
	})
	return done.took, errors.Join(err, e.remove(ctx))
}

// measured is measure with the reader's share in it: do returns the records that it sent, and they have been delivered when the time is taken.
func (e *echo) measured(ctx context.Context, do func() (int, error)) (turn, error) {
	records, used := 0, e.heard.read()
	t, err := e.measure(e.meter, func() (err error) {
		if records, err = do(); err != nil {
			return err
		}
		return e.ear.await(ctx, records)
	})
	t.used = t.used.plus(e.heard.read().minus(used))
	t.records, t.bytes, t.took = records, int64(records)*int64(e.RecordSize), e.ear.takeDelays()
	return t, err
}

func (e *echo) load(ctx context.Context) (turn, error) {
	return e.measured(ctx, func() (int, error) { return e.source.produce(ctx, e.producer, e.TurnTime) })
}

func (e *echo) trickle(ctx context.Context) (turn, error) {
	return e.measured(ctx, func() (int, error) {
		for i := range trickleRecords {
			if err := e.Env.Sleep(ctx, time.Duration(float64(time.Second)/e.Rate)); err != nil {
				return i, err
			}
			e.source.one(ctx, e.producer)
		}
		return trickleRecords, nil
	})
}

func (e *echo) pause(ctx context.Context) (turn, error) {
	if err := e.Env.Sleep(ctx, e.Idle); err != nil {
		return turn{}, err
	}
	return e.measured(ctx, func() (int, error) {
		e.source.one(ctx, e.producer)
		return 1, nil
	})
}
