package dynamodb

import (
	"context"
	"fmt"
	"strings"

	"github.com/varvelog/varve/localdev/dynamodb/expr"
	"github.com/varvelog/varve/localdev/dynamodb/storage"
)

// maxSegments is how many segments a scan may be cut into.
const maxSegments = 1_000_000

// scan performs Scan: partition by partition in the order of their hashes, a segment being a range of hashes.
func scan(_ context.Context, c *call) ([]byte, error) {
	q := c.q
	p, err := c.engine.newPage(q, expr.Filter, expr.Projecting)
	if err != nil {
		return nil, err
	}
	segment, total, err := q.segments()
	if err != nil {
		return nil, err
	}
	err = c.view(q.consistent, func(r storage.Reader) error {
		if p.table, err = c.engine.schemas.load(r, q.table); err != nil {
			return err
		}
		return p.scan(r, segment, total)
	})
	if err != nil {
		return nil, err
	}
	return p.answer(c.engine), nil
}

func (q *request) segments() (segment, total int64, err error) {
	if (q.segment == nil) != (q.totalSegments == nil) {
		absent, present := "Segment", "TotalSegments"
		if q.totalSegments == nil {
			absent, present = present, absent
		}
		return 0, 0, validation("The %s parameter is required but was not present in the request when %s parameter is present", absent, present)
	}
	if q.segment == nil {
		return 0, 1, nil
	}
	segment, total = *q.segment, *q.totalSegments
	if total < 1 || total > maxSegments {
		return 0, 0, constraint(fmt.Sprintf("'%d'", total), "totalSegments", fmt.Sprintf("Member must have value between 1 and %d", maxSegments))
	}
	if segment < 0 || segment >= total {
		return 0, 0, validation("The Segment parameter is zero-based and must be less than parameter TotalSegments: Segment: %d is not less than TotalSegments: %d", segment, total)
	}
	return segment, total, nil
}

func (p *page) scan(r storage.Reader, segment, total int64) error {
	at := storage.Place{}
	if p.q.startKey != nil {
		start, err := p.table.keyOf(p.q.startKey)
		if err != nil {
			return validation("The provided starting key is invalid: %v", err)
		}
		at = storage.PlaceOf(start.Partition)
		if int64(at.Hash)*total>>32 != segment {
			return validation("The provided starting key is outside scan boundaries: its segment is not %d of %d", segment, total)
		}
		err = r.Range(p.table.Name, start.Partition, storage.Bounds{From: start.Sort}, false, except(start.Sort, p.visit))
		if err != nil || p.more {
			return err
		}
	} else if segment > 0 {
		// The last place before the segment's first hash.
		at = storage.Place{Hash: uint32((segment<<32+total-1)/total) - 1, Partition: strings.Repeat("\xff", maxPartitionKey+1)}
	}
	for {
		next, ok, err := r.NextPartition(p.table.Name, at)
		if err != nil || !ok || int64(next.Hash)*total>>32 != segment {
			return err
		}
		if err := r.Range(p.table.Name, next.Partition, storage.Bounds{}, false, p.visit); err != nil || p.more {
			return err
		}
		at = next
	}
}
