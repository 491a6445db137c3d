package sdk

// Partitioner returns the choice function of one topic, which is given a record and the topic's partition count and
// returns a partition in [0, partitions); anything else fails the record with ErrNoPartition. The function is called
// for one record at a time and may keep state; it must return at once. chance is a source of random bits. A topic's
// count may grow from one call to the next.
type Partitioner func(topic string, chance func() uint64) func(r *Record, partitions int) int

// stickyBytes is how many bytes of keyless records go to one partition before the next is chosen: enough for a batch to
// compress well, and few enough that partitions stay even.
const stickyBytes = 64 << 10

// KeyPartitioner is Kafka's default: equal keys go to equal partitions, by murmur2, so that a key's records stay in
// order; records without a key stick to one random partition for 64 KiB, then to another. An empty key is a key.
func KeyPartitioner() Partitioner {
	return func(_ string, chance func() uint64) func(*Record, int) int {
		sticky := stickyChoice(chance)
		return func(r *Record, partitions int) int {
			if r.Key == nil {
				return sticky(r, partitions)
			}
			return keyPartition(r.Key, partitions)
		}
	}
}

// ExplicitPartitioner takes the record's Partition field as it is.
func ExplicitPartitioner() Partitioner {
	return func(string, func() uint64) func(*Record, int) int {
		return func(r *Record, _ int) int { return r.Partition }
	}
}

// stickyChoice stays with a random partition for stickyBytes.
func stickyChoice(chance func() uint64) func(*Record, int) int {
	current, left := 0, 0
	return func(r *Record, partitions int) int {
		if left <= 0 || current >= partitions {
			current, left = int(chance()%uint64(partitions)), stickyBytes
		}
		left -= len(r.Value) + 1
		return current
	}
}

// keyPartition is where Kafka's clients put a key.
func keyPartition(key []byte, partitions int) int {
	return int(murmur2(key)&0x7fffffff) % partitions
}

// murmur2 is the 32-bit MurmurHash2 with the seed that Kafka's clients use.
func murmur2(b []byte) uint32 {
	const m = 0x5bd1e995
	h := uint32(0x9747b28c) ^ uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		k := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
		k *= m
		k ^= k >> 24
		h = h*m ^ k*m
	}
	switch len(b) {
	case 3:
		h ^= uint32(b[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(b[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(b[0])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}
