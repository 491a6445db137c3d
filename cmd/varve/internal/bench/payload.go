package bench

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/sdk"
)

// Bounds of a record, in bytes of key and value.
const (
	MinRecord = 32
	MaxRecord = 1 << 20
)

const (
	keyBytes     = 16
	payloadBytes = 16 << 20 // that values are cut from, one after another, at most
	blockBytes   = 64 << 10 // of a block's records, about
	blockRecords = 64       // at most
)

// payload is where records and raw objects have their bytes from.
type payload struct {
	bytes []byte
	at    int
}

func newPayload(s Settings, e env.Env) *payload {
	p := &payload{bytes: make([]byte, min(max(int(s.TurnBytes/8*8), MaxRecord), payloadBytes))}
	for i := 0; i < len(p.bytes); i += 8 {
		binary.LittleEndian.PutUint64(p.bytes[i:], e.Uint64())
	}
	if s.Payload == Text {
		for i, b := range p.bytes {
			p.bytes[i] = "etaoin shrdlu {}:,0123456789abcd"[b%32]
		}
	}
	return p
}

// next is the following n bytes, or the first.
func (p *payload) next(n int) []byte {
	if p.at+n > len(p.bytes) {
		p.at = 0
	}
	p.at += n
	return p.bytes[p.at-n : p.at]
}

// block is records that are produced one after another and used again when all are acknowledged. So the benchmark itself allocates nothing for a
// record, as the raw side allocates nothing for an object. The first one stands for all where latency is concerned, so that little time goes into
// looking at the clock.
type block struct {
	records []sdk.Record
	left    int // not acknowledged
	sent    time.Duration
	took    time.Duration // until the first was acknowledged
	promise func(*sdk.Record, error)
}

// source hands out blocks. Promises come one after another, so a block needs no lock of its own: what is refused at once, in the producing
// goroutine, fails the run and is not counted.
type source struct {
	run     *run
	stamped bool        // the first record of a block says in its value when it was sent
	tell    func(error) // of the first failure, unless nil

	mu     sync.Mutex
	free   []*block
	acks   []time.Duration
	failed error
}

// take is a block that is not in use.
func (s *source) take() (*block, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return nil, s.failed
	}
	if n := len(s.free); n > 0 {
		b := s.free[n-1]
		s.free = s.free[:n-1]
		return b, nil
	}
	return s.make(), nil
}

func (s *source) make() *block {
	b := &block{records: make([]sdk.Record, min(max(blockBytes/s.run.RecordSize, 1), blockRecords))}
	for i := range b.records {
		b.records[i] = s.record()
	}
	b.promise = func(r *sdk.Record, err error) { s.settled(b, r, err) }
	return b
}

// record is a new one, with bytes of its own.
func (s *source) record() sdk.Record {
	b := slices.Clone(s.run.payload.next(s.run.RecordSize))
	clear(b[keyBytes : keyBytes+stampBytes])
	return sdk.Record{Topic: s.run.topic, Key: b[:keyBytes:keyBytes], Value: b[keyBytes:]}
}

// settled is the promise of a block's records.
func (s *source) settled(b *block, r *sdk.Record, err error) {
	if err != nil {
		s.fail(err)
		return
	}
	if r == &b.records[0] {
		b.took = s.run.Env.Mono() - b.sent
	}
	if b.left--; b.left == 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.acks = append(s.acks, b.took)
		s.free = append(s.free, b)
	}
}

func (s *source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return
	}
	s.failed = err
	if s.tell != nil {
		s.tell(err)
	}
}

// one sends a record alone, and does not wait for it.
func (s *source) one(ctx context.Context, p *sdk.Producer) {
	r := s.record()
	stamp(&r, s.run.Env.Mono())
	p.Produce(ctx, &r, func(_ *sdk.Record, err error) {
		if err != nil {
			s.fail(err)
		}
	})
}

// produce sends a turn's bytes of records, or what can be sent within the limit, and returns when all are acknowledged.
func (s *source) produce(ctx context.Context, p *sdk.Producer, limit time.Duration) (records int, err error) {
	start := s.run.Env.Mono()
	for int64(records)*int64(s.run.RecordSize) < s.run.TurnBytes {
		b, err := s.take()
		if err != nil {
			return records, err
		}
		b.sent, b.left = s.run.Env.Mono(), len(b.records)
		if b.sent-start >= limit {
			break
		}
		if s.stamped {
			stamp(&b.records[0], b.sent)
		}
		for i := range b.records {
			b.records[i].Timestamp = time.Time{}
			p.Produce(ctx, &b.records[i], b.promise)
		}
		records += len(b.records)
	}
	if err := p.Flush(ctx); err != nil {
		return records, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return records, s.failed
}

// takeAcks returns how long acknowledgements took since it was called before.
func (s *source) takeAcks() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	acks := s.acks
	s.acks = nil
	return acks
}

// stampBytes are the first of a value: when the record was sent by the monotonic clock, 0 for a record whose latency is not measured.
const stampBytes = 8

func stamp(r *sdk.Record, at time.Duration) {
	binary.BigEndian.PutUint64(r.Value, uint64(at))
}

func stampOf(r *sdk.Record) (at time.Duration, stamped bool) {
	at = time.Duration(binary.BigEndian.Uint64(r.Value))
	return at, at != 0
}
