package sdk

import (
	"context"
	"fmt"

	"github.com/varvelog/varve/internal/objects"
)

// maxSegmentBytesRead bounds what ReadSegment takes into memory: twice what a producer may put into one segment.
const maxSegmentBytesRead = 2 * maxSegmentBytes

// ReadSegment returns the bytes of a segment, for inspection. The name is an object's, relative to the log's prefix, or an item's key, as a *DataError or
// a hook's event gives it.
func (a *Admin) ReadSegment(ctx context.Context, name string) ([]byte, error) {
	if err := a.log.direct("read a segment"); err != nil {
		return nil, err
	}
	s, err := objects.Parse(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	size, err := a.log.fetcher.objects.Size(ctx, s)
	if err != nil {
		return nil, err
	}
	if size > maxSegmentBytesRead {
		return nil, fmt.Errorf("%w: object %q has %d bytes, a segment has at most %d", ErrCorrupt, name, size, maxSegmentBytesRead)
	}
	return a.log.fetcher.objects.Get(ctx, s, 0, size, nil)
}
