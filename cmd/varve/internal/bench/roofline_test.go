package bench

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// BenchmarkRoofline reads the same segments out of a directory, and so out of the page cache, in ways that do ever more of what a reader has to:
//
//	raw        gets them whole, as Read's raw side does
//	sum        and takes the checksum of each
//	piece-sum  takes it of pieces of 256 KiB, which the processor's cache holds, of a file that is opened once
//	decode     has the pieces of an extent one behind another, and decodes its batches when they are there
//	records    and makes them the SDK's records
//
// each by one stream and by two, and then by a Reader. They take turns. A side's fastest turn is reported in MiB/s, and its cheapest in
// CPU-seconds per GiB.
func BenchmarkRoofline(b *testing.B) {
	l := newRoofline(b)
	ways := []struct {
		name string
		read func(*streamMemory, object) error
	}{{"raw", l.raw}, {"sum", l.sum}, {"piece-sum", l.pieceSum}, {"decode", l.decode}, {"records", l.records}}
	var sides []*rooflineSide
	for _, w := range ways {
		for _, streams := range []int{1, 2} {
			memory := make([]streamMemory, streams)
			sides = append(sides, &rooflineSide{name: fmt.Sprintf("%s-%d", w.name, streams), turn: func() error {
				var wg sync.WaitGroup
				errs := make([]error, streams)
				for s := range streams {
					wg.Go(func() {
						for i := s; i < len(l.segments) && errs[s] == nil; i += streams {
							errs[s] = w.read(&memory[s], l.segments[i])
						}
					})
				}
				wg.Wait()
				return errors.Join(errs...)
			}})
		}
	}
	for name, recycle := range map[string]bool{"reader-recycling": true, "reader-keeping": false} {
		sides = append(sides, &rooflineSide{name: name, turn: func() error {
			l.Recycle = recycle
			_, err := l.anew(b.Context(), func(log *sdk.Log, m *meter) (turn, error) { return l.readTurn(b.Context(), log, m) })
			return err
		}})
	}
	for b.Loop() {
		for _, s := range sides {
			used, start := cpuTime(), time.Now()
			if err := s.turn(); err != nil {
				b.Fatal(err)
			}
			s.wall, s.cpu = append(s.wall, time.Since(start)), append(s.cpu, cpuTime()-used)
		}
	}
	for _, s := range sides {
		b.ReportMetric(float64(l.size)/mib/least(s.wall).Seconds(), s.name+"-MiB/s")
		b.ReportMetric(least(s.cpu).Seconds()*1024*mib/float64(l.size), s.name+"-CPU-s/GiB")
	}
}

type rooflineSide struct {
	name      string
	turn      func() error
	wall, cpu []time.Duration
}

func least(d []time.Duration) time.Duration {
	shortest := time.Duration(math.MaxInt64)
	for _, x := range d {
		shortest = min(shortest, x)
	}
	return shortest
}

// roofline is a run on a directory with the segments of 256 MiB of records.
type roofline struct {
	*run
	folder   string // of the objects
	segments []object
	size     int
	extents  map[string][]segment.Extent // by object
}

// streamMemory is what one stream uses again for each segment.
type streamMemory struct {
	whole, piece, extent []byte
	decoder              segment.Decoder
	decoded              []segment.Record
	records              []sdk.Record
}

func newRoofline(b *testing.B) *roofline {
	path := filepath.Join(b.TempDir(), "log")
	c := Config{
		Open: func(ctx context.Context, hooks ...sdk.Hook) (*sdk.Log, error) {
			return sdk.Open(ctx, "file://"+path, sdk.WithDriver(embedded.Driver()), sdk.WithHooks(hooks...), sdk.WithCreateTable())
		},
		Env: env.System(), Progress: func(string) {},
		Settings: Settings{RecordSize: 1 << 10, SegmentBytes: 8 << 20, Partitions: 8, Compression: "none", Payload: Random, TurnBytes: 256 << 20, TurnTime: time.Hour},
	}
	l := &roofline{run: &run{Config: c, meter: &meter{}, topic: "roofline"}, folder: filepath.Join(path, "objects"), extents: map[string][]segment.Extent{}}
	var err error
	if l.log, err = c.Open(b.Context(), l.meter); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.log.Close() })
	l.store, l.payload = l.log.Backend().Store, newPayload(c.Settings, c.Env)
	if _, err := l.log.Admin().CreateTopic(b.Context(), sdk.NewTopic{Name: l.topic, Partitions: c.Partitions}); err != nil {
		b.Fatal(err)
	}
	if l.segments, err = l.fill(b.Context()); err != nil {
		b.Fatal(err)
	}
	for _, o := range l.segments {
		whole, err := l.store.Get(b.Context(), o.name, 0, int64(o.size), nil)
		if err != nil {
			b.Fatal(err)
		}
		f, err := segment.ParseSegment(whole)
		if err != nil {
			b.Fatal(err)
		}
		l.extents[o.name] = f.Extents
		l.size += o.size
	}
	return l
}

func (l *roofline) raw(m *streamMemory, o object) (err error) {
	m.whole, err = l.store.Get(context.Background(), o.name, 0, int64(o.size), m.whole)
	return err
}

func (l *roofline) sum(m *streamMemory, o object) error {
	err := l.raw(m, o)
	checksum.Add(uint64(crc32.Checksum(m.whole, castagnoli)))
	return err
}

const pieceBytes = 256 << 10

// pieces reads bytes [off, off+n) of a file in pieces, into what memory gives for each, and takes their checksum.
func pieces(f *os.File, off, n int64, memory func(at, n int64) []byte) error {
	for at := int64(0); at < n; at += pieceBytes {
		piece := memory(at, min(pieceBytes, n-at))
		if _, err := f.ReadAt(piece, off+at); err != nil {
			return err
		}
		checksum.Add(uint64(crc32.Checksum(piece, castagnoli)))
	}
	return nil
}

func (l *roofline) pieceSum(m *streamMemory, o object) error {
	f, err := os.Open(filepath.Join(l.folder, o.name))
	if err != nil {
		return err
	}
	defer f.Close()
	if m.piece == nil {
		m.piece = make([]byte, pieceBytes)
	}
	return pieces(f, 0, int64(o.size), func(_, n int64) []byte { return m.piece[:n] })
}

func (l *roofline) decode(m *streamMemory, o object) error { return l.decodeTo(m, o, func(int) {}) }

func (l *roofline) records(m *streamMemory, o object) error {
	return l.decodeTo(m, o, func(partition int) {
		m.records = m.records[:0]
		for i := range m.decoded {
			d := &m.decoded[i]
			m.records = append(m.records, sdk.Record{Topic: l.topic, Partition: partition, Offset: d.Offset, Timestamp: time.UnixMilli(d.Timestamp).UTC(),
				Key: d.Key, Value: d.Value, Headers: d.Headers})
		}
	})
}

// decodeTo decodes batch after batch, and calls each when one is decoded.
func (l *roofline) decodeTo(m *streamMemory, o object, each func(partition int)) error {
	f, err := os.Open(filepath.Join(l.folder, o.name))
	if err != nil {
		return err
	}
	defer f.Close()
	m.decoder.SumChecked, m.decoder.Reuse = true, true
	for _, e := range l.extents[o.name] {
		if int64(len(m.extent)) < e.Length {
			m.extent = make([]byte, e.Length)
		}
		if err := pieces(f, e.Offset, e.Length, func(at, n int64) []byte { return m.extent[at : at+n] }); err != nil {
			return err
		}
		for rest := m.extent[:e.Length]; len(rest) > 0; {
			var batch []byte
			if batch, rest, err = segment.SplitBatch(rest); err != nil {
				return err
			}
			if m.decoded, err = m.decoder.Decode(batch, 0, m.decoded[:0]); err != nil {
				return err
			}
			each(int(e.Partition))
		}
	}
	return nil
}
