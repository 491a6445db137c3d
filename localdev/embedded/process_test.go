package embedded

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/sdk"
)

func openLog(t *testing.T, url string, opts ...sdk.Option) *sdk.Log {
	t.Helper()
	log, err := sdk.Open(t.Context(), url, append(opts, sdk.WithDriver(Driver()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return log
}

// newDir is a directory with a log and its topic.
func newDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "log")
	newLog(t, "file://"+dir)
	return dir
}

// newLog makes a log with its topic.
func newLog(t *testing.T, url string) {
	t.Helper()
	log := openLog(t, url, sdk.WithCreateTable())
	if _, err := log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: topicName, Partitions: 4}); err != nil {
		t.Fatal(err)
	}
}

// check reads everything back: offsets are dense from 0, nothing is there twice, and what was acknowledged is where it was said to be.
func check(t *testing.T, url string, acks map[string]acked) (records int) {
	t.Helper()
	log := openLog(t, url)
	r, err := log.NewReader(t.Context(), topicName, sdk.To(sdk.Latest))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	next := map[int]int64{}
	found := map[string]acked{}
	for {
		fetches, err := r.Poll(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fetches {
			for _, x := range f.Records {
				if x.Offset != next[f.Partition] {
					t.Errorf("partition %d: offset %d follows %d", f.Partition, x.Offset, next[f.Partition]-1)
				}
				next[f.Partition] = x.Offset + 1
				if at, twice := found[string(x.Value)]; twice {
					t.Errorf("%s is there twice: %v and partition %d, offset %d", x.Value, at, f.Partition, x.Offset)
				}
				found[string(x.Value)] = acked{f.Partition, x.Offset}
			}
		}
	}
	for value, at := range acks {
		if found[value] != at {
			t.Errorf("%s was acknowledged at %v, found at %v", value, at, found[value])
		}
	}
	return len(found)
}

// again is the restart: it produces n records and returns where they are.
func again(t *testing.T, url string, n int) map[string]acked {
	t.Helper()
	p := start(t, url, map[string]string{childWork: "produce", childName: "again", childCount: strconv.Itoa(n)})
	p.watch(t)
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	if len(p.acks) != n {
		t.Errorf("after the restart %d of %d records were acknowledged", len(p.acks), n)
	}
	return p.acks
}

// Kill -9 of a producer, which is also the process that holds the engine, at each point of the walk; then a new process goes on.
func TestKilledAtEachPoint(t *testing.T) {
	killedAtEachPoint(t, func(t *testing.T, _ env.Point) string { return "file://" + newDir(t) })
}

// killedAtEachPoint kills a producer of each log that newLog makes for a point.
func killedAtEachPoint(t *testing.T, newLog func(*testing.T, env.Point) string) {
	times := []int{3, 1}
	if raced {
		times = times[:1]
	}
	for _, point := range env.Points {
		if point == env.BeforeDelete {
			continue // TestKilledBeforeDelete
		}
		for _, nth := range times {
			t.Run(fmt.Sprintf("%s %d", point, nth), func(t *testing.T) {
				t.Parallel()
				url := newLog(t, point)
				p := start(t, url, map[string]string{childWork: "produce", childName: "first", childCount: "600", childPoint: string(point), childNth: strconv.Itoa(nth)})
				paused := p.watch(t)
				if err := p.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				p.watch(t) // what it said before it died
				p.Wait()
				if !paused {
					t.Fatalf("it ended, with %d records acknowledged, and was never at this point", len(p.acks))
				}
				acks := maps.Clone(p.acks)
				maps.Copy(acks, again(t, url, 50))
				records := check(t, url, acks)
				t.Logf("%d acknowledged before the kill, %d in the log after the restart", len(p.acks), records)
			})
		}
	}
}

// Kill -9 between the commit point of a deletion and the deletion of the heads: the topic is gone, and the name is free.
func TestKilledBeforeDelete(t *testing.T) { killedBeforeDelete(t, "file://"+newDir(t)) }

func killedBeforeDelete(t *testing.T, url string) {
	again(t, url, 10)
	p := start(t, url, map[string]string{childWork: "delete", childPoint: string(env.BeforeDelete), childNth: "1"})
	if !p.watch(t) {
		t.Fatal("it was never at this point")
	}
	p.Process.Kill()
	p.Wait()
	log := openLog(t, url)
	if _, err := log.Admin().Offsets(t.Context(), topicName); !errors.Is(err, sdk.ErrUnknownTopic) {
		t.Fatal(err)
	}
	if left, err := log.Admin().CleanTopics(t.Context()); err != nil || left != 1 {
		t.Errorf("%d left, %v", left, err)
	}
	if _, err := log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: topicName, Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	if n := check(t, url, again(t, url, 20)); n != 20 {
		t.Errorf("%d records, of which 20 are the new topic's", n)
	}
}

// Three processes on one directory at the same time.
func TestProcessesOnOneDirectory(t *testing.T) { processesOnOneLog(t, "file://"+newDir(t)) }

func processesOnOneLog(t *testing.T, url string) {
	var ps []*process
	for i := range 3 {
		ps = append(ps, start(t, url, map[string]string{childWork: "produce", childName: fmt.Sprint("p", i), childCount: "150"}))
	}
	acks := map[string]acked{}
	for _, p := range ps {
		p.watch(t)
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
		maps.Copy(acks, p.acks)
	}
	if len(acks) != 450 {
		t.Errorf("%d records acknowledged, produced were 450", len(acks))
	}
	if n := check(t, url, acks); n != 450 {
		t.Errorf("%d records in the log", n)
	}
}
