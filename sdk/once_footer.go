package sdk

import (
	"context"

	"github.com/varvelog/varve/internal/objects"
	"github.com/varvelog/varve/segment"
)

// footerTail is how much of a segment's end is read for its footer at first.
const footerTail = 16 << 10

// footer is what an intake segment says of itself.
func (l *Log) footer(ctx context.Context, id segment.ID) (segment.Footer, error) {
	s, from := objects.Of("", id), l.fetcher.objects
	size, err := from.Size(ctx, s)
	if err != nil {
		return segment.Footer{}, err
	}
	n := min(size, footerTail)
	tail, err := from.Get(ctx, s, size-n, n, nil)
	if err != nil {
		return segment.Footer{}, err
	}
	want, err := segment.FooterSize(tail, size)
	if err == nil && want > n {
		tail, err = from.Get(ctx, s, size-want, want, nil)
	}
	if err != nil {
		return segment.Footer{}, err
	}
	return segment.ParseFooter(tail, size)
}
