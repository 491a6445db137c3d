package segment_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/segment"
)

// These tests let another implementation of the format judge ours: franz-go reads what varve writes, and
// varve reads what franz-go wrote and a broker of its making stored.

// kafkaCodecs has, for each codec, how franz-go asks for it.
var kafkaCodecs = map[segment.Codec][]kgo.CompressionCodec{
	segment.None:   {kgo.NoCompression()},
	segment.Gzip:   {kgo.GzipCompression(), kgo.GzipCompression().WithLevel(9)},
	segment.Snappy: {kgo.SnappyCompression()},
	segment.LZ4:    {kgo.Lz4Compression(), kgo.Lz4Compression().WithLevel(1 << 12)},
	segment.Zstd:   {kgo.ZstdCompression(), kgo.ZstdCompression().WithLevel(4)},
}

// sampleRecords have every combination of null, empty and some bytes for key, value and header value, and
// enough of each to be worth compressing.
func sampleRecords() []segment.Record {
	kinds := [][]byte{nil, {}, []byte(strings.Repeat("some bytes ", 30))}
	var records []segment.Record
	for i := range 27 {
		r := segment.Record{Offset: int64(i), Timestamp: 1_700_000_000_000 + int64(i%4), Key: kinds[i%3], Value: kinds[i/3%3]}
		if i%2 == 0 {
			r.Headers = []segment.Header{{Key: "twice", Value: kinds[i/9]}, {Key: "twice", Value: kinds[i%3]}, {Key: "", Value: nil}}
		}
		records = append(records, r)
	}
	return records
}

func writeBatch(t *testing.T, codec segment.Codec, records []segment.Record) []byte {
	t.Helper()
	var b segment.BatchBuilder
	for i := range records {
		if err := b.Append(&records[i]); err != nil {
			t.Fatal(err)
		}
	}
	o := segment.DefaultBatchOptions()
	o.Codec, o.BaseOffset = codec, records[0].Offset
	batch, _, err := b.Finish(nil, o)
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

// readByKafka is what franz-go makes of the bytes of a fetch answer.
func readByKafka(batches []byte, offset int64) ([]segment.Record, error) {
	answer := kmsg.NewFetchResponseTopicPartition()
	answer.RecordBatches = batches
	fetched, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: "t", Offset: offset}, &answer, kgo.DefaultDecompressor(), nil)
	var records []segment.Record
	for _, r := range fetched.Records {
		records = append(records, fromKafka(r))
	}
	return records, fetched.Err
}

func fromKafka(r *kgo.Record) segment.Record {
	out := segment.Record{Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, segment.Header(h))
	}
	return out
}

func toKafka(r *segment.Record) *kgo.Record {
	out := &kgo.Record{Topic: "t", Timestamp: time.UnixMilli(r.Timestamp), Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, kgo.RecordHeader(h))
	}
	return out
}

// same compares without the empty header slice that franz-go has where there are none.
func same(t *testing.T, got, want []segment.Record) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range got {
		if len(got[i].Headers) == 0 {
			got[i].Headers = nil
		}
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Fatalf("record %d: got %#v, want %#v", i, got[i], want[i])
		}
	}
}

func TestKafkaReadsOurBatches(t *testing.T) {
	records := sampleRecords()
	for codec := range kafkaCodecs {
		t.Run(codec.String(), func(t *testing.T) {
			first, second := writeBatch(t, codec, records[:20]), writeBatch(t, codec, records[20:])
			for _, b := range [][]byte{first, second} {
				if h, err := segment.ParseBatchHeader(b); err != nil || h.Codec() != codec {
					t.Fatalf("written with %v, %v", h.Codec(), err)
				}
			}
			got, err := readByKafka(append(first, second...), 0)
			if err != nil {
				t.Fatal(err)
			}
			same(t, got, records)
		})
	}
}

// TestKafkaRefusesFlippedBytes flips a bit in each byte of our batches. Both refuse it, but for the leader epoch,
// which is outside the checksum and changes no record.
func TestKafkaRefusesFlippedBytes(t *testing.T) {
	records := sampleRecords()
	for codec := range kafkaCodecs {
		batch := writeBatch(t, codec, records)
		for at := 12; at < len(batch); at++ { // behind base offset and length
			flipped := bytes.Clone(batch)
			flipped[at] ^= 1 << (at % 8)
			theirs, theirErr := readByKafka(flipped, 0)
			ours, ourErr := new(segment.Decoder).Decode(flipped, 0, nil)
			if at < 16 { // leader epoch: a broker's, outside the checksum
				if ourErr != nil || theirErr != nil || len(ours) != len(theirs) {
					t.Fatalf("%v, byte %d: %v, %v", codec, at, ourErr, theirErr)
				}
				continue
			}
			if ourErr == nil || theirErr == nil && len(theirs) > 0 {
				t.Fatalf("%v, byte %d: we say %v, franz-go says %v with %d records", codec, at, ourErr, theirErr, len(theirs))
			}
		}
	}
}

// TestKafkaProducedBatchesAreRead lets a client produce to a broker, with every codec, and reads what the broker
// stored: the client's own bytes.
func TestKafkaProducedBatchesAreRead(t *testing.T) {
	records := sampleRecords()
	for codec, ways := range kafkaCodecs {
		for i, way := range ways {
			t.Run(fmt.Sprintf("%v/%d", codec, i), func(t *testing.T) {
				stored := produce(t, way, records)
				var d segment.Decoder
				var got []segment.Record
				for len(stored) > 0 {
					batch, rest, err := segment.SplitBatch(stored)
					if err != nil {
						t.Fatal(err)
					}
					if h, err := segment.ParseBatchHeader(batch); err != nil || h.Codec() != codec || h.ProducerID < 0 || h.BaseSequence < 0 {
						t.Fatalf("%+v, %v", h, err)
					}
					if got, err = d.Decode(batch, 0, got); err != nil {
						t.Fatal(err)
					}
					stored = rest
				}
				for i := range got {
					got[i].Offset-- // offset 0 is the record that warms up the client
				}
				same(t, got, records)
			})
		}
	}
}

// TestKafkaTransactionsAreRefused reads a batch that a transactional producer wrote, and the marker behind it.
func TestKafkaTransactionsAreRefused(t *testing.T) {
	stored := produce(t, kgo.NoCompression(), sampleRecords(), kgo.TransactionalID("tx"))
	n := 0
	for ; len(stored) > 0; n++ {
		batch, rest, err := segment.SplitBatch(stored)
		if err != nil {
			t.Fatal(err)
		}
		h, _ := segment.ParseBatchHeader(batch)
		if _, err := new(segment.Decoder).Decode(batch, 0, nil); !errors.Is(err, segment.ErrTransactional) || h.Control() != (len(rest) == 0) {
			t.Errorf("batch %d, control %v: %v", n, h.Control(), err)
		}
		stored = rest
	}
	if n < 2 {
		t.Errorf("%d batches stored, expected the records and the marker", n)
	}
}

// produce sends the records to partition 0 of a broker on loopback, behind a record of its own at offset 0, and returns what a
// fetch of the partition gives for them. The first record makes the client learn the topic; the others are then one batch, large
// enough to be compressed.
func produce(t *testing.T, codec kgo.CompressionCodec, records []segment.Record, opts ...kgo.Opt) []byte {
	t.Helper()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(broker.ListenAddrs()...), kgo.ProducerBatchCompression(codec), kgo.ManualFlushing())...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if len(opts) > 0 {
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
	}
	for _, some := range [][]segment.Record{{{}}, records} {
		for i := range some {
			client.Produce(ctx, toKafka(&some[i]), func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		if err := client.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if len(opts) > 0 {
		if err := client.EndTransaction(ctx, kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
	}
	_, stored, err := segment.SplitBatch(fetch(ctx, t, client, broker))
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

func fetch(ctx context.Context, t *testing.T, client *kgo.Client, broker *kfake.Cluster) []byte {
	t.Helper()
	partition := kmsg.NewFetchRequestTopicPartition()
	partition.PartitionMaxBytes = 64 << 20
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = "t", broker.TopicInfo("t").TopicID
	topic.Partitions = append(topic.Partitions, partition)
	request := kmsg.NewPtrFetchRequest()
	request.MaxWaitMillis, request.MinBytes, request.MaxBytes = 1000, 1, 64<<20
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 || answer.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("fetch answered %+v", answer)
	}
	return answer.Topics[0].Partitions[0].RecordBatches
}
