package sdk

import (
	"slices"
	"strconv"
)

// HotKeyPartitioner keeps hot keys from slowing the others down. The last spread partitions of the topic are set aside
// for them; all other keyed records go by key to the partitions before, records without a key to any of those. A key is
// hot while it makes up at least share of the keyed records (0 < share < 1), as this producer has lately seen them; its
// records then take the partitions of the hot set in turn.
//
// THE ORDER OF A HOT KEY IS GIVEN UP: its records are in several partitions, before and after it became hot and while
// it is. All other keys keep theirs. With fewer than spread+1 partitions the hot set is all but the first; a topic of
// one partition has none.
func HotKeyPartitioner(spread int, share float64) Partitioner {
	return func(_ string, chance func() uint64) func(*Record, int) int {
		sticky, hot, turn := stickyChoice(chance), newHotKeys(share), 0
		return func(r *Record, partitions int) int {
			set := min(max(spread, 0), partitions-1)
			rest := partitions - set
			switch {
			case r.Key == nil:
				return sticky(r, rest)
			case hot.seen(fnv64(r.Key), chance) && set > 0:
				turn = (turn + 1) % set
				return rest + turn
			}
			return keyPartition(r.Key, rest)
		}
	}
}

const (
	hotCandidates = 64   // keys that are counted at once
	hotWindow     = 4096 // counted records after which all counts are halved, so that old traffic fades
	hotSample     = 8    // one record in so many is counted
	hotMinimum    = 64   // counted records before any key is called hot
)

// hotKeys finds frequent keys in bounded memory: when all places are taken, a new key replaces the least counted and
// inherits its count as possible error, so a frequent key is never missed for long and no key is called hot on
// inherited counts. Keys are known by a 64-bit hash.
type hotKeys struct {
	share   float64
	total   int
	counted []hotCount // at most hotCandidates, so few that they are searched one by one
}

type hotCount struct {
	key          uint64
	count, error int
	hot          bool
}

func newHotKeys(share float64) *hotKeys { return &hotKeys{share: share} }

// seen counts the key, one time in hotSample, and tells whether it is hot.
func (h *hotKeys) seen(key uint64, chance func() uint64) bool {
	at := slices.IndexFunc(h.counted, func(c hotCount) bool { return c.key == key })
	if chance()%hotSample == 0 {
		at = h.count(key, at)
	}
	return at >= 0 && h.counted[at].hot
}

func (h *hotKeys) count(key uint64, at int) int {
	switch {
	case at >= 0:
	case len(h.counted) < hotCandidates:
		at = len(h.counted)
		h.counted = append(h.counted, hotCount{key: key})
	default:
		at = h.least()
		h.counted[at] = hotCount{key: key, count: h.counted[at].count, error: h.counted[at].count}
	}
	h.counted[at].count++
	if h.total++; h.total >= hotWindow {
		h.fade()
	}
	c := &h.counted[at]
	sure := float64(c.count - c.error)
	// A key that is hot stays so until it is well below the share, or it would go back and forth at the border.
	c.hot = h.total >= hotMinimum && (sure >= h.share*float64(h.total) || c.hot && sure >= h.share/2*float64(h.total))
	return at
}

func (h *hotKeys) least() int {
	at := 0
	for i := range h.counted {
		if h.counted[i].count < h.counted[at].count {
			at = i
		}
	}
	return at
}

func (h *hotKeys) fade() {
	h.total /= 2
	for i := range h.counted {
		h.counted[i].count /= 2
		h.counted[i].error /= 2
	}
}

// WidenByHeader spreads the named keys by the value of a header: their records go by key and header value together, so
// order is kept among those that share both, and given up for the key as a whole. Records of other keys, or without the
// header, go as with KeyPartitioner. The first header of the name counts.
func WidenByHeader(header string, keys ...string) Partitioner {
	return widened(keys, func(name []byte, r *Record, _ *int) []byte {
		for i := range r.Headers {
			if r.Headers[i].Key == header {
				return append(append(name, 0), r.Headers[i].Value...)
			}
		}
		return name
	})
}

// WidenBySuffix spreads the named keys over up to width partitions: their records take turns among width places, each
// of which is where the key followed by "#0", "#1", … would go. The records' own keys stay as they are. THE ORDER OF
// THE NAMED KEYS IS GIVEN UP; all others go as with KeyPartitioner.
func WidenBySuffix(width int, keys ...string) Partitioner {
	return widened(keys, func(name []byte, _ *Record, turn *int) []byte {
		*turn = (*turn + 1) % max(width, 1)
		return strconv.AppendInt(append(name, '#'), int64(*turn), 10)
	})
}

// widened sends records of the named keys to where the key with something added would go. add appends to name, which
// holds the key; turn is the key's own.
func widened(keys []string, add func(name []byte, r *Record, turn *int) []byte) Partitioner {
	return func(_ string, chance func() uint64) func(*Record, int) int {
		sticky, turns, buf := stickyChoice(chance), make(map[string]*int, len(keys)), []byte(nil)
		for _, k := range keys {
			turns[k] = new(int)
		}
		return func(r *Record, partitions int) int {
			turn, named := turns[string(r.Key)]
			switch {
			case r.Key == nil:
				return sticky(r, partitions)
			case named:
				buf = add(append(buf[:0], r.Key...), r, turn)
				return keyPartition(buf, partitions)
			}
			return keyPartition(r.Key, partitions)
		}
	}
}

// fnv64 is the 64-bit FNV-1a hash.
func fnv64(b []byte) uint64 {
	h := uint64(0xcbf29ce484222325)
	for _, c := range b {
		h = (h ^ uint64(c)) * 0x100000001b3
	}
	return h
}
