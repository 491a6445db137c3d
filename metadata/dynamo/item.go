package dynamo

import (
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// item is an item as the SDK has it.
type item = map[string]types.AttributeValue

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}
func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func binary(b []byte) types.AttributeValue {
	return &types.AttributeValueMemberB{Value: b}
}

func texts[S ~string](list []S) types.AttributeValue {
	l := &types.AttributeValueMemberL{Value: make([]types.AttributeValue, len(list))}
	for i, s := range list {
		l.Value[i] = text(string(s))
	}
	return l
}

func idTexts(ids []segment.ID) types.AttributeValue {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = id.String()
	}
	return texts(list)
}

func keyOf(k metadata.Key) item { return item{"pk": text(k.PK), "sk": text(k.SK)} }

// parseKey reads the key of an item that a query found.
func parseKey(it item) metadata.Key {
	pk, _ := it["pk"].(*types.AttributeValueMemberS)
	sk, _ := it["sk"].(*types.AttributeValueMemberS)
	if pk == nil || sk == nil {
		return metadata.Key{}
	}
	return metadata.Key{PK: pk.Value, SK: sk.Value}
}

// fields reads the attributes of an item. The first failure sticks and names key and attribute; what is read after it is zero.
type fields struct {
	key  metadata.Key
	item item
	err  error
}

// bad records that an attribute is not what it must be.
func (f *fields) bad(attr string, kind error, format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: %s, attribute %s: %s", kind, f.key, clip(attr), fmt.Sprintf(format, args...))
	}
}

func (f *fields) has(attr string) bool { return f.item[attr] != nil }

// number reads a whole number in [low, high].
func (f *fields) number(attr string, low, high int64) int64 {
	v, ok := f.item[attr].(*types.AttributeValueMemberN)
	if !ok {
		f.bad(attr, metadata.ErrCorrupt, "is %s, not a number", typeName(f.item[attr]))
		return 0
	}
	n, err := strconv.ParseInt(v.Value, 10, 64)
	if err != nil || n < low || n > high {
		f.bad(attr, metadata.ErrCorrupt, "is %s, not a whole number from %d to %d", clip(v.Value), low, high)
		return 0
	}
	return n
}

func (f *fields) text(attr string) string {
	v, ok := f.item[attr].(*types.AttributeValueMemberS)
	if !ok {
		f.bad(attr, metadata.ErrCorrupt, "is %s, not a string", typeName(f.item[attr]))
		return ""
	}
	return v.Value
}

func (f *fields) binary(attr string) []byte {
	v, ok := f.item[attr].(*types.AttributeValueMemberB)
	if !ok {
		f.bad(attr, metadata.ErrCorrupt, "is %s, not binary", typeName(f.item[attr]))
		return nil
	}
	return v.Value
}

// list reads a list of at most limit elements.
func (f *fields) list(attr string, limit int) []types.AttributeValue {
	v, ok := f.item[attr].(*types.AttributeValueMemberL)
	switch {
	case !ok:
		f.bad(attr, metadata.ErrCorrupt, "is %s, not a list", typeName(f.item[attr]))
	case len(v.Value) > limit:
		f.bad(attr, metadata.ErrCorrupt, "has %d elements, over %d", len(v.Value), limit)
	default:
		return v.Value
	}
	return nil
}

// texts reads a list of strings that are not empty.
func (f *fields) texts(attr string, limit int) []string {
	list := f.list(attr, limit)
	out := make([]string, 0, len(list))
	for i, v := range list {
		s, ok := v.(*types.AttributeValueMemberS)
		if !ok || s.Value == "" {
			f.bad(attr, metadata.ErrCorrupt, "element %d is %s, not a string of some length", i, typeName(v))
			return nil
		}
		out = append(out, s.Value)
	}
	return out
}

// id reads a segment id; an attribute that is not there is none.
func (f *fields) id(attr string) segment.ID {
	if !f.has(attr) {
		return segment.ID{}
	}
	id, err := segment.ParseID(f.text(attr))
	if err != nil {
		f.bad(attr, metadata.ErrCorrupt, "%v", err)
	}
	return id
}

// ids reads a list of segment ids.
func (f *fields) ids(attr string, limit int) (ids []segment.ID) {
	for i, s := range f.texts(attr, limit) {
		id, err := segment.ParseID(s)
		if err != nil {
			f.bad(attr, metadata.ErrCorrupt, "element %d: %v", i, err)
		}
		ids = append(ids, id)
	}
	return ids
}

func (f *fields) class(attr, value string) segment.Class {
	class, err := segment.ParseClass(value)
	if err != nil {
		f.bad(attr, metadata.ErrCorrupt, "%v", err)
	}
	return class
}

// slot reads an attribute kind<slot>, a number from 0, into the offsets; a slot without one stays 0.
func (f *fields) slot(kind byte, attr string, into *metadata.Offsets) {
	s, ok := metadata.ParseSlotAttr(kind, attr)
	if !ok {
		f.bad(attr, metadata.ErrCorrupt, "names no slot below %d", metadata.SlotsPerLane)
		return
	}
	into[s] = f.number(attr, 0, maxNumber)
}

const maxNumber = 1<<63 - 1

// numbered tells whether an attribute is meant as kind<slot>.
func numbered(kind byte, attr string) bool {
	return len(attr) > 1 && attr[0] == kind && attr[1] >= '0' && attr[1] <= '9'
}

// identified tells whether an attribute is meant as kind<segment id>.
func identified(kind byte, attr string) bool { return len(attr) == idAttrLen && attr[0] == kind }

var idAttrLen = len(metadata.EntryAttr(segment.ID{}))

func typeName(v types.AttributeValue) string {
	switch v.(type) {
	case nil:
		return "absent"
	case *types.AttributeValueMemberN:
		return "a number"
	case *types.AttributeValueMemberS:
		return "a string"
	case *types.AttributeValueMemberB:
		return "binary"
	case *types.AttributeValueMemberL:
		return "a list"
	case *types.AttributeValueMemberM:
		return "a map"
	case *types.AttributeValueMemberBOOL:
		return "a boolean"
	}
	return "of another type"
}

func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}
