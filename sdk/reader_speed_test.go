package sdk_test

import (
	"io"
	"testing"

	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

func BenchmarkReader(b *testing.B) {
	for name, opts := range map[string][]sdk.ReaderOption{"kept": nil, "recycled": {sdk.RecycleRecords()}} {
		b.Run(name, func(b *testing.B) {
			w := newBench(b)
			w.create("t", 8, 64)
			var batch []segment.Record
			for range 1000 {
				batch = append(batch, segment.Record{Value: make([]byte, 1024)})
			}
			for range 50 {
				parts := map[int][][]segment.Record{}
				for p := range 8 {
					parts[p] = [][]segment.Record{batch}
				}
				w.write("t", parts)
			}
			b.SetBytes(50 * 8 * 1000 * 1024)
			b.ReportAllocs()
			for b.Loop() {
				r, err := w.log.NewReader(w.ctx, "t", append(opts, sdk.To(sdk.Latest))...)
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				for {
					fetches, err := r.Poll(w.ctx)
					if err == io.EOF {
						break
					}
					if err != nil {
						b.Fatal(err)
					}
					for _, f := range fetches {
						n += len(f.Records)
					}
				}
				if n != 400_000 {
					b.Fatal(n)
				}
				r.Close()
			}
		})
	}
}
