package retain_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/retain"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/topics"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store/mem"
)

// live is a log in virtual time, with producers of two processes, and a bucket whose rules delete.
type live struct {
	t       *testing.T
	objects *mem.Store
	log     *sdk.Log
	backend sdk.Backend
	writers []*sdk.Producer
	sent    map[int][]time.Time // by partition: when the record at each offset was sent
	mayGo   map[int]int64       // offsets below it have expired by the retention in effect at some time
	deleted int
}

func newLive(t *testing.T, partitions, width int, settings ...string) *live {
	l := &live{t: t, objects: mem.New(), sent: map[int][]time.Time{}, mayGo: map[int]int64{}}
	memory, err := embedded.NewMemory(embedded.MemoryOptions{Objects: l.objects})
	check(t, err)
	t.Cleanup(func() { memory.Close() })
	for range 2 {
		log, err := sdk.Open(t.Context(), "mem://", sdk.WithDriver(memory), sdk.WithCreateTable())
		check(t, err)
		p, err := log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()))
		check(t, err)
		l.log, l.writers = log, append(l.writers, p)
	}
	l.backend = l.log.Backend()
	_, err = l.log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: "t", Partitions: partitions, LaneWidth: width, Config: config(settings)})
	check(t, err)
	return l
}

// produce has each writer send a record to each partition; a writer knows the topic as it was when it was last refused.
func (l *live) produce(partitions int) {
	l.t.Helper()
	for _, w := range l.writers {
		for p := range partitions {
			r := w.ProduceSync(l.t.Context(), &sdk.Record{Topic: "t", Partition: p, Value: fmt.Append(nil, len(l.sent[p]))})
			check(l.t, r.Err())
			if got := r[0].Record.Offset; got != int64(len(l.sent[p])) {
				l.t.Fatalf("partition %d: offset %d, not %d", p, got, len(l.sent[p]))
			}
			l.sent[p] = append(l.sent[p], time.Now())
		}
	}
}

// rules deletes all that the rules of classes may delete by now.
func (l *live) rules() {
	l.t.Helper()
	for after, more := "", true; more; {
		page, err := l.objects.List(l.t.Context(), "", after, 0)
		check(l.t, err)
		for _, o := range page.Objects {
			name, err := segment.ParseName(o.Name)
			if err != nil || name.ID.Class() == segment.Keep || time.Now().Before(metadata.RuleDue(o.Modified, name.ID.Class())) {
				continue
			}
			check(l.t, l.objects.Delete(l.t.Context(), o.Name))
			l.deleted++
		}
		after, more = page.Last, page.More
	}
}

func (l *live) row() *metadata.Topic {
	l.t.Helper()
	row, err := l.backend.Table.Topic(l.t.Context(), "t")
	check(l.t, err)
	return row
}

// retain runs. What has expired by the retention that is in effect then may go.
func (l *live) retain() {
	l.t.Helper()
	keep := l.row().EffectiveRetention().Time
	for p, sent := range l.sent {
		for at := l.mayGo[p]; at < int64(len(sent)) && time.Since(sent[at]) > keep; at++ {
			l.mayGo[p] = at + 1
		}
	}
	_, err := retain.Run(l.t.Context(), l.backend.Table, retain.Options{Env: env.System()})
	check(l.t, err)
}

// read reads all that is retained. Nothing may be missing, and all records that never were older than the retention in effect must be there.
func (l *live) read() (oldest time.Duration) {
	l.t.Helper()
	r, err := l.log.NewReader(l.t.Context(), "t", sdk.To(sdk.Latest))
	check(l.t, err)
	defer r.Close()
	next := map[int]int64{}
	for {
		fetches, err := r.Poll(l.t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		check(l.t, err)
		for _, f := range fetches {
			for _, x := range f.Records {
				want, begun := next[f.Partition]
				age := time.Since(l.sent[f.Partition][x.Offset])
				if !begun && x.Offset > l.mayGo[f.Partition] {
					l.t.Fatalf("partition %d begins at %d: only those to %d have ever expired", f.Partition, x.Offset, l.mayGo[f.Partition])
				}
				if begun && x.Offset != want || string(x.Value) != fmt.Sprint(x.Offset) {
					l.t.Fatalf("partition %d: offset %d with %q after %d", f.Partition, x.Offset, x.Value, want-1)
				}
				next[f.Partition], oldest = x.Offset+1, max(oldest, age)
			}
		}
	}
	for p, sent := range l.sent {
		if next[p] != int64(len(sent)) {
			l.t.Fatalf("partition %d: read to %d of %d", p, next[p], len(sent))
		}
	}
	return oldest
}

// TestBR17_RetentionIsLengthenedUnderWriters has writers that know the old class, a change that dies half-way, compaction, retention and the rules of classes at
// work on a log whose retention goes from 3 days to 12. Whatever it is that holds, it is kept; and when the longer holds, records get that old. Without compaction
// what is of the old class expires by it, with compaction it is moved.
func TestBR17_RetentionIsLengthenedUnderWriters(t *testing.T) {
	for _, compacts := range []bool{true, false}[:max(1, 2/stride)] {
		t.Run(fmt.Sprintf("compacts %v", compacts), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const partitions, old, long = 2, 3 * day, 12 * day
				const pace = 4 * min(stride, 2) // hours
				l := newLive(t, partitions, 1, metadata.RetentionMs, ms(old))
				system := env.System()
				start := time.Now()
				var holds time.Duration // since the change, until the longer one held
				oldest, changed := time.Duration(0), time.Time{}
				for hour := 0; hour < 24*24; hour += pace {
					l.produce(partitions)
					if hour == 24*4+8 {
						row := l.row()
						_, err := topics.New(&dying{l.backend.Table, 1}, system).Alter(t.Context(), "t", topics.Change{Set: config([]string{metadata.RetentionMs, ms(long)})})
						if !errors.Is(err, errDied) || row.Version != 1 {
							t.Fatal(err)
						}
						changed = time.Now()
						l.produce(partitions) // to a lane of each class
					}
					if compacts {
						_, err := compact.Run(t.Context(), l.backend.Table, l.backend.Store, compact.Options{Env: system})
						check(t, err)
					}
					if hour%8 == 0 {
						l.retain()
					}
					l.rules()
					if got := l.row(); holds == 0 && !changed.IsZero() && got.EffectiveRetention().Time == long {
						holds = time.Since(changed)
					}
					if hour%12 == 0 {
						oldest = l.read()
					}
					time.Sleep(pace * time.Hour)
				}
				if oldest < long-8*time.Hour || oldest > long+day || l.deleted == 0 || !slices.Equal(l.row().Stored, []segment.Class{12}) {
					t.Errorf("in the end the oldest is %v old, %d objects were deleted, stored %v", oldest, l.deleted, l.row().Stored)
				}
				if compacts && holds > day || !compacts && (holds < old || holds > old+day) || holds == 0 {
					t.Errorf("the longer retention held %v after the change", holds)
				}
				t.Logf("%v: %d records, %d objects deleted by rules, the longer retention held %v after the change", time.Since(start), len(l.sent[0])*partitions, l.deleted, holds)
			})
		})
	}
}

// TestBR08_RetentionOfEverything: when all has expired the end stays, also for a process that knows nothing, and the next record goes on from there.
func TestBR08_RetentionOfEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLive(t, 1, 1, metadata.RetentionMs, ms(time.Hour))
		for range 10 {
			l.produce(1)
		}
		time.Sleep(2 * time.Hour)
		l.retain()
		offsets, err := l.log.Admin().Offsets(t.Context(), "t")
		check(t, err)
		if offsets[0].Start != 20 || offsets[0].End != 20 {
			t.Errorf("%+v", offsets)
		}
		l.produce(1) // which checks its offset
		if l.read(); len(l.sent[0]) != 22 {
			t.Error(len(l.sent[0]))
		}
	})
}

// TestBR36_TimestampsDoNotMatter: records of the year 2100, of 1970 and without a time go by when they were appended.
func TestBR36_TimestampsDoNotMatter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLive(t, 4, 4)
		for p, at := range []time.Time{time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), time.UnixMilli(0), {}, time.Now().AddDate(0, 0, -6)} {
			check(t, l.writers[0].ProduceSync(t.Context(), &sdk.Record{Topic: "t", Partition: p, Timestamp: at, Value: []byte("v")}).Err())
		}
		for _, c := range []struct {
			wait time.Duration
			want int64
		}{{7*day - 5*time.Second, 0}, {10 * time.Second, 1}} {
			time.Sleep(c.wait)
			l.retain()
			offsets, err := l.log.Admin().Offsets(t.Context(), "t")
			check(t, err)
			for _, o := range offsets {
				if o.Start != c.want {
					t.Errorf("%v: partition %d starts at %d, want %d", c.wait, o.Partition, o.Start, c.want)
				}
			}
		}
	})
}

// TestBR17_AGroupFallsBehindRetention: a member whose committed offset has expired goes on at the log start, whatever its start policy for the first time is, and
// hears once what it has lost.
func TestBR17_AGroupFallsBehindRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLive(t, 1, 1)
		join := func(h sdk.Hook) *sdk.Consumer {
			log, err := sdk.Open(t.Context(), "mem://", sdk.WithDriver(sameBackend{l.backend}), sdk.WithHooks(h))
			check(t, err)
			c, err := log.NewConsumer(t.Context(), "g", []string{"t"}, sdk.Reading(sdk.WithWait(time.Second)))
			check(t, err)
			return c
		}
		l.produce(1)
		take := func(c *sdk.Consumer) (offsets []int64) {
			for range 30 {
				fetches, err := c.Poll(t.Context())
				check(t, err)
				for _, f := range fetches {
					for _, r := range f.Records {
						offsets = append(offsets, r.Offset)
					}
				}
			}
			return offsets
		}
		c := join(new(resets))
		if got := take(c); len(got) != 2 {
			t.Fatalf("%v", got)
		}
		check(t, c.Close(t.Context()))
		for range 20 {
			time.Sleep(12 * time.Hour)
			l.produce(1)
		}
		l.retain()
		l.rules()
		offsets, err := l.log.Admin().Offsets(t.Context(), "t")
		check(t, err)
		start := offsets[0].Start
		lost := new(resets)
		c = join(lost)
		got := take(c)
		if len(got) == 0 || got[0] != start || got[len(got)-1] != 41 || start < 4 {
			t.Errorf("log start %d, read %v", start, got)
		}
		if want := []sdk.ResetEvent{{Topic: "t", From: 2, To: start, Position: start}}; !slices.Equal(lost.events, want) {
			t.Errorf("told of %+v, want %+v", lost.events, want)
		}
		check(t, c.Close(t.Context()))
	})
}

// sameBackend opens another view of a log that is open.
type sameBackend struct{ sdk.Backend }

func (sameBackend) Schemes() []string { return []string{"mem"} }
func (b sameBackend) Open(context.Context, *url.URL, sdk.DriverOptions) (sdk.Backend, error) {
	b.Close = nil
	return b.Backend, nil
}

// resets are the ranges that a reader was told to have lost.
type resets struct{ events []sdk.ResetEvent }

func (r *resets) OnReset(e sdk.ResetEvent) { r.events = append(r.events, e) }
