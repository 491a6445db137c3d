package dynamodb

import (
	"bytes"
	"encoding/json"
	"sync"

	"github.com/varvelog/varve/localdev/dynamodb/storage"
	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// Limits of keys and items, in bytes.
const (
	maxPartitionKey = 2048
	maxSortKey      = 1024
	maxItem         = 400 << 10
)

// table is a table's definition as it is stored.
type table struct {
	Name       string
	Partition  keyAttribute
	Sort       *keyAttribute `json:",omitempty"`
	Attributes []keyAttribute
	Created    int64 // Unix seconds
	ID         string
	OnDemand   bool
	ReadUnits  int64
	WriteUnits int64
	Protected  bool   // DeletionProtectionEnabled
	TimeToLive string // the attribute, empty if disabled
}

// keyAttribute is a key attribute with the kind that its values must have.
type keyAttribute struct {
	Name string
	Kind value.Kind
}

// schemas keeps the parsed definitions, so that not every request parses one. A definition is its own version.
type schemas struct {
	mu     sync.Mutex
	parsed map[string]cachedSchema
}

type cachedSchema struct {
	definition []byte
	table      *table
}

// load reads a table's definition; ResourceNotFoundException if there is none.
func (s *schemas) load(r storage.Reader, name string) (*table, error) {
	definition, err := r.Table(name)
	if err != nil {
		return nil, err
	}
	if definition == nil {
		return nil, clientError("ResourceNotFoundException", "Requested resource not found")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.parsed[name]; ok && bytes.Equal(c.definition, definition) {
		return c.table, nil
	}
	t := &table{}
	if err := json.Unmarshal(definition, t); err != nil {
		return nil, err
	}
	if s.parsed == nil {
		s.parsed = map[string]cachedSchema{}
	}
	s.parsed[name] = cachedSchema{definition, t}
	return t, nil
}

// keyAttributes are the partition key and, if there is one, the sort key.
func (t *table) keyAttributes() []keyAttribute {
	if t.Sort == nil {
		return []keyAttribute{t.Partition}
	}
	return []keyAttribute{t.Partition, *t.Sort}
}

// errKeySchema is a key with other attributes or kinds than the table's.
const errKeySchema value.Invalid = "The provided key element does not match the schema"

// keyOf is the place of the item with exactly this key.
func (t *table) keyOf(key value.Map) (storage.Key, error) {
	attributes := t.keyAttributes()
	if len(key) != len(attributes) {
		return storage.Key{}, errKeySchema
	}
	for _, a := range attributes {
		if v, ok := key[a.Name]; !ok || v.Kind() != a.Kind {
			return storage.Key{}, errKeySchema
		}
	}
	return t.place(key)
}

// keyOfItem is the place of a whole item.
func (t *table) keyOfItem(item value.Map) (storage.Key, error) {
	for _, a := range t.keyAttributes() {
		v, ok := item[a.Name]
		if !ok {
			return storage.Key{}, validation("One or more parameter values were invalid: Missing the key %s in the item", a.Name)
		}
		if v.Kind() != a.Kind {
			return storage.Key{}, validation("One or more parameter values were invalid: Type mismatch for key %s expected: %s actual: %s", a.Name, a.Kind, v.Kind())
		}
	}
	return t.place(item)
}

// place encodes key attributes that are there and of the right kinds.
func (t *table) place(item value.Map) (storage.Key, error) {
	k := storage.Key{Table: t.Name}
	for _, a := range t.keyAttributes() {
		if err := refuseEmpty(item[a.Name], a.Name); err != nil {
			return k, err
		}
	}
	k.Partition, _ = value.EncodeKey(item[t.Partition.Name])
	if len(k.Partition) > maxPartitionKey {
		return k, validation("One or more parameter values were invalid: Size of hashkey has exceeded the maximum size limit of2048 bytes")
	}
	if t.Sort != nil {
		k.Sort, _ = value.EncodeKey(item[t.Sort.Name])
		if len(k.Sort) > maxSortKey {
			return k, validation("One or more parameter values were invalid: Aggregated size of all range keys has exceeded the size limit of 1024 bytes")
		}
	}
	return k, nil
}

// errEmptyKey begins the message about an empty key.
const errEmptyKey = "One or more parameter values are not valid."

func refuseEmpty(v value.Value, name string) error {
	kind := ""
	switch v {
	case value.String(""):
		kind = "string"
	case value.Binary(""):
		kind = "binary"
	default:
		return nil
	}
	return validation(errEmptyKey+" The AttributeValue for a key attribute cannot contain an empty %s value. Key: %s", kind, name)
}

// keyIn are an item's key attributes.
func (t *table) keyIn(item value.Map) value.Map {
	key := value.Map{}
	for _, a := range t.keyAttributes() {
		key[a.Name] = item[a.Name]
	}
	return key
}
