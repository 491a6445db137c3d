package erase_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/clean"
	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/erase"
	"github.com/varvelog/varve/functions/sweep"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store/mem"
)

// secret is in every record that is to be erased, and in no other.
const secret = "what nobody may read any more"

// bucket is a log in virtual time whose objects are looked through.
type bucket struct {
	*testing.T
	objects *mem.Store
	log     *sdk.Log
	backend sdk.Backend
	first   func() // of what a run archives
}

const partitions = 4

func newBucket(t *testing.T, policy string) *bucket {
	b := &bucket{T: t, objects: mem.New()}
	memory, err := embedded.NewMemory(embedded.MemoryOptions{Objects: b.objects})
	check(t, err)
	t.Cleanup(func() { memory.Close() })
	b.log, err = sdk.Open(t.Context(), "mem://", sdk.WithDriver(memory), sdk.WithCreateTable())
	check(t, err)
	b.backend = b.log.Backend()
	_, err = b.log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: "t", Partitions: partitions, LaneWidth: 2 * partitions, Config: map[string]string{"cleanup.policy": policy}})
	check(t, err)
	return b
}

// append appends a record to each partition given, all in one object, and archives them. That in partition `with` is of the key that is to be erased.
func (b *bucket) append(with int, value string, to ...int) {
	b.Helper()
	p, err := b.log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()), sdk.WithCompression(segment.None))
	check(b, err)
	var records []*sdk.Record
	for _, i := range to {
		r := &sdk.Record{Topic: "t", Partition: i, Key: fmt.Append(nil, "key", i), Value: fmt.Append(nil, "value", i, time.Now())}
		if i == with {
			r.Key, r.Value = []byte("gone"), []byte(value)
		}
		records = append(records, r)
	}
	check(b, p.AppendAtomic(b.Context(), records...))
	check(b, p.Close(b.Context()))
	check(b, b.archive(b.Context(), "t"))
}

func (b *bucket) archive(ctx context.Context, topic string) error {
	if first := b.first; first != nil {
		b.first = nil
		first()
	}
	o := compact.Options{All: true, Env: env.System()}
	if topic != "" {
		o.Topics = []string{topic}
	}
	_, err := compact.Run(ctx, b.backend.Table, b.backend.Store, o)
	return err
}

// holding counts the objects in which the secret is.
func (b *bucket) holding() (n int) {
	b.Helper()
	page, err := b.objects.List(b.Context(), "", "", 0)
	check(b, err)
	for _, o := range page.Objects {
		body, err := b.objects.Get(b.Context(), o.Name, 0, -1, nil)
		check(b, err)
		if bytes.Contains(body, []byte(secret)) {
			n++
		}
	}
	return n
}

// keys are those of all records that a reader finds.
func (b *bucket) keys() map[string]int {
	b.Helper()
	r, err := b.log.NewReader(b.Context(), "t", sdk.To(sdk.Latest))
	check(b, err)
	defer r.Close()
	keys := map[string]int{}
	for {
		fetches, err := r.Poll(b.Context())
		if errors.Is(err, io.EOF) {
			return keys
		}
		check(b, err)
		for _, f := range fetches {
			for i := range f.Records {
				keys[string(f.Records[i].Key)]++
			}
		}
	}
}

// TestObjectsAreGoneByTheDate: after the date that the proof gives, no object has a byte of what was erased, though other partitions' runs lay beside it in the archive's
// segments, and though key compaction and merges have written a later version of the run before.
func TestObjectsAreGoneByTheDate(t *testing.T) {
	for name, c := range map[string]struct {
		policy string
		make   func(b *bucket)
		rows   int64 // that hold it
	}{
		"beside other partitions": {"delete", func(b *bucket) { b.append(1, secret, 0, 1, 2, 3) }, 1},
		"of several segments": {"delete", func(b *bucket) {
			for i := range 3 {
				b.append(i, secret, 0, 1, 2, 3)
				time.Sleep(12 * time.Hour)
			}
		}, 3},
		"beside a partition that comes meanwhile": {"delete", func(b *bucket) {
			b.append(1, secret, 1)
			b.first = func() {
				_, err := b.log.Admin().AlterTopic(b.Context(), "t", sdk.Alteration{Partitions: 2*partitions + 1, MoveKeys: true})
				check(b, err)
				b.append(2, secret, 2, partitions)
			}
		}, 2},
		"in a run that no row names any more": {"compact", func(b *bucket) {
			b.append(1, secret, 0, 1, 2, 3)
			time.Sleep(time.Minute)
			b.append(1, "harmless", 1)
			_, err := clean.Run(b.Context(), b.backend.Table, b.backend.Store, clean.Options{Dirty: 1e-6, Env: env.System()})
			check(b, err)
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBucket(t, c.policy)
				c.make(b)
				before := b.keys()
				o := erase.Options{Topic: "t", Match: match, Env: env.System(), Archive: b.archive}
				report, err := erase.Run(t.Context(), b.backend.Table, b.backend.Store, o)
				check(t, err)
				if report.Rewritten != c.rows {
					t.Errorf("%d extents held it, want %d", report.Rewritten, c.rows)
				}
				time.Sleep(time.Until(report.Gone.Objects) + time.Second)
				if b.holding() == 0 {
					t.Error("it was gone before the sweep")
				}
				_, err = sweep.Run(t.Context(), b.backend.Table, b.backend.Store, sweep.Options{Env: env.System()})
				check(t, err)
				if n := b.holding(); n > 0 {
					t.Errorf("%d objects hold it after the date and a sweep", n)
				}
				delete(before, "gone")
				after := b.keys()
				for key, n := range before {
					if after[key] != n {
						t.Errorf("%d records of %s are left of %d", after[key], key, n)
					}
				}
				if after["gone"] > 0 {
					t.Errorf("%v are left", after)
				}
			})
		})
	}
}
