package produce_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/produce"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/localdev/logtest"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
)

// function is one environment of the function: it is called once at a time, or several times, and between calls it may stand still for hours.
type function struct {
	t       *testing.T
	world   *logtest.World
	log     *sdk.Log
	service *produce.Service
	handler http.Handler
	now     func() time.Time // by which deadlines are told
}

// invocation is the context of one, whose deadline is told by the environment's clock.
type invocation struct {
	context.Context
	deadline time.Time
}

func (i invocation) Deadline() (time.Time, bool) { return i.deadline, true }

// newFunction makes one, over a log with a topic "t" of 4 partitions.
func newFunction(t *testing.T, o produce.Options, opts ...sdk.Option) *function {
	f := &function{t: t, world: logtest.New(t), now: time.Now}
	f.world.Create(f.world.Open(), sdk.NewTopic{Name: "t", Partitions: 4})
	f.start(o, opts...)
	return f
}

// start starts an environment.
func (f *function) start(o produce.Options, opts ...sdk.Option) {
	f.log = f.world.Open(opts...)
	f.service = produce.New(f.log, o)
	f.handler = f.service.Handler()
	service := f.service
	f.t.Cleanup(func() {
		f.world.OnTable, f.world.OnStore = nil, nil
		if err := service.Close(context.Background()); err != nil {
			f.t.Error(err)
		}
	})
}

// call is one invocation with so much time left.
func (f *function) call(left time.Duration, body string, headers ...string) (status int, p wire.Produced) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), left)
	defer cancel()
	r := httptest.NewRequestWithContext(invocation{ctx, f.now().Add(left)}, "POST", "/v1/topics/t/records", strings.NewReader(body))
	r.Header.Set("Content-Type", wire.JSONType)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		f.t.Fatalf("%s: %v", w.Body, err)
	}
	return w.Code, p
}

// values is records with the values from-1 … from-n, spread over the partitions.
func values(from string, n int) string {
	var records []string
	for i := range n {
		records = append(records, fmt.Sprintf(`{"partition":%d,"value":"%s-%d"}`, i%4, from, i+1))
	}
	return `{"records":[` + strings.Join(records, ",") + `]}`
}

// still fails the test if anything of a producer runs.
func (f *function) still() {
	f.t.Helper()
	synctest.Wait() // what is about to end has ended
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "varve/sdk.(*Producer)") || strings.Contains(stack, "varve/metadata/lane.") || strings.Contains(stack, "functions/produce.(*Service)") {
			f.t.Errorf("runs after the handler has returned:\n%s", stack)
		}
	}
}

// check compares what was answered with what is in the log: what is appended is there once and at its offset, what is not is not there.
func (f *function) check(from string, results []wire.Result) (there int) {
	f.t.Helper()
	at := map[string][]string{}
	for p, records := range f.world.Records(f.log, "t") {
		for _, r := range records {
			at[string(r.Value)] = append(at[string(r.Value)], fmt.Sprint(p, "/", r.Offset))
		}
	}
	for i, r := range results {
		value := fmt.Sprintf("%s-%d", from, i+1)
		found := at[value]
		there += len(found)
		switch {
		case r.Error == nil && (len(found) != 1 || found[0] != fmt.Sprint(*r.Partition, "/", *r.Offset)):
			f.t.Errorf("%s: answered %d/%d, found at %v", value, *r.Partition, *r.Offset, found)
		case len(found) > 1:
			f.t.Errorf("%s is there %d times", value, len(found))
		case r.Error != nil && len(found) > 0 && r.Error.Code != wire.UnknownOutcome:
			f.t.Errorf("%s: answered %s, found at %v", value, r.Error.Code, found)
		case r.Error != nil && r.Error.Retriable == (r.Error.Code == wire.UnknownOutcome):
			f.t.Errorf("%s: %+v", value, r.Error)
		}
	}
	return there
}

// The records of a request are durable before the handler returns, however long the linger; nothing of it runs after that; and with little time left each record
// has a result that is true.
func TestBR48_NothingIsLeftToDoAfterTheAnswer(t *testing.T) {
	lingering := produce.Options{With: []sdk.ProducerOption{sdk.WithLinger(time.Second, time.Second)}}
	t.Run("TimeEnough", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFunction(t, lingering)
			f.world.OnStore = func(fault.Call) fault.Fault { return fault.Fault{Delay: 30 * time.Millisecond} }
			start := time.Now()
			status, p := f.call(200*time.Millisecond, values("a", 10))
			if took := time.Since(start); status != 200 || f.check("a", p.Results) != 10 || took > 200*time.Millisecond {
				t.Errorf("%d after %v: %+v", status, took, p)
			}
			f.still()
		})
	})
	for name, befall := range map[string]func(*function){
		"PutStalls": func(f *function) {
			never := make(chan struct{})
			f.world.OnStore = func(c fault.Call) fault.Fault {
				if c.Op == store.OpPut {
					return fault.Fault{Stall: never}
				}
				return fault.Fault{}
			}
		},
		"CommitStalls": func(f *function) {
			f.world.OnTable = func(c dynamodb.Call) dynamodb.Fault {
				if logtest.IsCommit(c) {
					return dynamodb.Fault{Skip: true, Reply: dynamodb.ErrNoAnswer}
				}
				return dynamodb.Fault{}
			}
		},
		"CommitIsAppliedAndItsAnswerStalls": func(f *function) {
			f.world.OnTable = func(c dynamodb.Call) dynamodb.Fault {
				if c.Op == "UpdateItem" {
					return dynamodb.Fault{Reply: dynamodb.ErrNoAnswer}
				}
				return dynamodb.Fault{}
			}
		},
		"TopicStalls": func(f *function) {
			f.world.OnTable = func(dynamodb.Call) dynamodb.Fault {
				return dynamodb.Fault{Skip: true, Reply: dynamodb.ErrNoAnswer}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFunction(t, lingering)
				befall(f)
				start := time.Now()
				status, p := f.call(200*time.Millisecond, values("a", 10))
				if took := time.Since(start); took >= 200*time.Millisecond || status != 503 || len(p.Results) != 10 {
					t.Errorf("%d after %v: %+v", status, took, p)
				}
				f.still()
				f.world.OnTable, f.world.OnStore = nil, nil
				time.Sleep(time.Hour)
				before := f.check("a", p.Results)
				status, p = f.call(5*time.Second, values("b", 10))
				if status != 200 || f.check("b", p.Results) != 10 {
					t.Errorf("%d: %+v", status, p)
				}
				f.still()
				t.Logf("%d of the first 10 are in the log", before)
			})
		})
	}
}

// thawed is a clock that a freeze has shifted: the wall clock has gone on, or was set, and the monotonic clock stood still.
type thawed struct {
	env.Clock
	mu    sync.Mutex
	shift time.Duration
}

func (c *thawed) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Clock.Now().Add(c.shift)
}

func (c *thawed) set(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shift = d
}

// An hour later the sockets are closed, and the clock is another: the next request works, and nothing is lost or there twice.
func TestBR48_Thaw(t *testing.T) {
	for _, shift := range []time.Duration{time.Hour, -10 * time.Minute, 0} {
		for _, frozen := range []bool{true, false} {
			for _, applied := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) {
					clock := &thawed{Clock: env.System().Clock}
					e := env.System()
					e.Clock = clock
					f := newFunction(t, produce.Options{Env: e}, sdk.WithEnv(e))
					f.now = clock.Now
					for i := range 9 { // the ninth spills
						if status, p := f.call(5*time.Second, values(fmt.Sprint(i), 4)); status != 200 || f.check(fmt.Sprint(i), p.Results) != 4 {
							t.Fatalf("%d: %+v", status, p)
						}
						f.still()
					}
					if !frozen {
						time.Sleep(time.Hour)
					}
					clock.set(shift)
					var mu sync.Mutex
					dead := map[string]bool{}
					first := func(service string) bool {
						mu.Lock()
						defer mu.Unlock()
						known := dead[service]
						dead[service] = true
						return !known
					}
					f.world.OnTable = func(c dynamodb.Call) dynamodb.Fault {
						if first("table") {
							return dynamodb.Fault{Skip: !applied, Reply: dynamodb.ErrConnectionLost}
						}
						return dynamodb.Fault{}
					}
					f.world.OnStore = func(fault.Call) fault.Fault {
						if first("store") {
							return fault.Fault{Kind: map[bool]fault.Kind{true: fault.LostAfter, false: fault.LostBefore}[applied]}
						}
						return fault.Fault{}
					}
					for i := 9; ; i++ {
						status, p := f.call(5*time.Second, values(fmt.Sprint(i), 4))
						f.still()
						if there := f.check(fmt.Sprint(i), p.Results); status == 200 && there == 4 {
							break
						} else if i > 12 {
							t.Fatalf("shift %v, frozen %t, applied %t: %d: %+v", shift, frozen, applied, status, p)
						}
					}
				})
			}
		}
	}
}

// A request that is alone is one flush: one object, one commit. Requests at the same time share flushes.
func TestFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFunction(t, produce.Options{})
		f.call(5*time.Second, values("warm", 4))
		f.world.Counts()
		if status, _ := f.call(5*time.Second, values("alone", 100)); status != 200 {
			t.Fatal(status)
		}
		if table, objects, kinds := f.world.Counts(); table != 1 || objects != 1 {
			t.Errorf("a request alone: %s", kinds)
		}
		f.world.OnStore = func(fault.Call) fault.Fault { return fault.Fault{Delay: 100 * time.Millisecond} }
		const n = 32
		var all sync.WaitGroup
		results := make([]wire.Produced, n)
		start := time.Now()
		for i := range n {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				_, results[i] = f.call(5*time.Second, values(fmt.Sprint("at-once", i), 8))
			})
		}
		all.Wait()
		took := time.Since(start)
		f.still()
		f.world.OnStore = nil
		_, objects, kinds := f.world.Counts()
		if objects > n/4 || took > time.Second {
			t.Errorf("%d requests at once, %v: %s", n, took, kinds)
		}
		for i := range n {
			if f.check(fmt.Sprint("at-once", i), results[i].Results) != 8 {
				t.Errorf("%+v", results[i])
			}
		}
	})
}

// A cold start, from nothing to the answer, scans nothing: every request to the table names its item.
func TestColdStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFunction(t, produce.Options{})
		for i := range 20 { // some history
			f.call(5*time.Second, values(fmt.Sprint(i), 4))
		}
		f.world.Counts()
		f.world.OnTable = func(c dynamodb.Call) dynamodb.Fault {
			if c.Op == "Scan" || c.Op == "Query" {
				t.Errorf("%s", c.Op)
			}
			return dynamodb.Fault{}
		}
		f.start(produce.Options{})
		_, _, opening := f.world.Counts()
		status, p := f.call(5*time.Second, values("first", 4))
		table, objects, kinds := f.world.Counts()
		if status != 200 || len(p.Results) != 4 || table > 4 || objects > 1 {
			t.Errorf("%d: %s", status, kinds)
		}
		t.Logf("opening %s, first request %s", opening, kinds)
	})
}

// Each request to table and store fails once, or is applied and not heard of: what is answered is true, and once it is healed all is as before.
func TestFaults(t *testing.T) {
	for _, cold := range []bool{true, false} {
		for _, applied := range []bool{false, true} {
			for n := 0; ; n++ {
				reached := false
				synctest.Test(t, func(t *testing.T) {
					f := newFunction(t, produce.Options{})
					if !cold {
						for i := range 7 { // the next one spills
							f.call(5*time.Second, values(fmt.Sprint(i), 1))
						}
					}
					hit := f.world.FailAt(n, 1, applied)
					status, p := f.call(20*time.Second, values("a", 8))
					f.still()
					reached = hit()
					there := f.check("a", p.Results)
					if status == 200 && there == 0 || status != 200 && status != 503 {
						t.Errorf("cold %t, request %d, applied %t: %d, %d there", cold, n, applied, status, there)
					}
					if status, p := f.call(5*time.Second, values("b", 8)); status != 200 || f.check("b", p.Results) != 8 {
						t.Errorf("cold %t, request %d, applied %t: after it %d: %+v", cold, n, applied, status, p)
					}
				})
				if !reached {
					if n < 2 {
						t.Errorf("only %d requests", n)
					}
					break
				}
			}
		}
	}
}
