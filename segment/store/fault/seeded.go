package fault

import (
	"encoding/binary"
	"hash/fnv"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/segment/store"
)

// Rates are the shares of calls, in [0, 1], that get each kind of fault; together at most 1.
type Rates struct {
	LostBefore, LostAfter, Late, Short, Throttled float64

	DelayUpTo time.Duration // every call waits for up to this
	LateUpTo  time.Duration // what is late is applied within this
}

// Seeded decides by chance, but always the same for one seed, operation, name and number of the call, however
// goroutines interleave.
func Seeded(seed uint64, r Rates) Hook {
	return func(c Call) Fault {
		chance := env.NewRand(hash(seed, c))
		f := Fault{Kind: r.pick(chance.Float64())}
		if r.DelayUpTo > 0 {
			f.Delay = time.Duration(chance.Int64N(int64(r.DelayUpTo) + 1))
		}
		if r.LateUpTo > 0 {
			f.LateAfter = time.Duration(chance.Int64N(int64(r.LateUpTo) + 1))
		}
		return f
	}
}

func (r Rates) pick(x float64) Kind {
	for kind, rate := range [kinds]float64{LostBefore: r.LostBefore, LostAfter: r.LostAfter, Late: r.Late, Short: r.Short, Throttled: r.Throttled} {
		if x < rate {
			return Kind(kind)
		}
		x -= rate
	}
	return None
}

func hash(seed uint64, c Call) uint64 {
	h := fnv.New64a()
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], seed)
	binary.LittleEndian.PutUint64(b[8:], uint64(c.N))
	h.Write(b[:])
	h.Write([]byte(c.Op))
	h.Write([]byte{0})
	h.Write([]byte(c.Name))
	return h.Sum64()
}

var _ store.Store = (*Store)(nil)
