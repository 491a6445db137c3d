package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/functions/clean"
	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/localdev/sample"
	"github.com/varvelog/varve/sdk"
)

// asCommand, set in the environment of what tests start, makes this program the command instead of its tests.
const asCommand = "VARVE_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open makes a log in a directory.
func open(t *testing.T) (url string, log *sdk.Log) {
	url = "file://" + filepath.Join(t.TempDir(), "log")
	log, err := sdk.Open(t.Context(), url, sdk.WithDriver(embedded.Driver()), sdk.WithCreateTable())
	check(t, err)
	t.Cleanup(func() { log.Close() })
	return url, log
}

func produce(t *testing.T, log *sdk.Log, records ...*sdk.Record) {
	t.Helper()
	p, err := log.NewProducer(sdk.WithSegmentBytes(64 << 10))
	check(t, err)
	check(t, p.ProduceSync(t.Context(), records...).Err())
	check(t, p.Close(t.Context()))
}

func flights(t *testing.T, from, to int) (records []*sdk.Record) {
	n := 0
	for f, err := range sample.Flights() {
		check(t, err)
		if n >= from && n < to {
			records = append(records, &sdk.Record{Topic: "flights", Key: []byte(f.Origin), Value: f.Line, Timestamp: f.Time})
		}
		n++
	}
	return records
}

// The program is killed again and again while it rebuilds, and once while it follows the log; in the end each flight counts once.
func TestFlightsCountOnceHoweverOftenItIsKilled(t *testing.T) {
	url, log := open(t)
	_, err := log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: "flights", Partitions: 4})
	check(t, err)
	produce(t, log, flights(t, 0, 15_000)...)
	file := filepath.Join(t.TempDir(), "flights.db")
	args := []string{"-log", url, "-db", file, "flights"}
	want := fmt.Sprintf("%d flights from %d origins on ", sample.FlightCount, sample.FlightOrigins)

	watch, err := openDatabase(t.Context(), file, views["flights"])
	check(t, err)
	defer watch.Close()
	counted := func() (n int) {
		check(t, watch.QueryRow(`SELECT coalesce(sum(flights), 0) FROM flights`).Scan(&n))
		return n
	}
	chance := rand.New(rand.NewPCG(1, 2))
	kills := 0
	for counted() < 15_000 && kills < 8 {
		killAt(t, append([]string{"-follow"}, args...), counted, min(counted()+1+chance.IntN(4000), 15_000))
		kills++
	}
	produce(t, log, flights(t, 15_000, sample.FlightCount)...)
	killAt(t, append([]string{"-follow"}, args...), counted, 17_000)
	killAt(t, append([]string{"-follow"}, args...), counted, sample.FlightCount)
	var out strings.Builder
	check(t, watch.print(t.Context(), &out))
	if got := out.String(); !strings.HasPrefix(got, want) || !strings.Contains(got, fmt.Sprintf("total delay %d\n", sample.FlightDelay)) {
		t.Errorf("%q, want %q", got, want)
	}
	t.Logf("killed %d times: %s", kills+2, strings.TrimSpace(out.String()))
}

// killAt runs the program until so many are counted, and kills it.
func killAt(t *testing.T, args []string, counted func() int, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := exec.CommandContext(ctx, os.Args[0], args...)
	c.Env = append(os.Environ(), asCommand+"=1")
	stderr, err := c.StderrPipe()
	check(t, err)
	check(t, c.Start())
	ended := make(chan string, 1)
	go func() {
		var said strings.Builder
		for s := bufio.NewScanner(stderr); s.Scan(); {
			fmt.Fprintln(&said, s.Text())
		}
		ended <- said.String()
	}()
	for counted() < n {
		select {
		case said := <-ended:
			t.Fatalf("it ended: %s", said)
		case <-time.After(2 * time.Millisecond): // which leaves it a processor
		}
	}
	check(t, c.Process.Kill())
	<-ended
	c.Wait()
}

// The state per key is the map of last values, tombstones included, of a topic whose keys were compacted, but for the latest records.
func TestLatestIsTheMapOfLastValues(t *testing.T) {
	_, log := open(t)
	_, err := log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: "state", Partitions: 3, Config: map[string]string{"cleanup.policy": "compact"}})
	check(t, err)
	chance := rand.New(rand.NewPCG(3, 4))
	want := map[string]string{}
	var records []*sdk.Record
	for i := range 5000 {
		r := &sdk.Record{Topic: "state", Key: []byte(fmt.Sprint("key", chance.IntN(300))), Value: []byte(fmt.Sprint(i))}
		want[string(r.Key)] = string(r.Value)
		if chance.IntN(4) == 0 {
			r.Value = nil
			delete(want, string(r.Key))
		}
		records = append(records, r)
	}
	produce(t, log, records[:4000]...)
	b := log.Backend()
	_, err = compact.Run(t.Context(), b.Table, b.Store, compact.Options{All: true, Env: env.System()})
	check(t, err)
	kept, err := clean.Run(t.Context(), b.Table, b.Store, clean.Options{Env: env.System()})
	check(t, err)
	produce(t, log, records[4000:]...) // these are not compacted yet
	db, err := openDatabase(t.Context(), filepath.Join(t.TempDir(), "latest.db"), views["latest"])
	check(t, err)
	defer db.Close()
	check(t, db.rebuild(t.Context(), log, "state"))
	rows, err := db.Query(`SELECT key, value FROM latest`)
	check(t, err)
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var key, value string
		check(t, rows.Scan(&key, &value))
		if want[key] != value {
			t.Errorf("%s is %q, want %q", key, value, want[key])
		}
	}
	if n != len(want) || len(want) < 100 {
		t.Errorf("%d keys, want %d", n, len(want))
	}
	if g := db.replay.Progress(); g.Records > 2000 || g.Offsets != 5000 {
		t.Errorf("%d records of %d offsets were read: %+v", g.Records, g.Offsets, kept)
	}
}

// tombstones hears of missed ones.
type tombstones struct{ events []sdk.TombstonesEvent }

func (h *tombstones) OnTombstones(e sdk.TombstonesEvent) { h.events = append(h.events, e) }

// BR-37: a checkpoint and a group's commit lie between a value and its tombstone, and the tombstone goes. Who goes on from there is told, once it is gone and not before. Who has
// read up to there after that is not, nor who begins at the start, and that one does not have the key.
func TestBR37_WhoMayHaveMissedATombstoneIsTold(t *testing.T) {
	told := &tombstones{}
	log, err := sdk.Open(t.Context(), "mem://", sdk.WithDriver(embedded.Driver()), sdk.WithHooks(told))
	check(t, err)
	defer log.Close()
	_, err = log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: "state", Partitions: 1, Config: map[string]string{"cleanup.policy": "compact"}})
	check(t, err)
	produce(t, log, &sdk.Record{Topic: "state", Key: []byte("k"), Value: []byte("v1")}, &sdk.Record{Topic: "state", Key: []byte("k")}, &sdk.Record{Topic: "state", Key: []byte("other"), Value: []byte("o")})
	between := func() sdk.ReplayCheckpoint {
		r, err := log.NewReplay(t.Context(), "state")
		check(t, err)
		c := r.Checkpoint()
		c.Positions[0].Next = 1
		return c
	}
	// member is in the group for a moment, and commits offset 1.
	member := func() {
		c, err := log.NewConsumer(t.Context(), "g", []string{"state"}, sdk.ManualCommit())
		check(t, err)
		for {
			fetches, err := c.Poll(t.Context())
			check(t, err)
			if len(fetches) > 0 {
				break
			}
		}
		if err := c.CommitOffsets(t.Context(), map[sdk.TopicPartition]sdk.CommitOffset{{Topic: "state"}: {Offset: 1}}); err != nil && !errors.Is(err, sdk.ErrBehind) {
			t.Fatal(err)
		}
		check(t, c.Close(t.Context()))
	}
	before := between()
	member()
	resume := func(c sdk.ReplayCheckpoint) error {
		_, err := log.NewReplay(t.Context(), "state", sdk.ReplayResume(c))
		return err
	}
	tidy := func() {
		b := log.Backend()
		_, err := compact.Run(t.Context(), b.Table, b.Store, compact.Options{All: true, Env: env.System()})
		check(t, err)
		_, err = clean.Run(t.Context(), b.Table, b.Store, clean.Options{Dirty: 1e-6, Tombstones: time.Nanosecond, Env: env.System()})
		check(t, err)
		produce(t, log, &sdk.Record{Topic: "state", Key: []byte("other"), Value: []byte("o")})
	}
	tidy() // v1 goes
	check(t, resume(before))
	member()
	if len(told.events) > 0 {
		t.Errorf("%+v", told.events)
	}
	tidy() // the tombstone
	var position *sdk.RangeError
	if err := resume(before); !errors.Is(err, sdk.ErrTombstones) || !errors.As(err, &position) || position.Offset != 1 || position.CutTo != 3 {
		t.Fatal(err)
	}
	member() // is told, and commits again
	if len(told.events) != 1 || told.events[0].Offset != 1 || told.events[0].To != 3 || told.events[0].Group != "g" {
		t.Errorf("%+v", told.events)
	}
	later := before
	later.At = time.Now().Add(2 * time.Minute) // read up to there after the tombstone had gone, v1 before it
	check(t, resume(later))
	db, err := openDatabase(t.Context(), filepath.Join(t.TempDir(), "latest.db"), views["latest"])
	check(t, err)
	defer db.Close()
	check(t, db.rebuild(t.Context(), log, "state"))
	var out strings.Builder
	check(t, db.print(t.Context(), &out))
	if out.String() != "1 keys\n" {
		t.Errorf("%s", &out)
	}
}
