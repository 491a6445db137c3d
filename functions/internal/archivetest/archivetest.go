// Package archivetest has a log for the tests of what rewrites the archive.
package archivetest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"hash/crc32"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/varvelog/varve/functions/internal/archive"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/dynamo"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
	"github.com/varvelog/varve/segment/store/mem"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// World is a topic whose partitions have nothing but an archive, which the test appends to row by row.
type World struct {
	T       testing.TB
	Env     env.Env
	Table   *dynamo.Table
	Raw     store.Store  // without faults
	Objects *fault.Store // with those of OnStore
	OnStore fault.Hook
	OnTable func(dynamodb.Call) dynamodb.Fault
	Topic   *metadata.Topic
	Records map[int][]segment.Record // all that was appended, by partition and offset
	Ages    map[int][]time.Time      // when
	Batch   int                      // records in a batch; 7 if 0
	ends    map[int]int64
	order   int64
}

// New makes a world whose topic has one lane.
func New(t testing.TB, partitions int, policy string) *World {
	return NewOn(t, mem.New(), partitions, policy)
}

// NewOn is New with objects in a store of one's own.
func NewOn(t testing.TB, objects store.Store, partitions int, policy string) *World {
	w := &World{T: t, Env: env.System(), Raw: objects, Records: map[int][]segment.Record{}, Ages: map[int][]time.Time{}, ends: map[int]int64{}}
	w.Objects = fault.New(w.Raw, w.Env, func(c fault.Call) fault.Fault {
		if w.OnStore != nil {
			return w.OnStore(c)
		}
		return fault.Fault{}
	})
	engine, err := dynamodb.New(dynamodb.Options{Hook: func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
		if w.OnTable != nil {
			return w.OnTable(c)
		}
		return dynamodb.Fault{}
	}})
	check(t, err)
	t.Cleanup(func() {
		w.Objects.Close()
		check(t, engine.Close())
	})
	w.Table, err = dynamo.Open(dynamo.Config{AWS: aws.Config{Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""), HTTPClient: engine}, TableName: "varve", Env: w.Env})
	check(t, err)
	check(t, w.Table.EnsureTable(t.Context()))
	_, err = w.Table.PutIdentity(t.Context(), metadata.Identity{Log: segment.LogID{1}, Version: metadata.FormatVersion, Bucket: "b", Prefix: "p"})
	check(t, err)
	w.Topic = &metadata.Topic{Name: "state", ID: "0123456789ab", Version: 1, Partitions: partitions, LaneWidth: partitions, Lanes: []metadata.LaneID{"lane"}, Partitioner: "murmur2",
		History: []metadata.Growth{{Version: 1, Partitions: partitions}}, Config: metadata.DefaultTopicConfig()}
	w.Topic.Config.CleanupPolicy = policy
	w.Topic.Classes = []segment.Class{w.Topic.Class()}
	check(t, w.Table.CreateTopic(t.Context(), w.Topic, segment.ID{}))
	return w
}

// FailAt makes one request of table or store fail, the n-th from now on, counted from 0: it is not performed, or it is and its answer is lost. It returns how
// many there were so far. Heal ends it.
func (w *World) FailAt(n int, applied bool) (requests *int) {
	requests = new(int)
	hit := func() bool { *requests++; return *requests == n+1 }
	w.OnStore = func(fault.Call) fault.Fault {
		switch {
		case !hit():
			return fault.Fault{}
		case applied:
			return fault.Fault{Kind: fault.LostAfter}
		}
		return fault.Fault{Kind: fault.LostBefore}
	}
	w.OnTable = func(dynamodb.Call) dynamodb.Fault {
		if !hit() {
			return dynamodb.Fault{}
		}
		return dynamodb.Fault{Skip: !applied, Reply: dynamodb.ErrConnectionLost}
	}
	return requests
}

// Heal ends what befalls store and table.
func (w *World) Heal() { w.OnStore, w.OnTable = nil, nil }

func (w *World) Services() archive.Services {
	return archive.Services{Env: w.Env, Table: w.Table, Objects: w.Objects}
}

// Append archives records as one row, of batches of a few.
func (w *World) Append(partition int, codec segment.Codec, records ...segment.Record) {
	w.T.Helper()
	ctx, lane := w.T.Context(), w.Topic.Lanes[0]
	base := w.ends[partition]
	now := time.UnixMilli(w.Env.Now().UnixMilli()).UTC()
	for i := range records {
		records[i].Offset = base + int64(i)
		records[i].Timestamp = base + int64(i) + 1
		w.Records[partition] = append(w.Records[partition], records[i])
		w.Ages[partition] = append(w.Ages[partition], now)
	}
	end := base + int64(len(records))
	w.ends[partition] = end
	id := archive.Mint(w.Env, w.Table, w.Topic.Class(), segment.ID{})
	rows, _, err := archive.Write(ctx, w.Env, w.Objects, archive.Segment{ID: id, Log: segment.LogID{1}, Topic: w.Topic.ID, Lane: lane, From: w.order, To: w.order + 8}, func(a *archive.Writer) error {
		if err := a.Begin(archive.Run{Slot: metadata.Slot(partition), Partition: partition, Base: base, End: end, RunMax: end, First: now, Last: now}); err != nil {
			return err
		}
		n := cmp.Or(w.Batch, 7)
		for at := 0; at < len(records); at += n {
			var b segment.BatchBuilder
			for i := at; i < min(at+n, len(records)); i++ {
				check(w.T, b.Append(&records[i]))
			}
			o := segment.DefaultBatchOptions()
			o.BaseOffset, o.Codec = base+int64(at), codec
			batch, _, err := b.Finish(nil, o)
			check(w.T, err)
			if err := a.Add(batch, archive.UnknownTime, base+int64(min(at+n, len(records)))); err != nil {
				return err
			}
		}
		return nil
	})
	check(w.T, err)
	p := &metadata.Publication{Lane: lane, ID: id, From: w.order, To: w.order + 8, Ends: map[metadata.Slot]int64{metadata.Slot(partition): end}, Put: rows}
	check(w.T, archive.Publish(ctx, w.Env, w.Table, w.Topic, p))
	w.order += 8
}

func (w *World) State() *metadata.State {
	w.T.Helper()
	s, err := w.Table.State(w.T.Context(), w.Topic.Lanes[0], metadata.Strong)
	check(w.T, err)
	return s
}

// summed checks that a row has the sum of its records, and with that of what has gone the sum of all that was appended.
func (w *World) summed(partition int, row *metadata.Row, left []segment.Record) {
	w.T.Helper()
	all := w.Records[partition][row.Base:row.End]
	if sum := Sum(left); !row.Summed || row.Sum != sum || sum.Plus(row.Gone) != Sum(all) {
		w.T.Fatalf("row of offsets [%d, %d): sum %v of %v, gone %v of %v", row.Base, row.End, row.Sum, sum, row.Gone, Sum(all).Minus(sum))
	}
}

// Sum is that of some records.
func Sum(records []segment.Record) (sum segment.Sum) {
	var s segment.Summer
	for i := range records {
		sum = sum.Plus(s.Sum(&records[i]))
	}
	return sum
}

// Aged is the store, with the records of a row's first batch a millisecond older, and its checksum right.
func (w *World) Aged(row *metadata.Row) *Bent {
	w.T.Helper()
	name := segment.ArchiveName(row.Topic, row.Segment)
	body, err := w.Raw.Get(w.T.Context(), name, 0, -1, nil)
	check(w.T, err)
	batch, _, err := segment.SplitBatch(body[row.Start:])
	check(w.T, err)
	Age(batch)
	return &Bent{w.Objects, name, body}
}

// Bent is a store in which an object is another.
type Bent struct {
	*fault.Store
	name string
	body []byte
}

func (b *Bent) Get(ctx context.Context, name string, off, n int64, dst []byte) ([]byte, error) {
	if name != b.name {
		return b.Store.Get(ctx, name, off, n, dst)
	}
	end, err := store.Range(off, n, int64(len(b.body)))
	if err != nil {
		return nil, store.Fail(store.OpGet, name, err)
	}
	return append(dst[:0], b.body[off:end]...), nil
}

// Age makes the records of a batch a millisecond older, and its checksum right.
func Age(batch []byte) {
	binary.BigEndian.PutUint64(batch[27:], binary.BigEndian.Uint64(batch[27:])-1)
	binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], crc32.MakeTable(crc32.Castagnoli)))
}

// Left is what a partition holds now. Rows must follow one another up to the end, and have the right sums.
func (w *World) Left(partition int) (records []segment.Record, rows []*metadata.Row) {
	w.T.Helper()
	rows, err := archive.Rows(w.T.Context(), w.Table, w.Topic, partition, w.State())
	check(w.T, err)
	for _, row := range rows {
		if row.RunMax != row.End {
			w.T.Fatalf("running maximum %d of the row that ends at %d, whose records have the offsets behind them for it", row.RunMax, row.End)
		}
		before := len(records)
		err := archive.Batches(w.T.Context(), w.Raw, row, func(batch []byte) (err error) {
			records, err = new(segment.Decoder).Decode(bytes.Clone(batch), 0, records)
			return err
		})
		check(w.T, err)
		w.summed(partition, row, records[before:])
		if row.Count > 0 && row.MaxTime != records[len(records)-1].Timestamp {
			w.T.Fatalf("latest time %d of the row at %d, %d records of which the last has %d", row.MaxTime, row.Base, len(records)-before, records[len(records)-1].Timestamp)
		}
	}
	return records, rows
}
