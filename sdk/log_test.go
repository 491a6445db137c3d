package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment/store"
)

// Whatever is asked of a closed log fails at once, and is not tried as if the services did not answer.
func TestClosedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		log, err := sdk.Open(ctx, "mem://", sdk.WithDriver(embedded.Driver()))
		check(t, err)
		admin := log.Admin()
		_, err = admin.CreateTopic(ctx, sdk.NewTopic{Name: "t"})
		check(t, err)
		producer, err := log.NewProducer()
		check(t, err)
		record := func() *sdk.Record { return &sdk.Record{Topic: "t"} }
		check(t, producer.ProduceSync(ctx, record()).Err())
		reader, err := log.NewReader(ctx, "t")
		check(t, err)
		check(t, log.Close())
		check(t, log.Close())
		start := time.Now()
		for name, call := range map[string]func() error{
			"Topic":         func() error { _, err := admin.Topic(ctx, "t"); return err },
			"CreateTopic":   func() error { _, err := log.Admin().CreateTopic(ctx, sdk.NewTopic{Name: "u"}); return err },
			"ListTopics":    func() error { _, err := admin.ListTopics(ctx); return err },
			"DescribeTopic": func() error { _, err := admin.DescribeTopic(ctx, "t"); return err },
			"AlterTopic":    func() error { _, err := admin.AlterTopic(ctx, "t", sdk.Alteration{Partitions: 9}); return err },
			"DeleteTopic":   func() error { return admin.DeleteTopic(ctx, "t") },
			"CleanTopics":   func() error { _, err := admin.CleanTopics(ctx); return err },
			"Offsets":       func() error { _, err := admin.Offsets(ctx, "t"); return err },
			"OffsetForTime": func() error { _, err := admin.OffsetForTime(ctx, "t", 0, start); return err },
			"DeleteRecords": func() error { _, err := admin.DeleteRecords(ctx, "t", 0, 0); return err },
			"SetFence":      func() error { return admin.SetFence(ctx, "t", 0, 0, 1) },
			"Fence":         func() error { _, err := admin.Fence(ctx, "t", 0); return err },
			"ReadSegment":   func() error { _, err := admin.ReadSegment(ctx, "r7d/intake/3f/0123456789abcdefghij"); return err },
			"NewProducer":   func() error { _, err := log.NewProducer(); return err },
			"NewReader":     func() error { _, err := log.NewReader(ctx, "t"); return err },
			"ProduceSync":   func() error { return producer.ProduceSync(ctx, record()).Err() },
			"AppendAtomic":  func() error { return producer.AppendAtomic(ctx, record()) },
			"AppendIf":      func() error { return producer.AppendIf(ctx, "t", 0, []*sdk.Record{record()}, sdk.EndIs(0)) },
			"Poll":          func() error { _, err := reader.Poll(ctx); return err },
		} {
			if err := call(); !errors.Is(err, sdk.ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v", took)
		}
		check(t, reader.Close())
		check(t, producer.Close(ctx))
	})
}

// A second Poll is told so, and takes nothing from the first.
func TestPollIsForOneGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 1, 64)
		r := b.reader("t", sdk.WithWait(time.Second))
		first := make(chan error)
		go func() {
			_, err := r.Poll(b.ctx)
			first <- err
		}()
		synctest.Wait()
		if _, err := r.Poll(b.ctx); !errors.Is(err, sdk.ErrInvalid) {
			t.Error(err)
		}
		check(t, <-first)
		_, err := r.Poll(b.ctx)
		check(t, err)
	})
}

// illServices is a log whose topic rows cannot be read.
type illServices struct {
	services
	err error
}

type illTable struct {
	metadata.Table
	err error
}

func (s illServices) Open(ctx context.Context, u *url.URL, o sdk.DriverOptions) (sdk.Backend, error) {
	b, err := s.services.Open(ctx, u, o)
	b.Table = illTable{b.Table, s.err}
	return b, err
}

func (i illTable) Topic(context.Context, string) (*metadata.Topic, error) { return nil, i.err }

// Only a service that did not answer is unreachable: a row that is damaged, or a caller who gave up, is not.
func TestNewReaderSaysWhyItCannotRead(t *testing.T) {
	for _, c := range []struct{ is, want error }{
		{metadata.ErrCorrupt, sdk.ErrCorrupt},
		{metadata.ErrVersion, sdk.ErrCorrupt},
		{context.Canceled, context.Canceled},
		{metadata.ErrUnavailable, sdk.ErrUnreachable},
	} {
		log, err := sdk.Open(t.Context(), "test://", sdk.WithDriver(illServices{newServices(t, "p", nil), c.is}))
		check(t, err)
		_, err = log.NewReader(t.Context(), "t")
		if !errors.Is(err, c.want) || errors.Is(err, sdk.ErrUnreachable) != (c.want == sdk.ErrUnreachable) {
			t.Errorf("%v: %v", c.is, err)
		}
	}
}

// deadDriver opens services that do not answer.
type deadDriver struct{}

func (deadDriver) Schemes() []string { return []string{"dead"} }

func (deadDriver) Open(context.Context, *url.URL, sdk.DriverOptions) (sdk.Backend, error) {
	return sdk.Backend{}, fmt.Errorf("bucket: %w", store.ErrUnavailable)
}

func TestOpenOfWhatDoesNotAnswer(t *testing.T) {
	if _, err := sdk.Open(t.Context(), "dead://", sdk.WithDriver(deadDriver{})); !errors.Is(err, sdk.ErrUnreachable) {
		t.Error(err)
	}
}
