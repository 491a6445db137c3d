package metadata

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/varvelog/varve/segment"
)

// Key is the primary key of an item. This file is the only one that writes or reads the formats of keys and
// of the attribute names that carry an id or a slot.
type Key struct{ PK, SK string }

func (k Key) String() string { return k.PK + "|" + k.SK }

const (
	topicPK  = "TOPIC"
	gonePK   = "GONE"
	logPK    = "LOG"
	headSK   = "HEAD"
	stateSK  = "STATE"
	lanePK   = "L#"
	chunkPK  = "C#"
	statePK  = "A#"
	rowPK    = "P#"
	replacPK = "X#"
	smallPK  = "D#"
	groupsPK = "GROUP"
	groupPK  = "G#"
	planSK   = "PLAN"
	memberSK = "M#"
	offsetSK = "O#"
	numLen   = 20
)

// The items of a log.
func TopicKey(name string) Key           { return Key{topicPK, name} }
func GoneKey(id segment.TopicID) Key     { return Key{gonePK, string(id)} }
func IdentityKey() Key                   { return Key{logPK, "ID"} }
func FloorKey() Key                      { return Key{logPK, "FLOOR"} }
func EraKey() Key                        { return Key{logPK, "ERA"} }
func SweepKey() Key                      { return Key{logPK, "SWEEP"} }
func HeadKey(l LaneID) Key               { return Key{lanePK + string(l), headSK} }
func ChunkKey(l LaneID, first int64) Key { return Key{chunkPK + string(l), digits(first)} }
func StateKey(l LaneID) Key              { return Key{statePK + string(l), stateSK} }
func ReplacedKey(id segment.ID) Key      { return Key{replacPK + id.Hash(), id.String()} }
func SmallKey(id segment.ID) Key         { return Key{smallPK + id.Hash(), id.String()} }

// ReplacedCollection and SmallCollection are the collections with a hash of two hexadecimal digits, as keys without a sort key.
func ReplacedCollection(hash string) Key { return Key{PK: replacPK + hash} }
func SmallCollection(hash string) Key    { return Key{PK: smallPK + hash} }

// The items of groups. All that the members of one group agree on is one item collection, so that one query shows it.
func GroupKey(group string) Key                { return Key{groupsPK, group} }
func PlanKey(group string) Key                 { return Key{groupPK + group, planSK} }
func MemberKey(group, member string) Key       { return Key{groupPK + group, memberSK + member} }
func OffsetsKey(group string, lane LaneID) Key { return Key{groupPK + group, offsetSK + string(lane)} }

// ParseGroupKey reads what PlanKey, MemberKey or OffsetsKey wrote: of member and lane one is set, or neither.
func ParseGroupKey(k Key) (group, member string, lane LaneID, err error) {
	group, ok := strings.CutPrefix(k.PK, groupPK)
	name, isMember := strings.CutPrefix(k.SK, memberSK)
	id, isLane := strings.CutPrefix(k.SK, offsetSK)
	switch {
	case !ok || ValidateName("group", group) != nil:
	case isMember && ValidateName("member", name) == nil:
		return group, name, "", nil
	case isLane && id != "":
		return group, "", LaneID(id), nil
	case k.SK == planSK:
		return group, "", "", nil
	}
	return "", "", "", badKey(k, "G#<group>|PLAN, M#<member> or O#<lane>")
}

// RowKey is the archive row of a partition that starts at base.
func RowKey(id segment.TopicID, partition int, base int64) Key {
	return Key{rowPK + string(id) + "#" + strconv.Itoa(partition), digits(base)}
}

// digits prints n >= 0 so that string order is numeric order.
func digits(n int64) string { return fmt.Sprintf("%0*d", numLen, n) }

func parseDigits(s string) (int64, bool) {
	if len(s) != numLen {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0 && digits(n) == s
}

// ParseChunkKey reads what ChunkKey wrote.
func ParseChunkKey(k Key) (LaneID, int64, error) {
	lane, ok := strings.CutPrefix(k.PK, chunkPK)
	first, okay := parseDigits(k.SK)
	if !ok || !okay || lane == "" {
		return "", 0, badKey(k, chunkPK+"<lane>|<20 digits>")
	}
	return LaneID(lane), first, nil
}

// ParseLaneKey reads what HeadKey or StateKey wrote.
func ParseLaneKey(k Key) (LaneID, error) {
	for prefix, sk := range map[string]string{lanePK: headSK, statePK: stateSK} {
		if lane, ok := strings.CutPrefix(k.PK, prefix); ok && lane != "" && k.SK == sk {
			return LaneID(lane), nil
		}
	}
	return "", badKey(k, "L#<lane>|HEAD or A#<lane>|STATE")
}

// ParseRowKey reads what RowKey wrote.
func ParseRowKey(k Key) (id segment.TopicID, partition int, base int64, err error) {
	rest, ok := strings.CutPrefix(k.PK, rowPK)
	topic, number, cut := strings.Cut(rest, "#")
	partition, numErr := strconv.Atoi(number)
	base, okay := parseDigits(k.SK)
	if !ok || !cut || numErr != nil || partition < 0 || strconv.Itoa(partition) != number || !okay || segment.TopicID(topic).Validate() != nil {
		return "", 0, 0, badKey(k, "P#<topic id>#<partition>|<20 digits>")
	}
	return segment.TopicID(topic), partition, base, nil
}

// ParseSegmentKey reads what ReplacedKey or SmallKey wrote.
func ParseSegmentKey(k Key) (segment.ID, error) {
	id, err := segment.ParseID(k.SK)
	if err != nil || (k != ReplacedKey(id) && k != SmallKey(id)) {
		return segment.ID{}, badKey(k, "X#<2 hex>|<id> or D#<2 hex>|<id>")
	}
	return id, nil
}

func badKey(k Key, valid string) error {
	return fmt.Errorf("%w: key %q is not %s", ErrCorrupt, clip(k.String()), valid)
}

// Attribute names of a head, a chunk and a state that carry an id, a slot or an epoch.
func EntryAttr(id segment.ID) string { return "e" + id.String() }
func OrderAttr(id segment.ID) string { return "o" + id.String() }
func EndAttr(s Slot) string          { return "p" + strconv.Itoa(int(s)) }
func TokenAttr(s Slot) string        { return "f" + strconv.Itoa(int(s)) }
func StartAttr(s Slot) string        { return "l" + strconv.Itoa(int(s)) }
func ArchivedAttr(s Slot) string     { return "a" + strconv.Itoa(int(s)) }
func CleanedAttr(s Slot) string      { return "k" + strconv.Itoa(int(s)) }
func CommittedAttr(s Slot) string    { return "c" + strconv.Itoa(int(s)) }
func CommitTimeAttr(s Slot) string   { return "t" + strconv.Itoa(int(s)) }
func CommitNoteAttr(s Slot) string   { return "m" + strconv.Itoa(int(s)) }
func LeaseAttr(s Slot) string        { return "l" + strconv.Itoa(int(s)) }
func EpochAttr(x int) string         { return "ep" + strings.ToUpper(strconv.FormatInt(int64(x), 16)) }

// ProducerAttr has the sequence of a producer, and behind it the orders of its last ones; ProducerFirstAttr the order of the first one, while there is no other.
func ProducerAttr(id ProducerID) string      { return producerKind + producerDigits(id) }
func ProducerFirstAttr(id ProducerID) string { return producerFirstKind + producerDigits(id) }

const (
	producerKind      = "ws"
	producerFirstKind = "wo"
	producerIDLen     = 13 // 63 bits, five to a character
)

func producerDigits(id ProducerID) string {
	s := strconv.FormatInt(int64(id), 32)
	return strings.Repeat("0", max(0, producerIDLen-len(s))) + s
}

// ParseProducerAttr reads what ProducerAttr or, with first, ProducerFirstAttr wrote.
func ParseProducerAttr(name string) (id ProducerID, first, ok bool) {
	digits, last := strings.CutPrefix(name, producerKind)
	if !last {
		digits, first = strings.CutPrefix(name, producerFirstKind)
	}
	n, err := strconv.ParseInt(digits, 32, 64)
	id = ProducerID(n)
	return id, first, (last || first) && err == nil && n > 0 && producerDigits(id) == digits
}

// The value of a lease's attribute: the epoch, and behind a dot the session if there is one.
func (l Lease) String() string {
	s := strconv.FormatInt(l.Epoch, 10)
	if l.Held() {
		s += "." + string(l.Session)
	}
	return s
}

// ParseLease reads what Lease.String wrote.
func ParseLease(s string) (Lease, error) {
	epoch, session, held := strings.Cut(s, ".")
	n, err := strconv.ParseInt(epoch, 10, 64)
	l := Lease{SessionID(session), n}
	if err != nil || n < 1 || held != l.Held() || held && !l.Session.valid() || l.String() != s {
		return Lease{}, fmt.Errorf("%w: lease %q is not <epoch> or <epoch>.<session>", ErrCorrupt, clip(s))
	}
	return l, nil
}

// ParseIDAttr reads what EntryAttr or OrderAttr wrote, kind being the letter.
func ParseIDAttr(kind byte, name string) (segment.ID, bool) {
	if len(name) < 2 || name[0] != kind {
		return segment.ID{}, false
	}
	id, err := segment.ParseID(name[1:])
	return id, err == nil
}

// ParseSlotAttr reads what the functions above that take a slot wrote, kind being the letter.
func ParseSlotAttr(kind byte, name string) (Slot, bool) {
	if len(name) < 2 || len(name) > 3 || name[0] != kind {
		return 0, false
	}
	n, err := strconv.Atoi(name[1:])
	return Slot(n), err == nil && n >= 0 && n < SlotsPerLane && strconv.Itoa(n) == name[1:]
}
