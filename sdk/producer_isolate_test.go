package sdk_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// topicsOf is which of the topics, separated by blanks, each segment in the index has records of.
func (w *world) topicsOf(topics ...string) map[segment.ID]string {
	w.t.Helper()
	of := map[segment.ID]string{}
	for _, name := range topics {
		row, err := w.view.Table.Topic(judge, name)
		w.must(err)
		for _, lane := range row.Lanes {
			head, err := w.view.Table.Head(judge, lane, metadata.Strong)
			w.must(err)
			for _, e := range w.entries(head) {
				of[e.ID] = strings.TrimSpace(of[e.ID] + " " + name)
			}
		}
	}
	return of
}

// Records of an isolated topic are in segments of its own, however they are appended; those of the other topics share segments.
func TestIsolatedTopicSharesNoSegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		log := w.open()
		names := []string{"a", "alone", "b", "lonely"}
		for i, isolate := range []string{"false", "true", "false", "true"} {
			w.create(log, sdk.NewTopic{Name: names[i], Partitions: 1, Config: map[string]string{"isolate": isolate}})
		}
		p := w.producer(log, sdk.WithPartitioner(sdk.ExplicitPartitioner()))
		for _, name := range names {
			p.Produce(ctx, rec(name, "v"), nil)
		}
		w.must(p.Flush(ctx))
		flushed := w.topicsOf(names...)
		if got := slices.Sorted(maps.Values(flushed)); !slices.Equal(got, []string{"a b", "alone", "lonely"}) {
			t.Errorf("a flush is segments of %q", got)
		}
		var requests sync.WaitGroup
		for _, name := range names { // at once, so that they are gathered
			requests.Go(func() {
				_, err := p.AppendOnce(ctx, p.NewProducerID(), 1, rec(name, "once"))
				w.must(err)
			})
		}
		requests.Wait()
		for id, topics := range w.topicsOf(names...) {
			if (strings.Contains(topics, "alone") || strings.Contains(topics, "lonely")) && strings.Contains(topics, " ") {
				t.Errorf("segment %v has records of %s", id, topics)
			}
		}
		var refused *sdk.FieldError
		if err := p.AppendAtomic(ctx, rec("a", "v"), rec("alone", "v")); !errors.As(err, &refused) || refused.Field != "isolate" {
			t.Errorf("together in one segment: %v", err)
		}
		w.must(p.AppendAtomic(ctx, rec("alone", "v"), rec("alone", "w")))
		w.must(p.AppendAtomic(ctx, rec("a", "v"), rec("b", "w")))
		w.must(p.Close(ctx))
	})
}

// A topic is isolated from the beginning or never: what is stored would not follow.
func TestIsolationStaysAsItWas(t *testing.T) {
	w := newWorld(t)
	log := w.open()
	w.create(log, sdk.NewTopic{Name: "a"})
	w.create(log, sdk.NewTopic{Name: "alone", Config: map[string]string{"isolate": "true"}})
	admin := log.Admin()
	for name, value := range map[string]string{"a": "true", "alone": "false"} {
		var refused *sdk.FieldError
		if _, err := admin.AlterTopic(ctx, name, sdk.Alteration{Config: map[string]string{"isolate": value}}); !errors.As(err, &refused) || refused.Field != "isolate" {
			t.Errorf("%s: %v", name, err)
		}
	}
	altered, err := admin.AlterTopic(ctx, "alone", sdk.Alteration{Config: map[string]string{"isolate": "true", "retention.ms": "3600000"}})
	if err != nil || altered.Config["isolate"] != "true" {
		t.Errorf("%+v, %v", altered, err)
	}
	if _, err := admin.CreateTopic(ctx, sdk.NewTopic{Name: "x", Config: map[string]string{"isolate": "yes"}}); !errors.Is(err, sdk.ErrInvalid) {
		t.Error(err)
	}
}
