package sdk

import "context"

// HandledUpTo is what Handle commits of a partition that c holds now when the records up to next are handled, whenever that comes to be called.
func HandledUpTo(c *Consumer, at TopicPartition, next int64) (commit func(context.Context)) {
	h := &handling{consumer: c, ctx: context.Background(), queues: map[TopicPartition]*queue{}}
	h.assigned(h.ctx, []TopicPartition{at})
	q := h.queues[at]
	q.next = next
	return func(ctx context.Context) { h.commit(ctx, q) }
}
