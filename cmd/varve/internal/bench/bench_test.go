package bench

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
	"github.com/varvelog/varve/segment/store/mem"
)

// world is a log in memory whose objects can be looked at, and made to fail.
type world struct {
	t       *testing.T
	objects *mem.Store
	memory  *embedded.Memory
	config  Config

	mu    sync.Mutex
	calls []fault.Call
	fault func(fault.Call) error
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, objects: mem.New()}
	e := env.System()
	faulty := fault.New(w.objects, e, func(c fault.Call) fault.Fault {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calls = append(w.calls, c)
		if w.fault != nil {
			if err := w.fault(c); err != nil {
				return fault.Fault{Kind: fault.LostBefore, Err: err}
			}
		}
		return fault.Fault{}
	})
	t.Cleanup(func() { faulty.Close() })
	var err error
	if w.memory, err = embedded.NewMemory(embedded.MemoryOptions{Objects: faulty}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.memory.Close() })
	w.config = Config{
		Open: w.open, Env: e, Progress: func(string) {}, Rate: 1000, Idle: time.Millisecond,
		Settings: Settings{RecordSize: 1000, SegmentBytes: 64 << 10, Partitions: 3, Compression: "none", Payload: Random, Turns: 2, TurnBytes: 512 << 10, TurnTime: time.Minute},
	}
	return w
}

func (w *world) open(ctx context.Context, hooks ...sdk.Hook) (*sdk.Log, error) {
	return sdk.Open(ctx, "mem://", sdk.WithDriver(w.memory), sdk.WithHooks(hooks...))
}

// clean checks that nothing is left of a run.
func (w *world) clean() {
	w.t.Helper()
	page, err := w.objects.List(w.t.Context(), "r", "", 0)
	if err != nil || len(page.Objects) > 0 {
		w.t.Errorf("%d objects are left: %v, %v", len(page.Objects), page.Objects, err)
	}
	if left := w.topics(); len(left) > 0 {
		w.t.Errorf("topics are left: %q", left)
	}
}

func (w *world) topics() (names []string) {
	w.t.Helper()
	log, err := w.open(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	list, err := log.Admin().ListTopics(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, t := range list {
		names = append(names, t.Name)
	}
	return names
}

func TestProduce(t *testing.T) {
	w := newWorld(t)
	r, err := Produce(t.Context(), w.config)
	if err != nil {
		t.Fatal(err)
	}
	w.clean()
	w.checkSides(r)
	if r.Bench != "produce" || r.Varve.TableRequests == 0 || r.Varve.Latency.Count < 2*512/64 {
		t.Errorf("%+v", r)
	}
}

// Raw objects have the sizes that are asked for and names of their own, and are gone afterwards.
func TestPutRaw(t *testing.T) {
	w := newWorld(t)
	sizes := []object{{size: 1000}, {size: 70_000}, {size: 1000}, {size: 0}, {size: 20 << 20}}
	err := w.config.on(t.Context(), func(ctx context.Context, r *run) error {
		for range 2 {
			if turn, err := r.putRaw(ctx, 4, sizes, 0); err != nil || turn.bytes != 72_000+20<<20 || turn.objects != 5 || turn.used.Puts != 5 {
				t.Errorf("%+v, %v", turn, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.clean()
	put, deleted := map[string]int{}, 0
	var bytes []int
	for _, c := range w.calls {
		switch {
		case c.Op == store.OpPut && strings.HasPrefix(c.Name, "r1d/intake/"):
			put[c.Name]++
			bytes = append(bytes, c.Bytes)
		case c.Op == store.OpDelete:
			deleted++
		}
	}
	slices.Sort(bytes)
	if want := []int{0, 0, 1000, 1000, 1000, 1000, 70_000, 70_000, 20 << 20, 20 << 20}; !slices.Equal(bytes, want) || len(put) != len(want) || deleted != 2 {
		t.Errorf("objects of %v bytes under %d names, %d deletes", bytes, len(put), deleted)
	}
}

func TestRead(t *testing.T) {
	for _, recycle := range []bool{false, true} {
		w := newWorld(t)
		w.config.Recycle = recycle
		w.config.Payload, w.config.Compression = Text, "zstd"
		r, err := Read(t.Context(), w.config)
		if err != nil {
			t.Fatal(err)
		}
		w.clean()
		w.checkSides(r)
		if r.Bench != "read" || r.Varve.Latency.Count != r.Varve.Objects {
			t.Errorf("%+v", r)
		}
	}
}

// small is a driver whose logs keep segments of up to so many bytes in the table.
type small struct {
	sdk.Driver
	bytes int
}

func (s small) Open(ctx context.Context, u *url.URL, o sdk.DriverOptions) (sdk.Backend, error) {
	b, err := s.Driver.Open(ctx, u, o)
	b.SmallSegments = s.bytes
	return b, err
}

// What went to the table as a small segment is no object: it is neither got by raw sides nor deleted.
func TestSmallSegmentsAreNoObjects(t *testing.T) {
	w := newWorld(t)
	limit := 0
	w.config.Open = func(ctx context.Context, hooks ...sdk.Hook) (*sdk.Log, error) {
		return sdk.Open(ctx, "mem://", sdk.WithDriver(small{w.memory, limit}), sdk.WithHooks(hooks...))
	}
	// Segments are cut at 65,536 bytes. Six blocks of 64 records come so fast that segments are filled up, or so slowly that each block is cut by itself: either way some
	// segments are full, with 43 or 44 records, and at least one has what is left of a number of blocks, 42 or fewer.
	w.config.RecordSize, limit = 1500, 64_200
	err := w.config.on(t.Context(), func(ctx context.Context, r *run) error {
		segments, err := r.fill(ctx)
		if all := r.meter.put(); err != nil || len(segments) == 0 || len(segments) >= len(all) {
			t.Errorf("%d of %d segments are objects, %v", len(segments), len(all), err)
		}
		_, err = r.getRaw(ctx, r.store, r.meter, 1, false, segments, 0)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	w.clean()
	limit = 256 << 10
	if _, err := Read(t.Context(), w.config); !errors.Is(err, sdk.ErrInvalid) || !strings.Contains(err.Error(), "524288 bytes went to the table") {
		t.Errorf("all in the table: %v", err)
	}
	w.clean()
}

// checkSides checks what does not depend on the machine.
func (w *world) checkSides(r *Result) {
	w.t.Helper()
	if r.Bench == "read" && (len(r.Checked) != 3 || r.RatioChecked.Best <= 0 || r.RatioChecked.Median <= 0) || r.Bench == "produce" && len(r.Checked) != 0 {
		w.t.Errorf("with checksums %+v, ratio %v", r.Checked, r.RatioChecked)
	}
	if len(r.Raw) != 3 || r.Ratio.Best <= 0 || r.Ratio.Median <= 0 || r.Limit == 0 || r.ObjectBytes == 0 || r.Varve.RecordsPerSecond <= 0 {
		w.t.Errorf("%+v", r)
	}
	for i, s := range append(r.Raw, r.Varve) {
		if i < 3 && (s.Streams != streams[i] || s.TableRequests != 0 || s.Objects == 0 || s.Latency.Count != s.Objects) {
			w.t.Errorf("raw side %d: %+v", i, s)
		}
		if s.BytesPerSecond.Best <= 0 || s.StoreRequests == 0 || s.Dollars <= 0 || s.Latency.P50 <= 0 {
			w.t.Errorf("side %d: %+v", i, s)
		}
	}
}

func TestEndToEnd(t *testing.T) {
	w := newWorld(t)
	r, err := EndToEnd(t.Context(), w.config)
	if err != nil {
		t.Fatal(err)
	}
	w.clean()
	var scenes []string
	for _, s := range r.Scenes {
		scenes = append(scenes, fmt.Sprint(s.Name, " ", s.Varve.Count, " ", s.Raw.Count > 0))
		if s.Varve.P50 <= 0 || s.Raw.P50 <= 0 || s.Ratio.P50 <= 0 || s.StoreRequests == 0 || s.TableRequests == 0 {
			t.Errorf("%+v", s)
		}
	}
	// A block has 64 records, the turn's last one is whole.
	if got := strings.Join(scenes, ", "); got != "full load 18 true, 1000 records/s 100 true, after 1ms idle 2 true" {
		t.Error(got)
	}
}

var errBroken = errors.New("broken")

// What cannot be removed is named, objects and topic.
func TestLeftoversAreNamed(t *testing.T) {
	w := newWorld(t)
	w.fault = func(c fault.Call) error {
		if c.Op == store.OpDelete {
			return errBroken
		}
		return nil
	}
	_, err := Read(t.Context(), w.config)
	if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "r1d/intake/") {
		t.Errorf("%v", err)
	}
	if left := w.topics(); len(left) > 0 {
		t.Errorf("topics are left: %q", left)
	}
}

// A run that fails, or is interrupted, cleans up.
func TestFailureCleansUp(t *testing.T) {
	for name, measure := range map[string]func(context.Context, Config) error{
		"produce": func(ctx context.Context, c Config) error { _, err := Produce(ctx, c); return err },
		"read":    func(ctx context.Context, c Config) error { _, err := Read(ctx, c); return err },
		"replay":  func(ctx context.Context, c Config) error { _, err := Replay(ctx, c); return err },
		"e2e":     func(ctx context.Context, c Config) error { _, err := EndToEnd(ctx, c); return err },
	} {
		for _, n := range []int{5, 20, 30} {
			t.Run(fmt.Sprint(name, " interrupted at call ", n), func(t *testing.T) {
				w := newWorld(t)
				ctx, cancel := context.WithCancelCause(t.Context())
				w.fault = func(fault.Call) error {
					if len(w.calls) == n {
						cancel(errBroken)
					}
					return nil
				}
				if err := measure(ctx, w.config); !errors.Is(err, errBroken) && !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
				w.fault = nil
				w.clean()
			})
		}
	}
}
