package sdk_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// BenchmarkProduce is the way of a record into a log in memory: accepted, encoded, compressed, put, committed, promised.
func BenchmarkProduce(b *testing.B) {
	for _, size := range []int{100, 1024} {
		for _, codec := range []segment.Codec{segment.None, segment.Zstd} {
			b.Run(fmt.Sprintf("%dB/%v", size, codec), func(b *testing.B) {
				w := newWorld(b)
				log := w.open()
				w.create(log, sdk.NewTopic{Name: "t"})
				p := w.producer(log, sdk.WithCompression(codec), sdk.WithBufferBytes(256<<20))
				records := make([]sdk.Record, 100_000)
				chance := rand.New(rand.NewPCG(1, 2))
				text := make([]byte, 1<<20)
				for i := range text {
					text[i] = "etaoin shrdlu{}:,0123456789"[chance.IntN(27)]
				}
				for i := range records {
					at := chance.IntN(len(text) - size)
					records[i] = sdk.Record{Topic: "t", Key: text[at : at+10], Value: text[at : at+size-10]}
				}
				failed := 0
				promise := func(_ *sdk.Record, err error) {
					if err != nil {
						failed++
					}
				}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					// Records may be used again: the promises of the last round are behind by then.
					if i == len(records) {
						w.must(p.Flush(ctx))
						i = 0
					}
					p.Produce(ctx, &records[i], promise)
					i++
				}
				w.must(p.Close(ctx))
				if failed > 0 {
					b.Fatalf("%d records failed", failed)
				}
			})
		}
	}
}
