package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/retain"
	"github.com/varvelog/varve/functions/sweep"
	"github.com/varvelog/varve/functions/verify"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// childLoop does a job again and again, at least twice, until the parent has it end.
func childLoop(ctx context.Context, log *sdk.Log, work string, e env.Env, end <-chan struct{}) error {
	b := log.Backend()
	for n := 0; ; n++ {
		select {
		case <-end:
			if n >= 2 {
				return nil
			}
		default:
		}
		var err error
		switch work {
		case "compact":
			_, err = compact.Run(ctx, b.Table, b.Store, compact.Options{All: true, Env: e})
		case "retain":
			_, err = retain.Run(ctx, b.Table, retain.Options{Env: e})
		case "sweep":
			_, err = sweep.Run(ctx, b.Table, b.Store, sweep.Options{Env: e})
		case "read":
			_, _, err = readAll(ctx, log)
		}
		if err != nil {
			return fmt.Errorf("%s, run %d: %w", work, n, err)
		}
	}
}

// readAll reads the topic from its log starts to its ends and returns what is in it by value, and the first offsets. Offsets are dense; only where something has
// expired the log start may overtake the reader.
func readAll(ctx context.Context, log *sdk.Log) (found map[string]acked, first map[int]int64, err error) {
	r, err := log.NewReader(ctx, topicName, sdk.To(sdk.Latest), sdk.OnExpired(sdk.ResetEarliest))
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	found, first = map[string]acked{}, map[int]int64{}
	for last := map[int]sdk.Record{}; ; {
		fetches, err := r.Poll(ctx)
		if errors.Is(err, io.EOF) {
			return found, first, nil
		}
		if err != nil {
			return nil, nil, err
		}
		for _, f := range fetches {
			for _, x := range f.Records {
				before, begun := last[f.Partition]
				if !begun {
					first[f.Partition] = x.Offset
				} else if x.Offset != before.Offset+1 && !(x.Offset > before.Offset && strings.HasPrefix(string(before.Value), "expired")) {
					return nil, nil, fmt.Errorf("partition %d: offset %d (%s) follows %d (%s)", f.Partition, x.Offset, x.Value, before.Offset, before.Value)
				}
				last[f.Partition], found[string(x.Value)] = x, acked{f.Partition, x.Offset}
			}
		}
	}
}

// objectIDs are the ids of all segments in the log's folder.
func objectIDs(t *testing.T, log *sdk.Log) map[segment.ID]bool {
	t.Helper()
	ids := map[segment.ID]bool{}
	for after := ""; ; {
		page, err := log.Backend().Store.List(t.Context(), "", after, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Objects {
			if n, err := segment.ParseName(o.Name); err == nil {
				ids[n.ID] = true
			}
		}
		if after = page.Last; !page.More {
			return ids
		}
	}
}

func (p *process) finish(t *testing.T) {
	t.Helper()
	p.input.Close()
	p.watch(t)
	if err := p.Wait(); err != nil {
		t.Errorf("%v: %v", p.Env[len(p.Env)-1], err)
	}
}

// BR-32 (v): sweeps and retention in processes of their own, which share nothing with producers, compactors and readers in others but the log's directory. What
// was written 30 and 26.5 hours ago was written by processes whose clocks say so, as the sweep's age and restore window are an hour and 25.
func TestBR32v_CleanersInOtherProcesses(t *testing.T) {
	each := 24 // records of a producer
	if raced {
		each = 12
	}
	dir := t.TempDir() + "/log"
	url := "file://" + dir
	log := openLog(t, url, sdk.WithCreateTable())
	retention := map[string]string{metadata.RetentionMs: fmt.Sprint((28 * time.Hour).Milliseconds())}
	if _, err := log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: topicName, Partitions: 4, Config: retention}); err != nil {
		t.Fatal(err)
	}
	run := func(work, clock string, more ...string) *process {
		settings := map[string]string{childWork: work, childClock: clock, childCount: fmt.Sprint(each)}
		for i := 0; i < len(more); i += 2 {
			settings[more[i]] = more[i+1]
		}
		return start(t, url, settings)
	}
	acks := map[string]acked{}
	produced := func(p *process) {
		p.finish(t)
		for value, at := range p.acks {
			acks[value] = at
		}
	}
	produced(run("produce", "-30h", childName, "expired"))
	run("compact", "-30h").finish(t)
	produced(run("produce", "-26h30m", childName, "old"))
	run("compact", "-26h30m").finish(t)

	before := objectIDs(t, log)
	crashed := run("produce", "-30h", childName, "crashed", childCount, "1", childPoint, string(env.AfterUpload), childNth, "1")
	slow := run("produce", "-30h", childName, "slow", childCount, "1", childPoint, string(env.BeforeCommit), childNth, "1", childHeld, "1")
	for _, p := range []*process{crashed, slow} {
		if !p.watch(t) {
			t.Fatal("it was to stop between upload and commit")
		}
	}
	if err := crashed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	crashed.Wait()
	orphans := objectIDs(t, log)
	for id := range before {
		delete(orphans, id)
	}
	if len(orphans) != 2 {
		t.Fatalf("%d objects that nothing names", len(orphans))
	}

	cleaners := []*process{run("sweep", "0s"), run("retain", "0s"), run("sweep", "0s"), run("compact", "0s"), run("read", "0s")}
	producers := []*process{run("produce", "0s", childName, "a"), run("produce", "0s", childName, "b")}
	for _, p := range producers {
		produced(p)
	}
	for _, p := range cleaners {
		p.finish(t)
	}
	run("retain", "0s").finish(t)
	run("sweep", "0s").finish(t)
	left := objectIDs(t, log)
	for id := range orphans {
		if left[id] {
			t.Errorf("%s, which nothing names, is there", id)
		}
	}
	produced(slow) // now it commits: what it has uploaded is gone

	found, first, err := readAll(t.Context(), log)
	if err != nil {
		t.Fatal(err)
	}
	expired := 0
	for value, at := range acks {
		switch got, ok := found[value]; {
		case strings.HasPrefix(value, "expired"):
			if expired++; ok || at.offset >= first[at.partition] {
				t.Errorf("%s is there: %v", value, got)
			}
		case got != at:
			t.Errorf("%s was acknowledged at %v, found at %v", value, at, got)
		}
	}
	if len(acks) != 4*each+1 || len(found) != len(acks)-expired || expired != each {
		t.Errorf("%d acknowledged, %d found, %d expired", len(acks), len(found), expired)
	}
	now := time.Now()
	archived := 0
	for id := range objectIDs(t, log) {
		switch age := now.Sub(id.Time()); {
		case id.Place() == segment.Archived && age > 26*time.Hour && age < 27*time.Hour:
			archived++
		case age > 2*time.Hour:
			t.Errorf("segment %s of %v ago is there", id, age)
		}
	}
	if archived != 1 {
		t.Errorf("%d archive segments of 26.5 hours ago", archived)
	}
	b := log.Backend()
	report, err := verify.Run(t.Context(), b.Table, b.Store, verify.Options{Env: env.System()})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		if f.Kind != verify.EntryLate { // which the slow one's is
			t.Errorf("%+v", f)
		}
	}
}
