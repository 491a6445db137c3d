package sdk_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// extent is bytes of a partition that nobody has checked, and how many records the index says that they hold.
type extent struct {
	partition int
	count     int32
	bytes     []byte
}

// writeRaw appends a segment of one lane as an evil or broken writer might.
func (b *bench) writeRaw(topic string, extents ...extent) (name string) {
	t := b.topics[topic]
	b.minted++
	id := segment.NewID(time.Now(), t.Class(), segment.InBucket, b.minted, segment.ID{})
	object := make([]byte, 16)
	e := metadata.Entry{ID: id, Start: 16}
	for _, x := range extents {
		object = append(object, x.bytes...)
		e.Slots = append(e.Slots, metadata.SlotEntry{Slot: t.Place(x.partition).Slot, Count: x.count, Bytes: int32(len(x.bytes)), MaxTime: latest(x.bytes, id)})
	}
	check(b.t, b.raw.Put(b.ctx, segment.IntakeName(id), object))
	b.append(t.Place(extents[0].partition).Lane, e)
	return segment.IntakeName(id)
}

// latest is what the index says of a batch's time.
func latest(batch []byte, id segment.ID) int64 {
	if len(batch) < 43 {
		return 0
	}
	return metadata.IndexTime(int64(binary.BigEndian.Uint64(batch[35:])), id)
}

// craft is a batch with a right checksum over whatever records it is given.
func craft(base int64, count int32, codec segment.Codec, records []byte) []byte {
	b := make([]byte, 61, 61+len(records))
	b = append(b, records...)
	binary.BigEndian.PutUint64(b, uint64(base))
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	b[16] = 2
	binary.BigEndian.PutUint16(b[21:], uint16(codec))
	binary.BigEndian.PutUint32(b[23:], uint32(max(count, 1)-1))
	binary.BigEndian.PutUint64(b[43:], ^uint64(0))
	binary.BigEndian.PutUint16(b[51:], ^uint16(0))
	binary.BigEndian.PutUint32(b[53:], ^uint32(0))
	binary.BigEndian.PutUint32(b[57:], uint32(count))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// record is the bytes of one record with the value, its header count and its key length as given.
func record(value []byte, keyLength, headers int64) []byte {
	body := binary.AppendVarint(append(make([]byte, 0, len(value)+32), 0, 0, 0), keyLength)
	body = binary.AppendVarint(body, int64(len(value)))
	body = append(body, value...)
	body = binary.AppendVarint(body, headers)
	return append(binary.AppendVarint(make([]byte, 0, len(body)+binary.MaxVarintLen64), int64(len(body))), body...)
}

func squeeze(t *testing.T, b []byte) []byte {
	w, err := zstd.NewWriter(nil)
	check(t, err)
	defer w.Close()
	return w.EncodeAll(b, nil)
}

const recordLimit = 64 << 20 // segment.DefaultLimits().RecordBytes

// exactly is one record whose bytes are n long, where n is so large that each of its lengths takes four of them.
func exactly(n int) []byte {
	b := append(binary.AppendVarint(make([]byte, 0, n), int64(n-4)), 0, 0, 0)
	b = binary.AppendVarint(b, -1)
	return binary.AppendVarint(b, int64(n-13))[:n] // the value is zeros, and so is the number of headers
}

// damages are batches that cannot be read, by what is wrong with them, and the condition that is expected.
func damages(t *testing.T) map[string]struct {
	batch []byte
	want  error
} {
	zeros := squeeze(t, make([]byte, recordLimit+recordLimit/4))
	lying := squeeze(t, record(make([]byte, 1<<20), -1, 0))
	low, high := bytes.Clone(lying), bytes.Clone(lying)
	const contentSize = 6 // of the frame: magic 4, descriptor 1, window 1
	low[contentSize], high[contentSize+2] = low[contentSize]-1, high[contentSize+2]+1
	flipped := craft(0, 1, segment.None, record([]byte("x"), -1, 0))
	flipped[len(flipped)-2] ^= 1
	type damage = struct {
		batch []byte
		want  error
	}
	z := func(frames []byte) damage { return damage{craft(0, 1, segment.Zstd, frames), segment.ErrCorrupt} }
	return map[string]damage{
		"bomb":                           {craft(0, 1, segment.Zstd, zeros), segment.ErrTooLarge},
		"size that lies low":             z(low),
		"size that lies high":            z(high),
		"cut frame":                      z(lying[:len(lying)-5]),
		"two frames":                     z(append(bytes.Clone(lying), lying...)),
		"record count above the bytes":   {craft(0, 1<<31-1, segment.None, record([]byte("x"), -1, 0)), segment.ErrTooLarge},
		"header count above the bytes":   {craft(0, 1, segment.None, record([]byte("x"), -1, 1<<40)), segment.ErrCorrupt},
		"key length above the bytes":     {craft(0, 1, segment.None, record([]byte("x"), 1<<30, 0)), segment.ErrCorrupt},
		"flipped bit":                    {flipped, segment.ErrCorrupt},
		"record count -1":                {craft(0, -1, segment.None, record([]byte("x"), -1, 0)), segment.ErrCorrupt},
		"no bytes":                       {nil, segment.ErrCorrupt},
		"bytes of nothing":               {make([]byte, 300), segment.ErrCorrupt},
		"another number of records":      {craft(0, 2, segment.None, append(record([]byte("x"), -1, 0), record([]byte("y"), -1, 0)...)), segment.ErrCorrupt},
		"a batch from another place":     {craft(7, 1, segment.None, record([]byte("x"), -1, 0)), segment.ErrCorrupt},
		"a batch of an unknown codec":    {craft(0, 1, 5, record([]byte("x"), -1, 0)), segment.ErrVersion},
		"a batch longer than its extent": {craft(0, 1, segment.None, record([]byte("xyz"), -1, 0))[:63], segment.ErrCorrupt},
	}
}

// Damaged data is a typed error with topic, partition and offsets, reported once; other partitions go on; a seek to where the error says moves on.
func TestBR21_BR22_DamageIsReportedOnceAndCanBePassed(t *testing.T) {
	for name, d := range damages(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.create("t", 2, 64)
				b.write("t", map[int][][]segment.Record{0: {text("a", "b")}, 1: {text("A")}})
				count := int32(1)
				if strings.HasPrefix(name, "record count above") {
					count = 1<<31 - 1
				}
				object := b.writeRaw("t", extent{0, count, d.batch}, extent{1, 1, b.encode(text("B"))})
				b.write("t", map[int][][]segment.Record{0: {text("c")}, 1: {text("C")}})
				r := b.reader("t", sdk.To(sdk.Latest))
				defer r.Close()
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				var damage *sdk.DataError
				got := map[int]string{}
				for reports := 0; ; {
					fetches, err := r.Poll(b.ctx)
					if err == sdk.ErrHalted {
						if got[0] != "a b" || got[1] != "A B C" {
							t.Errorf("halted with %v", got)
						}
						check(t, r.Seek(0, damage.To))
						continue
					}
					if err == io.EOF {
						break
					}
					if err != nil {
						if reports++; reports > 1 || !errors.As(err, &damage) || !errors.Is(err, sdk.ErrCorrupt) || !errors.Is(err, d.want) {
							t.Fatalf("report %d: %v", reports, err)
						}
						if damage.Topic != "t" || damage.Partition != 0 || damage.From != 2 || damage.To != 2+int64(count) || damage.Object != object {
							t.Errorf("reported %+v", damage)
						}
						if at, _ := r.Position(0); at != 2 {
							t.Errorf("position %d at the damage", at)
						}
						continue
					}
					collect(t, fetches, map[int]int64{}, got)
				}
				runtime.ReadMemStats(&after)
				if damage == nil || got[0] != "a b c" || got[1] != "A B C" {
					t.Errorf("%v, then %v", damage, got)
				}
				if allocated := after.TotalAlloc - before.TotalAlloc; allocated > recordLimit+16<<20 {
					t.Errorf("%d bytes allocated", allocated)
				}
			})
		})
	}
}

// The largest batch that may be written can be read, and takes no more memory than it must.
func TestBR21_ABatchOfExactlyTheLimitIsRead(t *testing.T) {
	b := newBench(t)
	b.create("t", 1, 64)
	full := exactly(recordLimit)
	b.writeRaw("t", extent{0, 1, craft(0, 1, segment.Zstd, squeeze(t, full))})
	b.writeRaw("t", extent{0, 1, craft(0, 1, segment.Zstd, squeeze(t, exactly(recordLimit+1)))})
	r := b.reader("t", sdk.To(sdk.Latest))
	fetches, err := r.Poll(b.ctx)
	check(t, err)
	if n := len(fetches[0].Records[0].Value); n < recordLimit-20 {
		t.Errorf("%d bytes", n)
	}
	var damage *sdk.DataError
	if _, err := r.Poll(b.ctx); !errors.As(err, &damage) || !errors.Is(err, segment.ErrTooLarge) || damage.From != 1 || damage.To != 2 {
		t.Errorf("one byte over the limit: %v", err)
	}
}

// Within an extent only the damaged batch is lost.
func TestDamagedBatchAmongOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		bad := b.encode(text("c", "d"))
		segment.SetBaseOffset(bad, 2)
		bad[len(bad)-1] ^= 1
		last := b.encode(text("e"))
		segment.SetBaseOffset(last, 4)
		b.writeRaw("t", extent{0, 5, append(append(b.encode(text("a", "b")), bad...), last...)})
		r := b.reader("t", sdk.To(sdk.Latest))
		defer r.Close()
		got := map[int]string{}
		fetches, err := r.Poll(b.ctx)
		check(t, err)
		collect(t, fetches, map[int]int64{}, got)
		var damage *sdk.DataError
		if _, err := r.Poll(b.ctx); !errors.As(err, &damage) || damage.From != 2 || damage.To != 4 {
			t.Fatal(err)
		}
		check(t, r.Seek(0, 3))
		if _, err := r.Poll(b.ctx); !errors.As(err, &damage) || damage.From != 3 || damage.To != 4 {
			t.Fatal(err)
		}
		check(t, r.Seek(0, damage.To))
		fetches, err = r.Poll(b.ctx)
		check(t, err)
		collect(t, fetches, map[int]int64{}, got)
		if _, err := r.Poll(b.ctx); got[0] != "a b e" || err != io.EOF {
			t.Errorf("got %q, %v", got[0], err)
		}
	})
}

// An object that was cut off loses what is beyond the cut, not what is before it.
func TestTruncatedObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 2, 64)
		row := b.topics["t"]
		whole, cut := b.encode(text("a")), b.encode(text("b"))
		id := segment.NewID(time.Now(), row.Class(), segment.InBucket, 99, segment.ID{})
		check(t, b.raw.Put(b.ctx, segment.IntakeName(id), append(make([]byte, 16), append(whole, cut[:10]...)...)))
		b.append(row.Lanes[0], metadata.Entry{ID: id, Start: 16, Slots: []metadata.SlotEntry{{Slot: 0, Count: 1, Bytes: int32(len(whole)), MaxTime: latest(whole, id)}, {Slot: 1, Count: 1, Bytes: int32(len(cut))}}})
		r := b.reader("t", sdk.To(sdk.Latest))
		defer r.Close()
		got, reports := map[int]string{}, 0
		for {
			fetches, err := r.Poll(b.ctx)
			if err == sdk.ErrHalted {
				break
			}
			var damage *sdk.DataError
			if err != nil && (!errors.As(err, &damage) || damage.Partition != 1 || !errors.Is(err, store.ErrShort)) {
				t.Fatal(err)
			}
			if err != nil {
				reports++
			}
			collect(t, fetches, map[int]int64{}, got)
		}
		if got[0] != "a" || reports != 1 {
			t.Errorf("got %v, %d reports", got, reports)
		}
	})
}

// In an object's place are the bytes of another segment of the log, sound, and like its own in all but the records' time.
func TestBytesOfAnotherSegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		row := b.topics["t"]
		batch := b.encode([]segment.Record{{Timestamp: 1000, Value: []byte("other")}})
		id := segment.NewID(time.Now(), row.Class(), segment.InBucket, 99, segment.ID{})
		check(t, b.raw.Put(b.ctx, segment.IntakeName(id), append(make([]byte, 16), batch...)))
		b.append(row.Lanes[0], metadata.Entry{ID: id, Start: 16, Slots: []metadata.SlotEntry{{Slot: 0, Count: 1, Bytes: int32(len(batch)), MaxTime: 1001}}})
		fetches, err := b.reader("t", sdk.To(sdk.Latest)).Poll(b.ctx)
		var damage *sdk.DataError
		if !errors.As(err, &damage) || damage.From != 0 || damage.To != 1 || !strings.Contains(err.Error(), "latest time 1000, the index says 1001") {
			t.Errorf("%v, %v", fetches, err)
		}
	})
}

// A live object is removed by hand.
func TestX09_HoleIsReportedAndSkippedOnlyWhenAsked(t *testing.T) {
	setup := func(t *testing.T, opts ...sdk.ReaderOption) (*bench, *sdk.Reader, string) {
		b := newBench(t)
		b.create("t", 3, 64)
		b.write("t", map[int][][]segment.Record{0: {text("a")}, 1: {text("A")}, 2: {text("1")}})
		hole := b.write("t", map[int][][]segment.Record{0: {text("b", "c")}, 1: {text("B")}})
		b.write("t", map[int][][]segment.Record{0: {text("d")}, 1: {text("C")}, 2: {text("2")}})
		bad := b.encode(text("e"))
		bad[len(bad)-1] ^= 1
		b.writeRaw("t", extent{0, 1, bad}, extent{1, 1, b.encode(text("D"))})
		check(t, b.raw.Delete(b.ctx, hole))
		return b, b.reader("t", append(opts, sdk.To(sdk.Latest))...), hole
	}
	run := func(t *testing.T, b *bench, r *sdk.Reader) (map[int]string, []*sdk.DataError) {
		got, reports := map[int]string{}, []*sdk.DataError(nil)
		for {
			fetches, err := r.Poll(b.ctx)
			if err == sdk.ErrHalted || err == io.EOF {
				return got, reports
			}
			var damage *sdk.DataError
			if err != nil && !errors.As(err, &damage) {
				t.Fatal(err)
			}
			if err != nil {
				reports = append(reports, damage)
			}
			collect(t, fetches, map[int]int64{}, got)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b, r, hole := setup(t)
		defer r.Close()
		got, reports := run(t, b, r)
		if got[0] != "a" || got[1] != "A" || got[2] != "1 2" {
			t.Errorf("without the option: %v", got)
		}
		want := map[int][2]int64{0: {1, 3}, 1: {1, 2}}
		for _, d := range reports {
			if w := want[d.Partition]; d.From != w[0] || d.To != w[1] || d.Object != hole || !errors.Is(d, store.ErrNotExist) || !errors.Is(d, sdk.ErrCorrupt) {
				t.Errorf("reported %v", d)
			}
			delete(want, d.Partition)
		}
		if len(want) > 0 {
			t.Errorf("not reported: %v", want)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b, r, _ := setup(t, sdk.SkipHoles())
		defer r.Close()
		got, reports := run(t, b, r)
		if got[0] != "a d" || got[1] != "A C D" || got[2] != "1 2" || len(reports) != 3 {
			t.Errorf("with the option: %v, %d reports", got, len(reports))
		}
		if last := reports[len(reports)-1]; last.Partition != 0 || last.From != 4 || errors.Is(last, store.ErrNotExist) {
			t.Errorf("a damaged batch is no hole: %v", last)
		}
	})
	// A time that leads to the hole is no answer either.
	b, _, _ := setup(t)
	var damage *sdk.DataError
	if at, err := b.log.Admin().OffsetForTime(b.ctx, "t", 0, time.UnixMilli(1_000_000_000_001)); !errors.As(err, &damage) || damage.From != 1 {
		t.Errorf("offset for a time in the hole: %d, %v", at, err)
	}
}
