package clean

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/varvelog/varve/functions/internal/archive"
	"github.com/varvelog/varve/segment"
)

// note is what a pass notes of a key: 16 bytes of its hash and the ordinal of the record among those of the pass. The hash is one that nobody finds two keys for.
type note [hashBytes + 8]byte

const hashBytes = 16

func noteOf(key []byte, ordinal int64) (n note) {
	sum := sha256.Sum256(key)
	copy(n[:], sum[:hashBytes])
	binary.BigEndian.PutUint64(n[hashBytes:], uint64(ordinal))
	return n
}

func (n *note) ordinal() int64 { return int64(binary.BigEndian.Uint64(n[hashBytes:])) }

// notes are what a pass has noted, in buckets by hash, each of which is then looked at by itself, a part at a time, of which one note stays for each key. So memory does
// not depend on how many records the keys have, and of the keys it is a share.
type notes struct {
	part    int // notes
	buckets []*os.File
	writers []*bufio.Writer
	memory  []note // instead, if all of it fits
}

const (
	maxBuckets = 256
	leastPart  = 1 << 10 // notes
	fileBuffer = 32 << 10
)

// newNotes has room for so many notes, of which memory bytes at a time are held.
func newNotes(records, memory int64) (*notes, error) {
	size := int64(len(note{}))
	n := 1 + records*size/memory
	if n == 1 {
		return &notes{memory: make([]note, 0, records)}, nil
	}
	b := &notes{part: int(max(leastPart, memory/size))}
	for range min(n, maxBuckets) {
		f, err := os.CreateTemp("", "varve-clean-*")
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		os.Remove(f.Name()) // where an open file can be removed, a crash leaves none behind
		b.buckets, b.writers = append(b.buckets, f), append(b.writers, bufio.NewWriterSize(f, fileBuffer))
	}
	return b, nil
}

func (n *notes) close() (err error) {
	for _, f := range n.buckets {
		err = errors.Join(err, f.Close())
		if removed := os.Remove(f.Name()); !errors.Is(removed, fs.ErrNotExist) {
			err = errors.Join(err, removed)
		}
	}
	n.buckets = nil
	return err
}

func (n *notes) add(x note) error {
	if n.buckets == nil {
		n.memory = append(n.memory, x)
		return nil
	}
	_, err := n.writers[int(binary.BigEndian.Uint32(x[:]))%len(n.writers)].Write(x[:])
	return err
}

// supersede adds the ordinals of all notes but the last of each key to dead.
func (n *notes) supersede(dead bitmap) error {
	dead.supersede(n.memory)
	for i, f := range n.buckets {
		if err := n.writers[i].Flush(); err != nil {
			return err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if err := n.supersedeBucket(bufio.NewReaderSize(f, fileBuffer), dead); err != nil {
			return err
		}
	}
	return nil
}

func (n *notes) supersedeBucket(r io.Reader, dead bitmap) error {
	var x note
	var held []note
	for most := n.part; ; {
		if _, err := io.ReadFull(r, x[:]); errors.Is(err, io.EOF) {
			dead.supersede(held)
			return nil
		} else if err != nil {
			return err
		}
		if held = append(held, x); len(held) >= most {
			held = dead.supersede(held)
			most = max(n.part, 2*len(held))
		}
	}
}

// survey reads the rows and finds out which records are superfluous, and how many of them are tombstones that go by their age.
func (p *pass) survey(ctx context.Context, records int64) (tombstones int64, err error) {
	n, err := newNotes(records, p.o.Memory)
	if err != nil {
		return 0, fmt.Errorf("temporary files for the keys: %w", err)
	}
	defer func() { err = errors.Join(err, n.close()) }()
	p.dead = make(bitmap, (records+63)/64)
	ordinal := int64(0)
	decoder := segment.Decoder{Reuse: true}
	var decoded []segment.Record
	for _, row := range p.rows {
		err := archive.Batches(ctx, p.Objects, row, func(batch []byte) (err error) {
			if decoded, err = decoder.Decode(batch, 0, decoded[:0]); err != nil {
				return err
			}
			for i := range decoded {
				r := &decoded[i]
				if r.Key != nil {
					if err := n.add(noteOf(r.Key, ordinal)); err != nil {
						return err
					}
				}
				if r.Key != nil && r.Value == nil && r.Offset < p.purge {
					p.dead.add(ordinal)
					tombstones++
				}
				ordinal++
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	return tombstones, n.supersede(p.dead)
}

// bitmap is a set of ordinals.
type bitmap []uint64

func (b bitmap) has(i int64) bool { return b[i/64]>>(i%64)&1 == 1 }
func (b bitmap) add(i int64)      { b[i/64] |= 1 << (i % 64) }

// any tells whether any of n ordinals from one on is in it.
func (b bitmap) any(from, n int64) bool {
	for i := from; i < from+n; i++ {
		if i%64 == 0 && b[i/64] == 0 {
			i += 63
			continue
		}
		if b.has(i) {
			return true
		}
	}
	return false
}

// supersede adds the ordinals of all notes but the last of each hash, and returns the last ones, in the same memory.
func (b bitmap) supersede(notes []note) (last []note) {
	slices.SortFunc(notes, func(x, y note) int { return bytes.Compare(x[:], y[:]) }) // by hash, then by ordinal
	last = notes[:0]
	for i := range notes {
		if i+1 < len(notes) && string(notes[i][:hashBytes]) == string(notes[i+1][:hashBytes]) {
			b.add(notes[i].ordinal())
			continue
		}
		last = append(last, notes[i])
	}
	return last
}
