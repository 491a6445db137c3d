package dynamo

import (
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// Attributes of a TOPIC row. rowVersion goes up when a build that does not know the new form must not touch the row; attributes that such a
// build may pass over do not need it, since rows are updated and never put again as a whole.
const (
	attrRow         = "v"
	attrTopicID     = "id"
	attrVersion     = "version"
	attrPartitions  = "partitions"
	attrWidth       = "width"
	attrNamed       = "named"
	attrLanes       = "lanes"
	attrPartitioner = "partitioner"
	attrKeyed       = "keyed" // true, or not there
	attrHistory     = "history"
	attrClasses     = "classes" // of a GONE row too
	attrStored      = "stored"
	attrSettings    = "config"

	rowVersion = 1
)

// maxListed bounds the lanes of a topic and the partition counts that it has had, so that a row stays far below the 400 KB of an item.
const maxListed = 4096

// topicItem is the attributes of a topic besides its key and attrKeyed.
func topicItem(t *metadata.Topic) item {
	history := &types.AttributeValueMemberL{}
	for _, g := range t.History {
		history.Value = append(history.Value, &types.AttributeValueMemberL{Value: []types.AttributeValue{number(g.Version), number(int64(g.Partitions))}})
	}
	settings := &types.AttributeValueMemberM{Value: item{}}
	for name, v := range t.Config.Map() {
		settings.Value[name] = text(v)
	}
	return item{
		attrRow:         number(rowVersion),
		attrTopicID:     text(string(t.ID)),
		attrVersion:     number(t.Version),
		attrPartitions:  number(int64(t.Partitions)),
		attrWidth:       number(int64(t.LaneWidth)),
		attrLanes:       texts(t.Lanes),
		attrPartitioner: text(t.Partitioner),
		attrHistory:     history,
		attrClasses:     classNames(t.Classes),
		attrStored:      classNames(t.Stored),
		attrSettings:    settings,
	}
}

func classNames(classes []segment.Class) types.AttributeValue {
	names := make([]string, len(classes))
	for i, c := range classes {
		names[i] = c.String()
	}
	return texts(names)
}

func (f *fields) classes(attr string) (classes []segment.Class) {
	for _, c := range f.texts(attr, maxListed) {
		classes = append(classes, f.class(attr, c))
	}
	return classes
}

// decodeTopic reads a TOPIC row. ErrVersion if a newer build wrote what this one must not pass over: a row version, or a setting that this build
// would ignore.
func decodeTopic(it item) (*metadata.Topic, error) {
	f := &fields{key: parseKey(it), item: it}
	if v := f.number(attrRow, 1, maxNumber); v > rowVersion {
		f.bad(attrRow, metadata.ErrVersion, "is %d, this build knows %d", v, rowVersion)
	}
	if f.err != nil {
		return nil, f.err
	}
	t := &metadata.Topic{
		Name:        f.key.SK,
		ID:          segment.TopicID(f.text(attrTopicID)),
		Version:     f.number(attrVersion, 1, maxNumber),
		LaneWidth:   int(f.number(attrWidth, 1, metadata.SlotsPerLane)),
		Partitions:  int(f.number(attrPartitions, 1, maxListed*metadata.SlotsPerLane)),
		Partitioner: f.text(attrPartitioner),
		Keyed:       f.has(attrKeyed),
		Config:      f.settings(),
		History:     f.history(),
		Classes:     f.classes(attrClasses),
	}
	if f.has(attrStored) {
		t.Stored = f.classes(attrStored)
	}
	if len(t.Stored) == 0 { // nobody has looked yet
		t.Stored = t.Classes
	}
	for _, lane := range f.texts(attrLanes, maxListed) {
		t.Lanes = append(t.Lanes, metadata.LaneID(lane))
	}
	if f.err == nil {
		if err := t.Validate(); err != nil {
			f.err = fmt.Errorf("%w: %s: %v", metadata.ErrCorrupt, f.key, err)
		}
	}
	if f.err != nil {
		return nil, f.err
	}
	return t, nil
}

func (f *fields) history() (history []metadata.Growth) {
	for i, v := range f.list(attrHistory, maxListed) {
		pair, ok := v.(*types.AttributeValueMemberL)
		if !ok || len(pair.Value) != 2 {
			f.bad(attrHistory, metadata.ErrCorrupt, "element %d is not a list of two", i)
			return nil
		}
		g := &fields{key: f.key, item: item{attrHistory: pair.Value[0], attrPartitions: pair.Value[1]}}
		history = append(history, metadata.Growth{Version: g.number(attrHistory, 1, maxNumber),
			Partitions: int(g.number(attrPartitions, 1, maxListed*metadata.SlotsPerLane))})
		if g.err != nil && f.err == nil {
			f.err = g.err
		}
	}
	return history
}

// settings reads the configuration under Kafka's names. One that is not there has its default.
func (f *fields) settings() metadata.TopicConfig {
	c := metadata.DefaultTopicConfig()
	m, ok := f.item[attrSettings].(*types.AttributeValueMemberM)
	if !ok {
		f.bad(attrSettings, metadata.ErrCorrupt, "is %s, not a map", typeName(f.item[attrSettings]))
		return c
	}
	known := metadata.TopicConfig{Isolate: true}.Map() // all names
	for name, v := range m.Value {
		s, ok := v.(*types.AttributeValueMemberS)
		if _, knows := known[name]; !knows {
			f.bad(attrSettings, metadata.ErrVersion, "has %s, which this build does not know", strconv.Quote(clip(name)))
		} else if !ok {
			f.bad(attrSettings, metadata.ErrCorrupt, "%s is %s, not a string", name, typeName(v))
		} else if err := c.Set(name, s.Value); err != nil {
			f.bad(attrSettings, metadata.ErrCorrupt, "%v", err)
		}
	}
	return c
}

// Attributes of a GONE row.
const (
	attrName    = "name"
	attrDeleted = "deleted" // ms since 1970
	attrPass    = "pass"
)

func goneItem(g *metadata.GoneTopic) item {
	it := keyOf(metadata.GoneKey(g.ID))
	it[attrName], it[attrLanes], it[attrClasses] = text(g.Name), texts(g.Lanes), classNames(g.Classes)
	if len(g.Named) > 0 {
		it[attrNamed] = idTexts(g.Named)
	}
	it[attrWidth] = number(int64(g.Width))
	it[attrDeleted], it[attrPass] = number(g.Deleted.UnixMilli()), number(int64(g.Pass))
	return it
}

func decodeGone(it item) (*metadata.GoneTopic, error) {
	f := &fields{key: parseKey(it), item: it}
	g := &metadata.GoneTopic{ID: segment.TopicID(f.key.SK), Name: f.text(attrName), Pass: int(f.number(attrPass, 0, 1<<31))}
	g.Width = int(f.number(attrWidth, 1, metadata.SlotsPerLane))
	g.Deleted = millis(f.number(attrDeleted, 0, 1<<53))
	for _, lane := range f.texts(attrLanes, maxListed) {
		g.Lanes = append(g.Lanes, metadata.LaneID(lane))
	}
	g.Classes = f.classes(attrClasses)
	if f.has(attrNamed) {
		g.Named = f.ids(attrNamed, metadata.MaxGoneNamed)
	}
	if err := g.ID.Validate(); err != nil {
		f.bad("sk", metadata.ErrCorrupt, "%v", err)
	}
	if f.err != nil {
		return nil, f.err
	}
	return g, nil
}
