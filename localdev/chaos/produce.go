package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/varvelog/varve/sdk"
)

// appender is a producer of a worker, with the numbers of its records.
type appender struct {
	*worker
	*sdk.Producer
	number int
	call   int64
}

func (w *worker) appender(log *sdk.Log) (*appender, error) {
	p, err := log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()), sdk.WithBufferBytes(1<<18), sdk.WithMaxInFlight(1+w.below(5)),
		sdk.WithDeliveryDeadline([]time.Duration{4 * time.Second, 30 * time.Second}[w.below(2)]), sdk.WithSmallSegments([]int{0, 300, 4000}[w.below(3)]),
		sdk.WithLinger(time.Duration(w.below(10))*time.Millisecond, time.Duration(10+w.below(90))*time.Millisecond))
	return &appender{worker: w, Producer: p}, err
}

// keys are those of the topic of which the latest stays.
const keys = 20

// record is the appender's next record, and its line.
func (a *appender) record(topic string, partition int) (*sdk.Record, line) {
	a.number++
	l := line{Kind: append_, Topic: topic, Partition: partition, Value: fmt.Sprintf("%s/%d", a.by(), a.number)}
	value := l.Value
	if a.oneIn(8) {
		value += " " + strings.Repeat("x", a.below(4000))
	}
	r := &sdk.Record{Topic: topic, Partition: partition, Value: []byte(value)}
	if topic == latest {
		l.Key = fmt.Sprintf("key-%d", a.below(keys))
		r.Key = []byte(l.Key)
	}
	return r, l
}

// produce appends in bursts until it is to end, and then settles what is under way.
func (w *worker) produce(ctx context.Context, log *sdk.Log) error {
	a, err := w.appender(log)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		switch n := w.below(12); {
		case n == 0:
			a.together(ctx)
		case n < 3:
			a.burst(ctx, []string{latest, window}[n-1])
		default:
			a.burst(ctx, orders)
		}
		w.rest(ctx, w.Pace)
	}
	flush, cancel := w.env.WithTimeout(context.Background(), flushTime)
	defer cancel()
	return a.close(flush)
}

// close settles what is under way. What fails meanwhile its promise tells.
func (a *appender) close(ctx context.Context) error {
	err := a.Close(ctx)
	if ctx.Err() != nil {
		return err
	}
	return nil
}

// burst appends a few records one by one.
func (a *appender) burst(ctx context.Context, topic string) {
	for range 1 + a.below(10) {
		r, l := a.record(topic, a.below(partitionsOf(topic)))
		a.journal.write(l)
		a.Produce(ctx, r, func(r *sdk.Record, err error) {
			a.journal.write(line{Kind: told, Value: l.Value, Offset: r.Offset, Failure: a.journal.failed(err)})
		})
		a.journal.write(line{Kind: accepted, Value: l.Value})
	}
}

// together appends a few records to any partitions, all or none.
func (a *appender) together(ctx context.Context) {
	a.call++
	var records []*sdk.Record
	var lines []line
	for range 2 + a.below(3) {
		r, l := a.record(orders, a.below(partitionsOf(orders)))
		l.Call, l.Loose = a.call, true
		records, lines = append(records, r), append(lines, l)
	}
	a.journal.write(lines...)
	a.settled(records, lines, a.AppendAtomic(context.WithoutCancel(ctx), records...))
}

// settled tells what became of records that went together.
func (a *appender) settled(records []*sdk.Record, lines []line, err error) {
	var all []line
	for i, r := range records {
		all = append(all, line{Kind: told, Value: lines[i].Value, Offset: r.Offset, Failure: a.journal.failed(err)})
	}
	a.journal.write(all...)
}
