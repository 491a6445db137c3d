package archive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/varvelog/varve/functions/internal/archive"
	"github.com/varvelog/varve/functions/internal/archivetest"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

const topicID segment.TopicID = "0123456789ab"

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// parts keeps one object, and notes the sizes of its parts.
type parts struct {
	name  string
	body  []byte
	sizes []int
	limit int   // of parts taken; 0 is none
	err   error // when the limit is reached
}

func (p *parts) PutParts(_ context.Context, name string, next func() ([]byte, error)) (int64, error) {
	p.name = name
	for {
		part, err := next()
		switch {
		case err == io.EOF:
			return int64(len(p.body)), nil
		case err != nil:
			return 0, err
		case p.limit > 0 && len(p.sizes) == p.limit:
			return 0, p.err
		}
		p.body, p.sizes = append(p.body, part...), append(p.sizes, len(part))
		clear(part) // it is the store's
	}
}

// batch has the records at the offsets, which may have gaps, each of size bytes.
func batch(t testing.TB, base int64, n, size int) []byte {
	t.Helper()
	b := new(segment.BatchBuilder)
	for i := range n {
		check(t, b.Append(&segment.Record{Timestamp: base + int64(i), Key: []byte{}, Value: bytes.Repeat([]byte{byte(base), byte(i)}, size/2)}))
	}
	o := segment.DefaultBatchOptions()
	o.BaseOffset = base
	body, _, err := b.Finish(nil, o)
	check(t, err)
	return body
}

var born = time.UnixMilli(1_790_000_000_000).UTC()

func spec(from, to int64) archive.Segment {
	return archive.Segment{ID: segment.NewID(born, 7, segment.Archived, 5, segment.ID{}), Log: segment.LogID{9}, Topic: topicID, Lane: "lane", From: from, To: to}
}

func run(slot metadata.Slot, base, end int64) archive.Run {
	return archive.Run{Slot: slot, Partition: 100 + int(slot), Base: base, End: end, RunMax: end, First: born, Last: born.Add(time.Second)}
}

// TestWrite writes a segment of several parts, and the object, its footer and the rows say the same.
func TestWrite(t *testing.T) {
	objects := &parts{}
	s := spec(8, 24)
	rows, size, err := archive.Write(t.Context(), env.System(), objects, s, func(w *archive.Writer) error {
		for slot := range metadata.Slot(4) {
			for part := range int64(2) {
				check(t, w.Begin(run(slot, part*1000, part*1000+1000)))
				if slot == 2 {
					continue // no record is left
				}
				for i := range int64(3) {
					if err := w.Add(batch(t, part*1000+i*100, 50, 20<<10), archive.UnknownTime, i); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
	check(t, err)
	f, err := new(segment.Decoder).Verify(objects.body)
	check(t, err)
	if size != int64(len(objects.body)) || objects.name != segment.ArchiveName(topicID, s.ID) {
		t.Fatalf("%d bytes in %q", size, objects.name)
	}
	if len(objects.sizes) < 3 {
		t.Fatalf("parts of %v", objects.sizes)
	}
	for i, n := range objects.sizes {
		if n > archive.PartBytes+2<<20 || n < archive.PartBytes && i+1 < len(objects.sizes) {
			t.Errorf("parts of %v", objects.sizes)
		}
	}
	if len(f.Orders) != 1 || f.Orders[0] != (segment.LaneOrders{Lane: "lane", First: 8, End: 24}) || f.Log != s.Log || f.Kind != segment.Archive {
		t.Errorf("footer %+v", f)
	}
	if len(rows) != 8 || len(f.Extents) != 6 {
		t.Fatalf("%d rows, %d extents", len(rows), len(f.Extents))
	}
	i := 0
	for _, r := range rows {
		check(t, r.Validate())
		if r.Partition == 102 {
			if r.Count != 0 {
				t.Errorf("%+v", r)
			}
			continue
		}
		e := f.Extents[i]
		i++
		if r.Start != e.Offset || r.Bytes != e.Length || r.Count != 150 || e.Count != 150 || r.Base != e.BaseOffset || r.End != e.EndOffset || r.MaxTime != 2 || r.Segment != s.ID || int32(r.Partition) != e.Partition {
			t.Errorf("row %+v, extent %+v", r, e)
		}
	}
}

// A segment without records is none.
func TestWriteNothing(t *testing.T) {
	objects := &parts{}
	rows, size, err := archive.Write(t.Context(), env.System(), objects, spec(0, 8), func(w *archive.Writer) error { return w.Begin(run(0, 0, 10)) })
	check(t, err)
	if size != 0 || objects.name != "" || len(rows) != 1 || rows[0].Count != 0 || !rows[0].Segment.IsZero() {
		t.Fatalf("%d bytes as %q, rows %+v", size, objects.name, rows)
	}
}

// What goes wrong in the fill, in the store or in the bytes is told as it is, and the fill has ended by then.
func TestWriteFails(t *testing.T) {
	broken := errors.New("broken")
	damaged := batch(t, 0, 3, 100)
	damaged[len(damaged)-1] ^= 1
	for name, c := range map[string]struct {
		objects *parts
		fill    func(w *archive.Writer) error
		want    error
	}{
		"fill, at once": {&parts{}, func(*archive.Writer) error { return broken }, broken},
		"fill, later": {&parts{}, func(w *archive.Writer) error {
			check(t, w.Begin(run(0, 0, 1000)))
			check(t, w.Add(batch(t, 0, 100, 100<<10), 0, 0))
			return broken
		}, broken},
		"store": {&parts{limit: 1, err: broken}, func(w *archive.Writer) error {
			check(t, w.Begin(run(0, 0, 1000)))
			for i := range int64(10) {
				if err := w.Add(batch(t, 10*i, 10, 1<<20), 0, 0); err != nil {
					return err
				}
			}
			t.Error("nobody told the fill to stop")
			return nil
		}, broken},
		"checksum": {&parts{}, func(w *archive.Writer) error {
			check(t, w.Begin(run(0, 0, 1000)))
			return w.Add(damaged, 0, 0)
		}, segment.ErrCorrupt},
		"offsets outside": {&parts{}, func(w *archive.Writer) error {
			check(t, w.Begin(run(0, 0, 2)))
			return w.Add(batch(t, 0, 3, 100), 0, 0)
		}, segment.ErrOrder},
		"offsets again": {&parts{}, func(w *archive.Writer) error {
			check(t, w.Begin(run(0, 0, 1000)))
			check(t, w.Add(batch(t, 0, 3, 100), 0, 0))
			return w.Add(batch(t, 2, 3, 100), 0, 0)
		}, segment.ErrOrder},
		"slots descend": {&parts{}, func(w *archive.Writer) error {
			check(t, w.Begin(run(1, 0, 1000)))
			check(t, w.Add(batch(t, 0, 3, 100), 0, 0))
			check(t, w.Begin(run(0, 0, 1000)))
			return w.Add(batch(t, 0, 3, 100), 0, 0)
		}, segment.ErrOrder},
		"run goes back": {&parts{}, func(w *archive.Writer) error {
			check(t, w.Begin(run(1, 5, 1000)))
			return w.Begin(run(1, 0, 10))
		}, segment.ErrOrder},
	} {
		ended := false
		_, _, err := archive.Write(t.Context(), env.System(), c.objects, spec(0, 8), func(w *archive.Writer) error {
			defer func() { ended = true }()
			return c.fill(w)
		})
		if !errors.Is(err, c.want) || !ended {
			t.Errorf("%s: ended %t, %v", name, ended, err)
		}
	}
}

func TestRebase(t *testing.T) {
	both := append(batch(t, 0, 3, 10), batch(t, 7, 2, 10)...)
	offsets, records, err := archive.Rebase(both, 100)
	check(t, err)
	if offsets != 9 || records != 5 {
		t.Fatalf("%d offsets, %d records", offsets, records)
	}
	var at []int64
	for rest := both; len(rest) > 0; {
		var b []byte
		b, rest, err = segment.SplitBatch(rest)
		check(t, err)
		got, err := new(segment.Decoder).Decode(b, 0, nil)
		check(t, err)
		for _, r := range got {
			at = append(at, r.Offset)
		}
	}
	if fmt.Sprint(at) != "[100 101 102 107 108]" {
		t.Fatal(at)
	}
	if _, _, err := archive.Rebase(both, 1<<63-50); !errors.Is(err, segment.ErrCorrupt) {
		t.Fatal(err)
	}
	if _, _, err := archive.Rebase(both[:len(both)-1], 0); !errors.Is(err, segment.ErrCorrupt) {
		t.Fatal(err)
	}
}

// Rows have the sum of what they hold. What was taken from a row, and left out, has to come to the row's sum.
func TestSums(t *testing.T) {
	sum := func(batches ...[]byte) (sum segment.Sum) {
		for _, b := range batches {
			records, err := new(segment.Decoder).Decode(b, 0, nil)
			check(t, err)
			sum = sum.Plus(archivetest.Sum(records))
		}
		return sum
	}
	one, two, three, gone := batch(t, 0, 3, 10), batch(t, 3, 4, 10), batch(t, 10, 2, 10), batch(t, 20, 5, 10)
	before := segment.Sum{Records: 7, Plain: 1, Weighted: 2}
	write := func(bend func(rows []metadata.Row)) ([]metadata.Row, error) {
		from := []metadata.Row{{Base: 0, End: 10, Summed: true, Sum: sum(one, two)}, {Base: 10, End: 20}, {Base: 20, End: 30, Summed: true, Sum: sum(gone)}, {Base: 30, End: 40, Summed: true, Sum: sum(batch(t, 30, 2, 10))}}
		bend(from)
		rows, _, err := archive.Write(t.Context(), env.System(), &parts{}, spec(0, 0), func(w *archive.Writer) error {
			r := run(0, 0, 30)
			r.Gone = before
			check(t, w.Begin(r))
			check(t, w.Add(one, archive.UnknownTime, 0))
			check(t, w.Add(two, archive.UnknownTime, 0))
			if err := w.Took(&from[0], segment.Sum{}); err != nil {
				return err
			}
			check(t, w.Add(three, archive.UnknownTime, 0))
			if err := w.Took(&from[1], segment.Sum{}); err != nil {
				return err
			}
			if err := w.Took(&from[2], sum(gone)); err != nil {
				return err
			}
			check(t, w.Begin(run(0, 30, 40)))
			check(t, w.Add(batch(t, 30, 2, 10), archive.UnknownTime, 0))
			return w.Took(&from[3], segment.Sum{})
		})
		return rows, err
	}
	rows, err := write(func([]metadata.Row) {})
	check(t, err)
	if r := rows[0]; !r.Summed || r.Sum != sum(one, two, three) || r.Gone != sum(gone).Plus(before) || rows[1].Sum != sum(batch(t, 30, 2, 10)) || rows[1].Gone != (segment.Sum{}) {
		t.Errorf("%+v", rows)
	}
	for i := range 4 {
		for name, bend := range map[string]func(s *segment.Sum){"records": func(s *segment.Sum) { s.Records++ }, "plain": func(s *segment.Sum) { s.Plain++ }, "weighted": func(s *segment.Sum) { s.Weighted++ }} {
			_, err := write(func(rows []metadata.Row) { bend(&rows[i].Sum) })
			var differs *archive.SumError
			if i == 1 && err != nil || i != 1 && (!errors.As(err, &differs) || differs.Row.Base != int64(10*i) || !errors.Is(err, metadata.ErrCorrupt)) {
				t.Errorf("row %d, %s: %v", i, name, err)
			}
		}
	}
}

// BenchmarkAdd is what compaction does to bytes: the rate, and CPU seconds for each GiB.
func BenchmarkAdd(b *testing.B) {
	for _, size := range []int{100, 1000} {
		for _, codec := range []segment.Codec{segment.None, segment.LZ4, segment.Zstd} {
			b.Run(fmt.Sprintf("%dB/%s", size, codec), func(b *testing.B) {
				builder := new(segment.BatchBuilder)
				for i := range 1 << 20 / size {
					check(b, builder.Append(&segment.Record{Timestamp: int64(i), Key: fmt.Appendf(nil, "key-%012d", i), Value: bytes.Repeat(fmt.Appendf(nil, "%d,", i), size)[:size-16]}))
				}
				o := segment.DefaultBatchOptions()
				o.Codec = codec
				body, _, err := builder.Finish(nil, o)
				check(b, err)
				b.SetBytes(1 << 20)
				_, _, err = archive.Write(b.Context(), env.System(), &discard{}, spec(0, 0), func(w *archive.Writer) error {
					check(b, w.Begin(run(0, 0, 1<<60)))
					for at := int64(0); b.Loop(); at += 1 << 20 {
						segment.SetBaseOffset(body, at)
						check(b, w.Add(body, archive.UnknownTime, 0))
					}
					return nil
				})
				check(b, err)
				b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)*1024, "s/GiB")
			})
		}
	}
}

type discard struct{}

func (discard) PutParts(_ context.Context, _ string, next func() ([]byte, error)) (n int64, err error) {
	for {
		part, err := next()
		if err == io.EOF {
			return n, nil
		} else if err != nil {
			return 0, err
		}
		n += int64(len(part))
	}
}
