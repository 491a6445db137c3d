package dynamo

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// Attributes of an archive row and of an entry of the work list.
const (
	attrRowEnd     = "end"
	attrRowCount   = "n"
	attrRowSegment = "seg"
	attrRowStart   = "at"
	attrRowBytes   = "len"
	attrRowMaxTime = "mt"
	attrRowRunMax  = "rm"
	attrRowFirst   = "t0"
	attrRowLast    = "t1"
	attrRowSum     = "sum"
	attrRowGone    = "gone"

	attrLane = "lane"
	attrFrom = "from"
	attrTo   = "to"
	attrLeft = "left"
)

func rowItem(r *metadata.Row) item {
	it := keyOf(r.Key())
	it[attrRowEnd], it[attrRowCount], it[attrRowRunMax] = number(r.End), number(r.Count), number(r.RunMax)
	it[attrRowFirst], it[attrRowLast] = number(r.First.UnixMilli()), number(r.Last.UnixMilli())
	if r.Count > 0 {
		it[attrRowSegment], it[attrRowStart] = text(r.Segment.String()), number(r.Start)
		it[attrRowBytes], it[attrRowMaxTime] = number(r.Bytes), number(r.MaxTime)
	}
	if r.Summed {
		it[attrRowSum] = text(r.Sum.String())
	}
	if r.Gone.Records > 0 {
		it[attrRowGone] = text(r.Gone.String())
	}
	return it
}

// sum reads a sum; an attribute that is not there is that of no records.
func (f *fields) sum(attr string) segment.Sum {
	if !f.has(attr) {
		return segment.Sum{}
	}
	s, err := segment.ParseSum(f.text(attr))
	if err != nil {
		f.bad(attr, metadata.ErrCorrupt, "%v", err)
	}
	return s
}

func decodeRow(it item) (*metadata.Row, error) {
	key := parseKey(it)
	topic, partition, base, err := metadata.ParseRowKey(key)
	if err != nil {
		return nil, err
	}
	f := &fields{key: key, item: it}
	r := &metadata.Row{Topic: topic, Partition: partition, Base: base, Segment: f.id(attrRowSegment)}
	r.End, r.Count, r.RunMax = f.number(attrRowEnd, base+1, maxNumber), f.number(attrRowCount, 0, maxNumber), f.number(attrRowRunMax, -maxNumber, maxNumber)
	r.First, r.Last = millis(f.number(attrRowFirst, 0, maxNumber)), millis(f.number(attrRowLast, 0, maxNumber))
	if r.Count > 0 {
		r.Start, r.Bytes = f.number(attrRowStart, 1, maxNumber), f.number(attrRowBytes, 1, maxNumber)
		r.MaxTime = f.number(attrRowMaxTime, -maxNumber, maxNumber)
	}
	r.Summed, r.Sum, r.Gone = f.has(attrRowSum), f.sum(attrRowSum), f.sum(attrRowGone)
	if f.err != nil {
		return nil, f.err
	}
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", metadata.ErrCorrupt, key, err)
	}
	return r, nil
}

// Row implements metadata.RowReader.
func (t *Table) Row(ctx context.Context, topic segment.TopicID, partition int, offset int64, consistency metadata.Consistency) (*metadata.Row, error) {
	c := reading("Row", "", metadata.RowKey(topic, partition, offset))
	if offset < 0 || partition < 0 {
		return nil, c.error("", metadata.ErrNoRow)
	}
	q := t.query(c.key.PK, bool(consistency))
	q.KeyConditionExpression = aws.String("pk = :pk AND sk <= :sk")
	q.ExpressionAttributeValues[":sk"] = text(c.key.SK)
	q.ScanIndexForward, q.Limit = aws.Bool(false), aws.Int32(1)
	out, err := repeat(ctx, t, c, t.client.Query, q)
	if err != nil {
		return nil, err
	}
	if len(out.Items) == 0 {
		return nil, c.error("", metadata.ErrNoRow)
	}
	r, err := decodeRow(out.Items[0])
	if err != nil {
		return nil, c.error("", err)
	}
	return r, nil
}

// Rows implements metadata.RowReader.
func (t *Table) Rows(ctx context.Context, topic segment.TopicID, partition int, from, to int64, limit int, consistency metadata.Consistency) (rows []*metadata.Row, more bool, err error) {
	from = max(from, 0)
	c := reading("Rows", "", metadata.RowKey(topic, partition, from)).within(pageTimeout)
	if from >= to || limit < 1 {
		return nil, from < to, nil
	}
	q := t.between(c.key.PK, c.key.SK, metadata.RowKey(topic, partition, to-1).SK, bool(consistency))
	q.Limit = aws.Int32(int32(min(limit, maxPage)))
	out, err := repeat(ctx, t, c, t.client.Query, q)
	if err != nil {
		return nil, false, err
	}
	for _, it := range out.Items {
		r, err := decodeRow(it)
		if err != nil {
			c.key = parseKey(it)
			return nil, false, c.error("", err)
		}
		rows = append(rows, r)
	}
	return rows, len(out.LastEvaluatedKey) > 0, nil
}

// Publish implements metadata.Publisher. Action 0 is the state's.
func (t *Table) Publish(ctx context.Context, p *metadata.Publication) error {
	c := writing("Publish", p.Lane, metadata.StateKey(p.Lane)).within(transactTimeout)
	c.fresh = freshness{p.Minted, p.ID.Time(), metadata.MaxArchiveAge}
	if err := p.Validate(); err != nil {
		return c.error("", err)
	}
	items := []types.TransactWriteItem{t.publishState(p)}
	if p.Listed() {
		items = append(items, types.TransactWriteItem{Put: &types.Put{TableName: &t.name, Item: replacedItem(p)}})
	}
	items = append(items, t.publishRows(p)...)
	_, err := repeat(ctx, t, c, t.client.TransactWriteItems, t.transaction(publicationToken(p), items))
	if c.old && !c.doubt {
		return c.error("", &metadata.StaleError{ID: p.ID})
	}
	var stopped *cancelled
	if !errors.As(err, &stopped) {
		return err
	}
	for i, r := range stopped.reasons {
		switch {
		case value(r.Code) != codeConditionFailed:
		case i > 0:
			return c.error("", fmt.Errorf("%w: a row is another by now", metadata.ErrChanged))
		case r.Item == nil:
			return c.error("", metadata.ErrNoState)
		default:
			return c.stateRefused(p, r.Item)
		}
	}
	return err
}

// publicationToken is the same for a publication whoever repeats it. A repair publishes what a segment has of several slots piece by piece, as what is before it comes.
func publicationToken(p *metadata.Publication) string {
	h := fnv.New64a()
	fmt.Fprint(h, p.From, p.To)
	for i := range p.Put {
		fmt.Fprint(h, "|", p.Put[i].Partition, p.Put[i].Base)
	}
	return fmt.Sprintf("P%s-%014x", p.ID, h.Sum64()>>8)
}

// stateRefused says why the state's condition failed.
func (c *call) stateRefused(p *metadata.Publication, it item) error {
	s, err := c.state(it)
	switch {
	case err != nil:
		return err
	case !s.Floor.IsZero() && !s.Floor.Less(p.ID):
		return c.error("", &metadata.StaleError{ID: p.ID, Floor: s.Floor})
	case s.Version > 0 && s.Class != p.ID.Class():
		return c.error("", fmt.Errorf("%w: archive segments are of class %s since version %d of the topic, not %s", metadata.ErrChanged, s.Class, s.Version, p.ID.Class()))
	}
	return c.error("", fmt.Errorf("%w: archived up to order %d, not %d", metadata.ErrChanged, s.Archived, p.From))
}

// publishState moves the state, or only looks at it where nothing in it moves.
func (t *Table) publishState(p *metadata.Publication) types.TransactWriteItem {
	x := newExpr()
	if p.From < p.To {
		x.assign(attrArchived, x.num(p.To))
	}
	for _, s := range slices.Sorted(maps.Keys(p.Ends)) {
		x.assign(metadata.ArchivedAttr(s), x.num(p.Ends[s]))
	}
	x.require(x.absentOrUnder(attrStateFloor, text(p.ID.String())))
	x.require("(" + x.absent(attrClass) + " OR " + x.is(attrClass, text(p.ID.Class().String())) + ")")
	if p.From < p.To {
		x.require(x.isNumber(attrArchived, p.From))
	} else {
		x.require(x.exists(attrArchived))
	}
	key := metadata.StateKey(p.Lane)
	if x.text() != nil {
		return types.TransactWriteItem{Update: t.updateIn(key, x)}
	}
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
		TableName:                           &t.name,
		Key:                                 keyOf(key),
		ConditionExpression:                 x.condition(),
		ExpressionAttributeNames:            x.names,
		ExpressionAttributeValues:           x.given(),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

// SetCleaned implements metadata.KeyCleaner. A repeat after a lost answer finds it set.
func (t *Table) SetCleaned(ctx context.Context, lane metadata.LaneID, slot metadata.Slot, was, now metadata.Cleaning) error {
	c := writing("SetCleaned", lane, metadata.StateKey(lane))
	if slot >= metadata.SlotsPerLane || now.To < 0 || now.Settled < 0 || now.Purged < 0 {
		return c.error("", &metadata.FieldError{Field: "cleaning", Value: fmt.Sprintf("slot %d: %+v", slot, now), Valid: "a slot, and offsets"})
	}
	attr, x := metadata.CleanedAttr(slot), newExpr()
	x.assign(attr, x.value(cleaning(now)))
	x.require(x.exists(attrArchived))
	if was == (metadata.Cleaning{}) {
		x.require(x.absent(attr))
	} else {
		x.require(x.is(attr, cleaning(was)))
	}
	image, ok, err := t.set(ctx, c, x)
	switch {
	case err != nil:
		return err
	case image == nil:
		return c.error("", metadata.ErrNoState)
	case ok:
		return nil
	}
	s, err := c.state(image)
	if err == nil && s.Cleaned[slot] != now {
		err = c.error("", fmt.Errorf("%w: slot %d is key-compacted to %+v", metadata.ErrChanged, slot, s.Cleaned[slot]))
	}
	return err
}

func (t *Table) publishRows(p *metadata.Publication) (items []types.TransactWriteItem) {
	old := map[metadata.Key]*metadata.Row{}
	for i := range p.Replace {
		old[p.Replace[i].Key()] = &p.Replace[i]
	}
	for i := range p.Put {
		put := &types.Put{TableName: &t.name, Item: rowItem(&p.Put[i]), ConditionExpression: aws.String("attribute_not_exists(pk)")}
		if was := old[p.Put[i].Key()]; was != nil {
			x := unchanged(was)
			put.ConditionExpression, put.ExpressionAttributeNames, put.ExpressionAttributeValues = x.condition(), x.names, x.given()
			delete(old, was.Key())
		}
		items = append(items, types.TransactWriteItem{Put: put})
	}
	for i := range p.Replace {
		if r := &p.Replace[i]; old[r.Key()] != nil {
			x := unchanged(r)
			items = append(items, types.TransactWriteItem{Delete: &types.Delete{TableName: &t.name, Key: keyOf(r.Key()),
				ConditionExpression: x.condition(), ExpressionAttributeNames: x.names, ExpressionAttributeValues: x.given()}})
		}
	}
	return items
}

// unchanged is the condition that a row is still the one that was read.
func unchanged(r *metadata.Row) *expr {
	x := newExpr()
	x.require(x.isNumber(attrRowEnd, r.End))
	if r.Segment.IsZero() {
		x.require(x.absent(attrRowSegment))
	} else {
		x.require(x.is(attrRowSegment, text(r.Segment.String())))
	}
	return x
}

func replacedItem(p *metadata.Publication) item {
	it := keyOf(metadata.ReplacedKey(p.ID))
	it[attrLane], it[attrFrom], it[attrTo] = text(string(p.Lane)), number(p.From), number(p.To)
	it[attrLeft] = idTexts(p.Left)
	return it
}

func decodeReplaced(it item) (*metadata.Replaced, error) {
	key := parseKey(it)
	id, err := metadata.ParseSegmentKey(key)
	if err != nil {
		return nil, err
	}
	f := &fields{key: key, item: it}
	r := &metadata.Replaced{ID: id, Lane: metadata.LaneID(f.text(attrLane)), From: f.number(attrFrom, 0, maxNumber)}
	r.To = f.number(attrTo, r.From, maxNumber)
	r.Left = f.ids(attrLeft, metadata.MaxPublishRows)
	return r, f.err
}
