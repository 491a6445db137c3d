package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// A topic that is deleted between the claim and the start is told once, and holds up no other topic.
func TestTopicGoneBeforeItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for _, topic := range []string{"t", "u"} {
			b.create(topic, 1, 64)
			b.fill(topic, 1, 3)
		}
		w := &told{}
		log, err := sdk.Open(b.ctx, "mem://", sdk.WithDriver(b.memory), sdk.WithHooks(w))
		check(t, err)
		c, err := reach(t, log, w).NewConsumer(b.ctx, "g", []string{"t", "u"}, append(w.options(), sdk.Reading(sdk.WithWait(time.Second)))...)
		check(t, err)
		time.Sleep(time.Second) // both are claimed
		check(t, b.log.Admin().DeleteTopic(b.ctx, "t"))
		read := 0
		for range 60 {
			fetches, err := c.Poll(b.ctx)
			check(t, err)
			for _, f := range fetches {
				if f.Topic != "u" {
					t.Errorf("read of %s", f.Topic)
				}
				read += len(f.Records)
			}
		}
		if what := w.take(); read != 3 || !slices.Equal(what, []string{"+t/0", "+u/0", "gone t, anew false, left 1", "!t/0"}) {
			t.Errorf("read %d records of the other topic, told %v", read, what)
		}
		check(t, c.Close(b.ctx))
	})
}

// What was claimed, lost and claimed again before Poll was called is begun once, by the lease that stands.
func TestStaleClaimIsNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		b.fill("t", 1, 10)
		var told []string
		c := b.joins(sdk.OnAssigned(func(_ context.Context, all []sdk.TopicPartition) map[sdk.TopicPartition]int64 {
			told = append(told, fmt.Sprint("+", all))
			return nil
		}), sdk.OnLost(func(_ context.Context, all []sdk.TopicPartition) { told = append(told, fmt.Sprint("!", all)) }))
		time.Sleep(10 * time.Second)
		_, err := b.log.Admin().ResetGroup(b.ctx, sdk.GroupReset{Group: "g", Topics: []string{"t"}, Force: true, To: sdk.ResetTo{Position: sdk.AtOffset(6)}})
		check(t, err)
		time.Sleep(10 * time.Second)
		if got := span(t, b.takes(c)); got != [2]int64{6, 9} || !slices.Equal(told, []string{"+[t/0]"}) {
			t.Errorf("read %v, told %v", got, told)
		}
		check(t, c.Close(b.ctx))
	})
}

// The read buffer is one for all topics.
func TestReadBufferIsForAllTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const topics, each, size, buffer = 4, 16, 512 << 10, 4 << 20
		b := newBench(t)
		value := make([]byte, size)
		rand.NewChaCha8([32]byte{}).Read(value)
		batch := b.encode([]segment.Record{{Timestamp: 1, Value: value}})
		var names []string
		for i := range topics {
			names = append(names, fmt.Sprint("t", i))
			b.create(names[i], 1, 64)
			for range each {
				b.writeBatches(names[i], map[int][][]byte{0: {batch}})
			}
		}
		c, err := reach(t, b.log, nil).NewConsumer(b.ctx, "g", names, sdk.ManualCommit(), sdk.Reading(sdk.WithReadBuffer(buffer), sdk.WithPollBytes(1), sdk.WithWait(0)))
		check(t, err)
		time.Sleep(time.Second)
		b.counts.take()
		for range 2 * topics { // a record each, and each topic is asked
			_, err := c.Poll(b.ctx)
			check(t, err)
			time.Sleep(time.Minute)
		}
		_, gets := b.counts.take()
		most := buffer/size + 2*topics + topics // what is buffered, what was returned, and one over for each topic
		t.Logf("%d objects of 512 KiB were read for a buffer of 4 MiB and %d polls of %d topics, at most %d may be", gets, 2*topics, topics, most)
		if gets > most {
			t.Error("too many")
		}
		check(t, c.Close(b.ctx))
	})
}

// What the start policy comes to is fixed for each partition that is begun, also when the commit fails for two reasons, of which one is no trouble: a partition that was lost
// does not hide one for which the table did not answer.
func TestStartIsFixedThoughAnotherPartitionIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 2, 1) // of two lanes
		b.fill("t", 2, 10)
		unanswered := b.topics["t"].Place(1).Lane
		first := true
		c := b.joins(sdk.ManualCommit(), sdk.StartAt(sdk.Latest), sdk.OnAssigned(func(context.Context, []sdk.TopicPartition) map[sdk.TopicPartition]int64 {
			if first {
				first = false
				_, err := b.log.Admin().ResetGroup(b.ctx, sdk.GroupReset{Group: "g", Partitions: []int{0}, To: sdk.ResetTo{Position: sdk.Earliest}, Force: true})
				check(t, err)
				b.faults(nil, func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
					if c.Op == "UpdateItem" && strings.Contains(c.Keys[0].Sort, string(unanswered)) {
						return dynamodb.Dropped()
					}
					return dynamodb.Fault{}
				})
			}
			return nil
		}))
		if _, err := c.Poll(b.ctx); !errors.Is(err, sdk.ErrUnreachable) {
			t.Errorf("the start could not be committed: %v", err)
		}
		b.faults(nil, nil)
		b.takes(c)
		if p := b.describe("g", sdk.Earliest).Partitions[1]; p.Committed != 10 {
			t.Errorf("committed %d when it is read from 10", p.Committed)
		}
		check(t, c.Close(b.ctx))
	})
}
