package embedded

import (
	"errors"
	"io"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// fetched is the largest request of a log's readers.
type fetched struct {
	mu      sync.Mutex
	largest int
}

func (f *fetched) OnFetch(e sdk.FetchEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.largest = max(f.largest, e.Bytes)
}

// A request takes up to a quarter of what is read ahead, which is less on a directory than elsewhere, unless it is told otherwise.
func TestADirectoryIsReadInSmallerRequests(t *testing.T) {
	const mib = 1 << 20
	directory := "file://" + filepath.Join(t.TempDir(), "log")
	for _, c := range []struct {
		url         string
		opts        []sdk.ReaderOption
		least, most int
	}{
		{directory, nil, mib, 2 * mib},
		{directory, []sdk.ReaderOption{sdk.WithReadBuffer(32 * mib)}, 2*mib + 1, 8 * mib},
		{"mem://", nil, 2*mib + 1, 8 * mib},
	} {
		f := &fetched{}
		log, err := sdk.Open(t.Context(), c.url, sdk.WithDriver(Driver()), sdk.WithHooks(f), sdk.WithCreateTable())
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		if near := c.url == directory; log.Backend().Near != near {
			t.Errorf("%s: near is %t", c.url, !near)
		}
		fill(t, log)
		r, err := log.NewReader(t.Context(), "t", append(c.opts, sdk.To(sdk.Latest))...)
		if err != nil {
			t.Fatal(err)
		}
		records := 0
		for !errors.Is(err, io.EOF) {
			var fetches []sdk.Fetch
			if fetches, err = r.Poll(t.Context()); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			for _, part := range fetches {
				records += len(part.Records)
			}
		}
		r.Close()
		if records != 48 || f.largest < c.least || f.largest > c.most {
			t.Errorf("%s: %d records, largest request %d bytes, want 48 and %d to %d", c.url, records, f.largest, c.least, c.most)
		}
	}
}

// fill makes a topic and writes 6 MiB to its 8 partitions as one segment, unless it is there.
func fill(t *testing.T, log *sdk.Log) {
	_, err := log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: "t", Partitions: 8})
	if errors.Is(err, sdk.ErrTopicExists) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()), sdk.WithLinger(time.Hour, time.Hour), sdk.WithCompression(segment.None))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	for i := range 48 {
		p.Produce(t.Context(), &sdk.Record{Topic: "t", Partition: i % 8, Value: make([]byte, 128<<10)}, nil)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}
