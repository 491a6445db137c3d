package dynamodb

import (
	"sync"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb/storage"
)

// limiter gives every item a bucket of perSecond write units, filled as time goes by. perSecond 0 limits nothing.
type limiter struct {
	perSecond float64
	mu        sync.Mutex
	buckets   map[storage.Key]bucket
}

type bucket struct {
	units float64 // left at the time at
	at    time.Time
}

// maxBuckets bounds the buckets; those that have filled up again are forgotten then.
const maxBuckets = 10_000

// take spends units of an item's bucket. It refuses, and spends nothing, if they are not there; a write larger than
// the bucket needs a full one and leaves it in debt.
func (l *limiter) take(key storage.Key, units float64, now time.Time) error {
	if l.perSecond == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.filled(l.buckets[key], now)
	if left < min(units, l.perSecond) {
		return keyRangeThrottled(arn(key.Table))
	}
	if l.buckets == nil {
		l.buckets = map[storage.Key]bucket{}
	}
	if len(l.buckets) >= maxBuckets {
		for k, b := range l.buckets {
			if l.filled(b, now) >= l.perSecond {
				delete(l.buckets, k)
			}
		}
	}
	l.buckets[key] = bucket{units: left - units, at: now}
	return nil
}

func (l *limiter) filled(b bucket, now time.Time) float64 {
	if b.at.IsZero() {
		return l.perSecond
	}
	return min(l.perSecond, b.units+l.perSecond*max(0, now.Sub(b.at).Seconds()))
}
