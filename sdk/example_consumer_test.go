package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"

	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/sdk"
)

// orders opens a log in memory with a topic "orders" of three records and an empty topic "invoices", of one partition each.
func orders(ctx context.Context) *sdk.Log {
	l, err := sdk.Open(ctx, "mem://", sdk.WithDriver(embedded.Driver()))
	must(err)
	for _, topic := range []string{"orders", "invoices"} {
		_, err := l.Admin().CreateTopic(ctx, sdk.NewTopic{Name: topic, Partitions: 1})
		must(err)
	}
	p, err := l.NewProducer()
	must(err)
	for _, order := range []string{"apples", "pears", "plums"} {
		must(p.ProduceSync(ctx, &sdk.Record{Topic: "orders", Value: []byte(order)}).Err())
	}
	must(p.Close(ctx))
	return l
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// At least once: the work comes before the commit, which is automatic here. A crash between them has the records worked on again.
func Example_atLeastOnce() {
	ctx := context.Background()
	l := orders(ctx)
	c, err := l.NewConsumer(ctx, "billing", []string{"orders"})
	must(err)
	for left := 3; left > 0; {
		fetches, err := c.Poll(ctx) // what the last one returned is finished, and will be committed
		must(err)
		for _, f := range fetches {
			for _, r := range f.Records {
				fmt.Println(r.Offset, string(r.Value))
				left--
			}
		}
	}
	must(c.Commit(ctx)) // of the last ones too, for this example ends here
	must(c.Close(ctx))
	must(l.Close())
	// Output:
	// 0 apples
	// 1 pears
	// 2 plums
}

// At most once: the commit comes before the work. A crash between them leaves the work undone; it is never done twice.
func Example_atMostOnce() {
	ctx := context.Background()
	l := orders(ctx)
	c, err := l.NewConsumer(ctx, "alerts", []string{"orders"}, sdk.ManualCommit())
	must(err)
	for left := 3; left > 0; {
		fetches, err := c.Poll(ctx)
		must(err)
		if err := c.Commit(ctx); err != nil {
			if errors.Is(err, sdk.ErrNotHeld) {
				continue // another member's by now: drop it
			}
			must(err)
		}
		for _, f := range fetches {
			for _, r := range f.Records {
				fmt.Println(r.Offset, string(r.Value))
				left--
			}
		}
	}
	must(c.Close(ctx))
	must(l.Close())
	// Output:
	// 0 apples
	// 1 pears
	// 2 plums
}

// Exactly once: a Step appends what a record leads to and commits its offset, both or neither.
func ExampleConsumer_Step() {
	ctx := context.Background()
	l := orders(ctx)
	c, err := l.NewConsumer(ctx, "invoicing", []string{"orders"}, sdk.ManualCommit())
	must(err)
	p, err := l.NewProducer()
	must(err)
	for left := 3; left > 0; {
		fetches, err := c.Poll(ctx)
		must(err)
		for _, f := range fetches {
			var invoices []*sdk.Record
			for _, r := range f.Records {
				invoices = append(invoices, &sdk.Record{Topic: "invoices", Value: append([]byte("pay for "), r.Value...)})
			}
			next := f.Records[len(f.Records)-1].Offset + 1
			err := c.Step(ctx, p, map[sdk.TopicPartition]sdk.CommitOffset{{Topic: f.Topic, Partition: f.Partition}: {Offset: next}}, invoices...)
			if errors.Is(err, sdk.ErrNotHeld) || errors.Is(err, sdk.ErrUnknown) {
				continue // nothing of it counts here: whoever has the partition now reads on from what is committed
			}
			must(err)
			left -= len(f.Records)
		}
	}
	must(c.Close(ctx))
	must(p.Close(ctx))

	r, err := l.NewReader(ctx, "invoices", sdk.To(sdk.Latest))
	must(err)
	for {
		fetches, err := r.Poll(ctx)
		if err == io.EOF {
			break
		}
		must(err)
		for _, f := range fetches {
			for _, r := range f.Records {
				fmt.Println(r.Offset, string(r.Value))
			}
		}
	}
	must(r.Close())
	must(l.Close())
	// Output:
	// 0 pay for apples
	// 1 pay for pears
	// 2 pay for plums
}

// Handle commits, retries and rebalances; the application only handles records.
func ExampleLog_Handle() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l := orders(ctx)
	left := 3
	err := l.Handle(ctx, "shipping", []string{"orders"}, func(_ context.Context, r *sdk.Record) error {
		fmt.Println(r.Offset, string(r.Value))
		if left--; left == 0 {
			cancel()
		}
		return nil
	})
	fmt.Println(err)
	must(l.Close())
	// Output:
	// 0 apples
	// 1 pears
	// 2 plums
	// context canceled
}
