package sdk_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/varvelog/varve/functions/retain"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/minio/miniotest"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// aged is a log on MinIO, to which segments of any age are appended.
type aged struct {
	t       *testing.T
	client  *minio.Core
	backend sdk.Backend
	log     *sdk.Log
	minted  uint64
}

// append appends a segment of one record to partition 0, put and committed at a time.
func (a *aged) append(topic string, at time.Time, value string) (name string) {
	a.t.Helper()
	ctx := a.t.Context()
	row, err := a.backend.Table.Topic(ctx, topic)
	check(a.t, err)
	place := row.Place(0)
	var batch segment.BatchBuilder
	check(a.t, batch.Append(&segment.Record{Timestamp: at.UnixMilli(), Value: []byte(value)}))
	text, _, err := batch.Finish(nil, segment.DefaultBatchOptions())
	check(a.t, err)
	b := segment.NewBuilder(segment.Intake, segment.LogID{})
	check(a.t, b.Add(segment.ExtentMeta{Lane: string(place.Lane), Slot: uint8(place.Slot), Topic: row.ID}, 0, text))
	body, footer, err := b.Finish()
	check(a.t, err)
	a.minted++
	id := segment.NewID(at, row.Class(), segment.InBucket, a.minted, segment.ID{})
	name = segment.IntakeName(id)
	_, err = a.client.Client.PutObject(ctx, miniotest.Bucket, a.backend.Prefix+"/"+name, bytes.NewReader(body), int64(len(body)),
		minio.PutObjectOptions{Internal: minio.AdvancedPutOptions{SourceMTime: at}})
	check(a.t, err)
	h, err := a.backend.Table.Head(ctx, place.Lane, metadata.Strong)
	check(a.t, err)
	x := footer.Extents[0]
	e := metadata.Entry{ID: id, Start: x.Offset, Slots: []metadata.SlotEntry{{Slot: place.Slot, Count: int32(x.Count), Bytes: int32(x.Length), MaxTime: metadata.IndexTime(x.MaxTime, id)}}}
	_, err = a.backend.Table.Commit(ctx, metadata.Commit{Lane: place.Lane, Entries: []metadata.Entry{e}, Epoch: h.Epochs[0], Cap: metadata.CapFor(h.First, 1)})
	check(a.t, err)
	return name
}

// read reads a topic from an offset to its end.
func (a *aged) read(topic string, from int64, opts ...sdk.ReaderOption) (offsets []int64, err error) {
	a.t.Helper()
	r, err := a.log.NewReader(a.t.Context(), topic, append(opts, sdk.From(sdk.AtOffset(from)), sdk.To(sdk.Latest))...)
	check(a.t, err)
	defer r.Close()
	for {
		fetches, err := r.Poll(a.t.Context())
		if errors.Is(err, io.EOF) {
			return offsets, nil
		}
		if err != nil {
			return offsets, err
		}
		for _, f := range fetches {
			for _, x := range f.Records {
				offsets = append(offsets, x.Offset)
			}
		}
	}
}

// TestMinIO_RulesDeleteWhatHasExpired: the rules that retain sets are read back, and MinIO, which here goes through a bucket without a pause, deletes by them exactly
// what has expired. A reader that is under way, and one below the log start, hear what they have lost; above it nothing is missing. What a rule deletes of a
// topic whose log start nobody has moved is expired, too.
func TestMinIO_RulesDeleteWhatHasExpired(t *testing.T) {
	server := miniotest.Start(t, "MINIO_SCANNER_SPEED=fastest")
	miniotest.RootEnvironment(t, server)
	client, err := server.Client()
	check(t, err)
	log, err := sdk.Open(t.Context(), onMinIO(t, server).url("log/one", "retained"), sdk.WithCreateTable())
	check(t, err)
	defer log.Close()
	a := &aged{t: t, client: client, backend: log.Backend(), log: log}
	clock := env.System()
	now := clock.Now()
	const n = 10 // records of a topic: half of them 10 days old
	keeps := map[string]string{"week": "604800000", "month": "2592000000", "kept": "-1"}
	var expire, stay []string
	for _, topic := range []string{"week", "month", "kept"} {
		_, err := log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: topic, Partitions: 1, Config: map[string]string{"retention.ms": keeps[topic]}})
		check(t, err)
		for i := range n {
			at := now.Add(time.Duration(i) * time.Millisecond)
			if i < n/2 {
				at = at.AddDate(0, 0, -10)
			}
			name := a.append(topic, at, fmt.Sprint(i))
			if topic == "week" && i < n/2 {
				expire = append(expire, name)
			} else {
				stay = append(stay, name)
			}
		}
	}
	stay = append(stay, a.foreign("other/r7d/old", now.AddDate(0, 0, -300)))
	under, err := log.NewReader(t.Context(), "week", sdk.OnExpired(sdk.ResetEarliest), sdk.WithPollBytes(1), sdk.WithReadBuffer(1), sdk.WithPrefetch(1), sdk.To(sdk.Latest))
	check(t, err)
	defer under.Close()
	if fetches, err := under.Poll(t.Context()); err != nil || fetches[0].Records[0].Offset != 0 {
		t.Fatal(fetches, err)
	}

	run := func(dry bool) *retain.Report {
		t.Helper()
		r, err := retain.Run(t.Context(), a.backend.Table, retain.Options{DryRun: dry, Lifecycle: a.backend.Lifecycle, Env: clock})
		check(t, err)
		return r
	}
	preview, done := run(true), run(false)
	if len(preview.Rules.Changes) != 3 || len(done.Rules.Changes) != 2 || len(done.Rules.Notes) != 1 { // of keep's rule MinIO wants nothing to know
		t.Errorf("preview %+v, run %+v", preview.Rules, done.Rules)
	}
	if again := run(false); len(again.Rules.Changes) != 0 || len(again.Topics[2].Moves) != 0 {
		t.Errorf("again: %+v", again.Rules)
	}
	rules, err := a.backend.Lifecycle.Rules(t.Context())
	check(t, err)
	for i, want := range []string{"log/one/r7d/ 8", "log/one/r30d/ 31"} {
		if len(rules.List) != 2 || fmt.Sprint(rules.List[i].Prefix, " ", rules.List[i].Days) != want {
			t.Errorf("%+v", rules.List)
		}
	}

	a.gone(expire, stay)
	for topic, first := range map[string]int64{"week": n / 2, "month": 0, "kept": 0} {
		if got, err := a.read(topic, first); err != nil || len(got) == 0 || span(t, got) != [2]int64{first, n - 1} {
			t.Errorf("%s: %v, %v", topic, got, err)
		}
	}
	want := sdk.RangeError{Topic: "week", Offset: 2, Start: n / 2, End: n, Err: sdk.ErrExpired}
	var outside *sdk.RangeError
	if _, err := a.read("week", 2); !errors.As(err, &outside) || *outside != want {
		t.Errorf("below the log start: %v", err)
	}
	at := int64(0)
	for {
		fetches, err := under.Poll(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		check(t, err)
		for _, f := range fetches {
			if next := f.Records[0].Offset; next != at+1 && next != n/2 {
				t.Errorf("the reader that was under way got %d after %d", next, at)
			}
			at = f.Records[0].Offset
		}
	}
	if at != n-1 {
		t.Errorf("the reader that was under way ended at %d", at)
	}

	_, err = log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: "late", Partitions: 1})
	check(t, err)
	for i := range n {
		a.append("late", now.AddDate(0, 0, -10*(n-i)/(n/2)).Add(time.Duration(i)), fmt.Sprint(i))
	}
	_, err = a.read("late", 0)
	if !errors.As(err, &outside) || outside.Err != sdk.ErrExpired || outside.Offset != 0 || outside.Start != 7 || outside.End != n {
		t.Errorf("a log start that nobody has moved: %v", err)
	}
	if got, err := a.read("late", outside.Start); err != nil || span(t, got) != [2]int64{outside.Start, n - 1} {
		t.Errorf("behind it: %v, %v", got, err)
	}
}

// foreign puts an object that is not the log's.
func (a *aged) foreign(key string, at time.Time) string {
	a.t.Helper()
	_, err := a.client.Client.PutObject(a.t.Context(), miniotest.Bucket, key, bytes.NewReader([]byte("x")), 1, minio.PutObjectOptions{Internal: minio.AdvancedPutOptions{SourceMTime: at}})
	check(a.t, err)
	return "../../" + key
}

// gone waits until the objects are not listed any more, and checks that the others are.
func (a *aged) gone(expire, stay []string) {
	a.t.Helper()
	clock := env.System()
	for {
		var listed []string
		for o := range a.client.Client.ListObjectsIter(a.t.Context(), miniotest.Bucket, minio.ListObjectsOptions{Recursive: true}) {
			check(a.t, o.Err)
			listed = append(listed, o.Key)
		}
		has := func(name string) bool {
			key := a.backend.Prefix + "/" + name
			if rest, foreign := bytes.CutPrefix([]byte(name), []byte("../../")); foreign {
				key = string(rest)
			}
			return slices.Contains(listed, key)
		}
		for _, name := range stay {
			if !has(name) {
				a.t.Errorf("%s is gone", name)
			}
		}
		if !slices.ContainsFunc(expire, has) {
			return
		}
		check(a.t, clock.Sleep(a.t.Context(), 100*time.Millisecond))
	}
}
