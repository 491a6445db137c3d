package judge

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/varvelog/varve/localdev/dynamodb"
)

var (
	operations = flag.Int("operations", 0, "requests to compare with each judge; 0: none")
	seed       = flag.Uint64("seed", 1, "of the generator")
)

// fullRun is the number of requests from which on coverage is asked for.
const fullRun = 20_000

// maxLost is how many answers may be lost on a loaded machine.
const maxLost = 20

// workers share a run, each with a server and an engine of its own.
const workers = 2

// tableOperations are left out at an endpoint: slow there, and others have some.
var tableOperations = []string{"CreateTable", "DescribeTable", "DeleteTable", "ListTables", "UpdateTimeToLive"}

// other is what the engine is compared with.
type other struct {
	name     string
	without  []string
	endpoint string
	client   aws.HTTPClient
}

// TestMemoryAgainstFile: the engine's two storages answer the same, without any entry.
func TestMemoryAgainstFile(t *testing.T) {
	file := newEngine(t, dynamodb.Options{File: filepath.Join(t.TempDir(), "engine.db")})
	covered, record := newCoverage(), newRecord()
	compareWith(t, other{name: "file", client: file}, 2000/raceShare, 0, covered, record)
	report(t, "file", covered, record)
}

// TestJudges compares with each judge at hand.
func TestJudges(t *testing.T) {
	if *operations == 0 {
		t.Skip("make test-judges compares with judges from outside")
	}
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			program, version := s.find()
			if program == "" {
				skipLoudly(t, s)
			}
			t.Logf("%s: %s", s.name, version)
			judgeWith(t, s.name, s.without, func(int) (string, error) { return s.start(t, program) })
		})
	}
	if endpoint := os.Getenv("VARVE_JUDGE_ENDPOINT"); endpoint != "" {
		t.Run("endpoint", func(t *testing.T) {
			judgeWith(t, "endpoint", tableOperations, func(int) (string, error) { return endpoint, nil })
		})
	}
}

// TestEndpoint: one server for all workers, as an endpoint is. Their tables and request tokens must not meet.
func TestEndpoint(t *testing.T) {
	server := httptest.NewServer(newEngine(t, dynamodb.Options{}))
	defer server.Close()
	covered, record := newCoverage(), newRecord()
	for w := range workers {
		compareWith(t, other{"endpoint", tableOperations, server.URL, server.Client()}, 500/raceShare, w, covered, record)
	}
	report(t, "endpoint", covered, record)
}

// skipLoudly says that a judge is missing, which fails where judges are required.
func skipLoudly(t *testing.T, s server) {
	line := fmt.Sprintf("judge %s is MISSING here: %s", s.name, s.install)
	fmt.Println(line)
	if os.Getenv("VARVE_JUDGES_REQUIRED") != "" {
		t.Fatal(line)
	}
	t.Skip(line)
}

// judgeWith shares the requests among workers and reports what they found.
func judgeWith(t *testing.T, name string, without []string, start func(worker int) (string, error)) {
	covered, all := make([]*coverage, workers), make([]*record, workers)
	var running sync.WaitGroup
	for w := range workers {
		covered[w], all[w] = newCoverage(), newRecord()
		endpoint, err := start(w)
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			compareWith(t, other{name, without, endpoint, &http.Client{Timeout: time.Minute}}, *operations/workers, w, covered[w], all[w])
		})
	}
	running.Wait()
	for w := 1; w < workers; w++ {
		covered[0].merge(covered[w])
		all[0].merge(all[w])
	}
	report(t, name, covered[0], all[0])
	fmt.Printf("\n== %s, %s\n", name, covered[0])
	if covered[0].total >= fullRun {
		for _, line := range covered[0].uncovered(without) {
			t.Error(line)
		}
		for _, e := range entries {
			if e.judge == name && all[0].matched[e.title()] == 0 {
				fmt.Printf("entry %q never matched\n", e.title())
			}
		}
	}
}

func compareWith(t *testing.T, o other, n, worker int, covered *coverage, all *record) {
	prefix := fmt.Sprintf("judge-%d-%d-", *seed, worker)
	if o.name == "endpoint" {
		prefix = fmt.Sprintf("judge-%d-%d-%d-", *seed, worker, os.Getpid())
	}
	c := &court{
		judge: o.name, engine: clientOf("", newEngine(t, dynamodb.Options{})), other: clientOf(o.endpoint, o.client),
		g: newGenerator(*seed<<8+uint64(worker), prefix, o.without), covered: covered, record: all, created: map[string]*request{},
	}
	if err := errors.Join(c.run(context.Background(), n), c.drop(context.Background())); err != nil {
		t.Errorf("seed %d, worker %d: %v", *seed, worker, err)
	}
}

func newEngine(t *testing.T, o dynamodb.Options) *dynamodb.Engine {
	t.Helper()
	engine, err := dynamodb.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	return engine
}

// report prints the entries that were matched, and fails with the first difference of each kind that has none.
func report(t *testing.T, name string, covered *coverage, r *record) {
	t.Helper()
	for _, e := range entries {
		if n := r.matched[e.title()]; n > 0 {
			fmt.Printf("%7d × %s (right: %s, %s%s)\n", n, e.title(), e.right, pages, e.page)
		}
	}
	if r.lost > maxLost {
		t.Errorf("%d answers of %s were lost", r.lost, name)
	}
	kinds := slices.SortedFunc(maps.Keys(r.unmatched), func(a, b string) int { return r.counts[b] - r.counts[a] })
	for _, kind := range kinds {
		t.Errorf("%d × %s\n%s", r.counts[kind], kind, r.unmatched[kind])
	}
	if len(kinds) > 0 {
		t.Errorf("%s: %d kinds of differences have no entry, in %d requests of seed %d:\n%s", name, len(kinds), covered.total, *seed, strings.Join(kinds, "\n"))
	}
}
