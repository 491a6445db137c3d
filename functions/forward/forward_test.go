package forward_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/forward"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/localdev/logtest"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

// bench is a log with topics t, of four partitions, and dead, of one.
type bench struct {
	*logtest.World
	log *sdk.Log
}

// test runs a test in virtual time.
func test(t *testing.T, run func(*testing.T, *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{World: logtest.New(t)}
		b.log = b.Open()
		defer b.log.Close()
		b.Create(b.log, sdk.NewTopic{Name: "t", Partitions: 4})
		b.Create(b.log, sdk.NewTopic{Name: "dead", Partitions: 1})
		run(t, b)
	})
}

// produce appends values "<partition> <i>", of the keys given in turn, to partitions in turn.
func (b *bench) produce(partitions, n int, keys ...string) (values []string) {
	b.T.Helper()
	p, err := b.log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()))
	b.Must(err)
	var records []*sdk.Record
	for i := range n {
		r := &sdk.Record{Topic: "t", Partition: i % partitions, Value: fmt.Appendf(nil, "%d %03d", i%partitions, i)}
		if len(keys) > 0 {
			r.Key = []byte(keys[i/partitions%len(keys)])
		}
		values, records = append(values, string(r.Value)), append(records, r)
	}
	b.Must(p.ProduceSync(context.Background(), records...).Err())
	b.Must(p.Close(context.Background()))
	slices.Sort(values)
	return values
}

func (b *bench) run(f *fakeSQS, o forward.Options) (*forward.Report, error) {
	b.T.Helper()
	o.Group, o.Topics, o.Env = "g", []string{"t"}, env.System()
	if o.Within == 0 {
		o.Within = 5 * time.Minute
	}
	start := time.Now()
	r, err := forward.Run(context.Background(), b.log, f.queue(), o)
	if took := time.Since(start); took > o.Within {
		b.T.Errorf("it took %v of %v", took, o.Within)
	}
	return r, err
}

// committed is what the group has committed, by partition.
func (b *bench) committed() (all []int64) {
	b.T.Helper()
	d, err := b.log.Admin().DescribeGroup(logtest.Spared(context.Background()), "g", sdk.Earliest)
	b.Must(err)
	for _, p := range d.Partitions {
		all = append(all, p.Committed)
	}
	return all
}

// inOrder checks that the first appearances of each partition's values ascend.
func inOrder(t *testing.T, values []string) {
	t.Helper()
	last, seen := map[string]string{}, map[string]bool{}
	for _, v := range values {
		if seen[v] {
			continue
		}
		if seen[v] = true; v < last[v[:1]] {
			t.Errorf("%q comes behind %q", v, last[v[:1]])
		}
		last[v[:1]] = v
	}
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

func TestSendsWhatThereIs(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		test(t, func(t *testing.T, b *bench) {
			want := b.produce(4, 200, "a", "b")
			f := &fakeSQS{fifo: fifo}
			r, err := b.run(f, forward.Options{})
			if err != nil || r.Sent != 200 || !r.Done {
				t.Errorf("%+v, %v", r, err)
			}
			if got := f.values(); !slices.Equal(sorted(got), want) {
				t.Errorf("sent %v", got)
			}
			if fifo {
				inOrder(t, f.values())
			}
			if want := map[bool]int{false: 24, true: 50}[fifo]; f.n > want { // ten of any partition in a request, or one of each of four
				t.Errorf("fifo %v: %d requests of %v", fifo, f.n, f.sizes)
			}
			if got := b.committed(); !slices.Equal(got, []int64{50, 50, 50, 50}) {
				t.Errorf("committed %v", got)
			}
			// What comes later is all that the next run sends.
			b.produce(1, 1)
			if r, err := b.run(f, forward.Options{}); err != nil || r.Sent != 1 || len(f.values()) != 201 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// A run with nothing to send costs what joining and leaving cost, and a few requests for each lane: however many partitions and records there are.
func TestIdleCosts(t *testing.T) {
	cost := func(partitions, width, records int) (table int) {
		test(t, func(t *testing.T, b *bench) {
			b.Must(b.log.Admin().DeleteTopic(t.Context(), "t"))
			b.Create(b.log, sdk.NewTopic{Name: "t", Partitions: partitions, LaneWidth: width})
			b.produce(partitions, records)
			f := &fakeSQS{}
			for range 2 {
				_, err := b.run(f, forward.Options{})
				b.Must(err)
			}
			b.Counts()
			r, err := b.run(f, forward.Options{})
			b.Must(err)
			if r.Sent != 0 || !r.Done || r.Requests != 0 {
				t.Errorf("%+v", r)
			}
			var kinds string
			table, _, kinds = b.Counts()
			t.Logf("%d partitions in lanes of %d, %d records: %d requests, %s", partitions, width, records, table, kinds)
		})
		return table
	}
	one, more, long, lanes := cost(4, 64, 100), cost(64, 64, 100), cost(4, 64, 2000), cost(64, 16, 100)
	if more > one || long > one || lanes > one+3*2 || one > 10 {
		t.Errorf("%d requests; with 64 partitions %d, with 2,000 records %d, in 4 lanes %d", one, more, long, lanes)
	}
}

// BR-50: of records 1 to 5 the third is refused. The fourth and fifth are not sent before it; it is dead-lettered once after N refusals, and they are sent.
func TestBR50_RefusedThenDead(t *testing.T) {
	test(t, func(t *testing.T, b *bench) {
		b.produce(1, 5, "k")
		f := &fakeSQS{fifo: true, refuses: func(body string) string {
			if strings.Contains(body, "0 002") {
				return "InvalidMessageContents"
			}
			return ""
		}}
		r, err := b.run(f, forward.Options{DeadLetters: "dead", Attempts: 3})
		if err != nil || r.Dead != 1 || r.Sent != 4 || !r.Done {
			t.Errorf("%+v, %v", r, err)
		}
		var tried []string
		for _, body := range f.tried {
			tried = append(tried, valueOf(body))
		}
		if want := []string{"0 000", "0 001", "0 002", "0 002", "0 002", "0 003", "0 004"}; !slices.Equal(tried, want) {
			t.Errorf("tried %v, want %v", tried, want)
		}
		dead := b.Records(b.log, "dead")[0]
		if len(dead) != 1 || string(dead[0].Value) != "0 002" || string(dead[0].Key) != "k" {
			t.Fatalf("dead letters %+v", dead)
		}
		headers := map[string]string{}
		for _, h := range dead[0].Headers {
			headers[h.Key] = string(h.Value)
		}
		if headers[sdk.HeaderOriginTopic] != "t" || headers[sdk.HeaderOriginPartition] != "0" || headers[sdk.HeaderOriginOffset] != "2" ||
			headers[sdk.HeaderAttempts] != "3" || !strings.Contains(headers[sdk.HeaderError], "InvalidMessageContents") {
			t.Errorf("headers %v", headers)
		}
	})
}

// Without a topic for dead letters the partition stops at the third; the others go on. The next run begins at the third, and a record before it that the filter
// leaves out does not come again.
func TestBR50_RefusedThenStopped(t *testing.T) {
	test(t, func(t *testing.T, b *bench) {
		b.produce(2, 10)
		bad := func(body string) string {
			if strings.Contains(body, "0 004") { // the third of partition 0
				return "InvalidMessageContents"
			}
			return ""
		}
		f := &fakeSQS{fifo: true, refuses: bad}
		var seen []string
		keep := func(r *sdk.Record) bool {
			seen = append(seen, string(r.Value))
			return string(r.Value) != "0 002"
		}
		for turn := range 2 {
			r, err := b.run(f, forward.Options{Attempts: 2, Keep: keep})
			var stopped *forward.StoppedError
			if !errors.As(err, &stopped) || stopped.Topic != "t" || stopped.Partition != 0 || stopped.Offset != 2 || !r.Done {
				t.Errorf("%+v, %v", r, err)
			}
			if turn == 1 && r.Sent+r.LeftOut != 0 {
				t.Errorf("the next run began elsewhere: %+v", r)
			}
			if got := b.committed()[:2]; !slices.Equal(got, []int64{2, 5}) {
				t.Errorf("committed %v", got)
			}
		}
		if want := []string{"0 000", "0 002", "0 004", "0 004"}; !slices.Equal(slices.DeleteFunc(seen, func(v string) bool { return v[0] != '0' }), want) {
			t.Errorf("the filter saw %v of partition 0, want %v", seen, want)
		}
		f.refuses = nil
		if r, err := b.run(f, forward.Options{Keep: keep}); err != nil || r.Sent != 3 {
			t.Errorf("%+v, %v", r, err)
		}
		inOrder(t, f.values())
	})
}

// To a standard queue a request takes several records of a partition: what of them is refused is tried again before anything behind them, and the commit does not pass it.
func TestBR50_StandardQueue(t *testing.T) {
	test(t, func(t *testing.T, b *bench) {
		b.produce(1, 25)
		n := 0
		f := &fakeSQS{refuses: func(body string) string {
			if strings.Contains(body, "0 002") {
				if n++; n <= 3 {
					return "InternalError"
				}
			}
			return ""
		}}
		r, err := b.run(f, forward.Options{})
		if err != nil || r.Sent != 25 {
			t.Errorf("%+v, %v", r, err)
		}
		got := f.values()
		if at := slices.Index(got, "0 002"); at != 9 {
			t.Errorf("%v", got)
		}
		// And where it is refused for good: behind it the other nine are there, and nothing else; the commit is at it.
		b.produce(1, 25)
		f.refuses = func(body string) string {
			if strings.Contains(body, `"offset":27`) {
				return "InvalidMessageContents"
			}
			return ""
		}
		f.accepted = nil
		var stopped *forward.StoppedError
		if r, err := b.run(f, forward.Options{}); !errors.As(err, &stopped) || stopped.Offset != 27 || r.Sent != 9 {
			t.Errorf("%+v, %v", r, err)
		}
		if got := b.committed()[0]; got != 27 {
			t.Errorf("committed %d", got)
		}
	})
}

// side is a queue that takes its time, and watches what is under way at once.
type side struct {
	forward.Queue
	mu     sync.Mutex
	now    map[string]int // requests under way, and messages of each group
	most   int            // requests
	groups bool           // two messages of a group were under way at once
}

func (s *side) Send(ctx context.Context, all []forward.Message) ([]error, error) {
	s.count(all, 1)
	defer s.count(all, -1)
	time.Sleep(50 * time.Millisecond)
	return s.Queue.Send(ctx, all)
}

func (s *side) count(all []forward.Message, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now[""] += by
	s.most = max(s.most, s.now[""])
	for _, m := range all {
		if m.Group != "" {
			s.now[m.Group] += by
			s.groups = s.groups || s.now[m.Group] > 1
		}
	}
}

// Requests with records of one partition are under way side by side to a standard queue; to a FIFO queue one record of a partition is. Requests fail meanwhile, some of them
// applied: everything is sent, and to a FIFO queue once and in order.
func TestSideBySide(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		for _, fault := range []string{"", "dropped", "lost", "500", "half an answer"} {
			test(t, func(t *testing.T, b *bench) {
				n := map[bool]int{false: 400, true: 60}[fifo]
				want := b.produce(1, n)
				f := &fakeSQS{fifo: fifo, befalls: func(n int) string {
					if n%9 == 0 {
						return fault
					}
					return ""
				}}
				s := &side{Queue: f.queue(), now: map[string]int{}}
				r, err := forward.Run(t.Context(), b.log, s, forward.Options{Group: "g", Topics: []string{"t"}, Env: env.System()})
				if err != nil || r.Sent != int64(n) || r.Requests != int64(f.n) {
					t.Errorf("%+v, %v, %d requests", r, err, f.n)
				}
				got := f.values()
				if fifo {
					inOrder(t, got)
				} else if got = slices.Compact(sorted(got)); fault == "" && s.most != 8 || s.most < 4 {
					t.Errorf("%q: %d requests at once", fault, s.most)
				}
				if !slices.Equal(got, want) || fifo && (s.groups || s.most != 1) {
					t.Errorf("fifo %v, %q: %d of %d sent, %d requests at once", fifo, fault, len(got), len(want), s.most)
				}
				if got := b.committed()[0]; got != int64(n) {
					t.Errorf("committed %d", got)
				}
			})
		}
	}
}

// One record of a partition is never acknowledged, while those around it in requests side by side are: the commit stops at it, whatever is behind it, and the next run
// begins there.
func TestSideBySideCommitsWhatHasNoHole(t *testing.T) {
	for _, refusal := range []string{"InternalError", "InvalidMessageContents"} {
		test(t, func(t *testing.T, b *bench) {
			want := b.produce(1, 400)
			f := &fakeSQS{refuses: func(body string) string {
				if strings.Contains(body, `"offset":150,`) {
					return refusal
				}
				return ""
			}}
			r, _ := b.run(f, forward.Options{Attempts: 1 << 20, Within: 20 * time.Second})
			if got := b.committed()[0]; got != 150 || r.Sent <= 160 || r.Sent >= 400 || r.Done {
				t.Errorf("%s: committed %d, %+v", refusal, got, r)
			}
			f.refuses, f.accepted = nil, nil
			if r, err := b.run(f, forward.Options{}); err != nil || r.Sent != 250 || !slices.Equal(sorted(f.values()), want[150:]) {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// An answer that names a message which was not sent, or not every message, says nothing: the whole batch goes again, and the position has not moved.
func TestBR50_OddAnswers(t *testing.T) {
	for _, odd := range []string{"odd answer", "half an answer"} {
		test(t, func(t *testing.T, b *bench) {
			want := b.produce(1, 5)
			f := &fakeSQS{}
			f.befalls = func(n int) string {
				switch n {
				case 1:
					return odd
				case 2:
					if got := b.committed()[0]; got > 0 {
						t.Errorf("committed %d", got)
					}
				}
				return ""
			}
			r, err := b.run(f, forward.Options{})
			if err != nil || r.Sent != 5 || !slices.Equal(f.sizes, []int{5, 5}) || !slices.Equal(slices.Compact(sorted(f.values())), want) {
				t.Errorf("%s: %+v, %v, requests of %v", odd, r, err, f.sizes)
			}
		})
	}
}

// Whatever befalls requests to the queue and the table, all is in the queue, in order, and a FIFO queue has each once.
func TestFaults(t *testing.T) {
	kinds := []string{"", "dropped", "lost", "500", "throttled", "odd answer", "half an answer"}
	for seed := range uint64(8) {
		test(t, func(t *testing.T, b *bench) {
			want := b.produce(4, 120, "a", "b", "c")
			chance := env.NewRand(seed)
			f := &fakeSQS{fifo: seed%2 == 0}
			f.befalls = func(int) string { return kinds[chance.Int64N(int64(2*len(kinds)))%int64(len(kinds))*chance.Int64N(2)] }
			f.refuses = func(string) string {
				if chance.Float64() < 0.1 {
					return "InternalError"
				}
				return ""
			}
			b.OnTable = func(dynamodb.Call) dynamodb.Fault {
				switch chance.Int64N(20) {
				case 0:
					return dynamodb.Dropped()
				case 1:
					return dynamodb.AnswerLost()
				case 2:
					return dynamodb.Throttle()
				}
				return dynamodb.Fault{}
			}
			for range 20 {
				r, err := b.run(f, forward.Options{Attempts: 50, Within: time.Minute})
				if err == nil && r.Done {
					break
				}
			}
			b.OnTable = nil
			got := f.values()
			if f.fifo {
				inOrder(t, got)
			}
			if f.fifo && !slices.Equal(sorted(got), want) || !slices.Equal(slices.Compact(sorted(got)), want) {
				t.Errorf("seed %d: %d sent", seed, len(got))
			}
			if c := b.committed(); !slices.Equal(c, []int64{30, 30, 30, 30}) {
				t.Errorf("seed %d: committed %v", seed, c)
			}
		})
	}
}

// A run that dead-letters a record is cut off from the table at each of its requests, which is applied or not: there is one dead letter in the end.
func TestOneDeadLetter(t *testing.T) {
	requests := 1
	for at := 0; at < requests; at += stride {
		faults := []dynamodb.Fault{dynamodb.Dropped(), dynamodb.AnswerLost()}
		if at < 15 { // it has not come to the dead letter yet
			faults = faults[at%2 : at%2+1]
		}
		for _, fault := range faults {
			test(t, func(t *testing.T, b *bench) {
				b.produce(1, 3)
				f := &fakeSQS{fifo: true, refuses: func(body string) string {
					if strings.Contains(body, "0 001") {
						return "InvalidMessageContents"
					}
					return ""
				}}
				n := 0
				var mu sync.Mutex
				b.OnTable = func(dynamodb.Call) dynamodb.Fault {
					mu.Lock()
					defer mu.Unlock()
					switch n++; {
					case n == at+1:
						return fault
					case n > at+1:
						return dynamodb.Dropped()
					}
					return dynamodb.Fault{}
				}
				o := forward.Options{DeadLetters: "dead", Attempts: 1, Within: 12 * time.Second}
				if r, err := b.run(f, o); err == nil && r.Done && n <= at {
					return // it did not come to that request
				}
				b.OnTable, requests = nil, at+stride+1
				for range 2 {
					b.run(f, o)
				}
				if dead := b.Values(b.log, "dead")[0]; !slices.Equal(dead, []string{"0 001"}) {
					t.Errorf("request %d: dead letters %v", at, dead)
				}
				if got := f.values(); !slices.Equal(got, []string{"0 000", "0 002"}) {
					t.Errorf("request %d: sent %v", at, got)
				}
				if c := b.committed()[0]; c != 3 {
					t.Errorf("request %d: committed %d", at, c)
				}
			})
		}
	}
	if requests < 20 {
		t.Errorf("%d requests: the test shows little", requests)
	}
}

// A record that is too large for the queue is parked without being sent, or stops its partition; one that just fits is sent.
func TestTooLarge(t *testing.T) {
	test(t, func(t *testing.T, b *bench) {
		p, err := b.log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()))
		b.Must(err)
		for _, size := range []int{10, 1500, 800} {
			b.Must(p.ProduceSync(t.Context(), &sdk.Record{Topic: "t", Value: []byte(strings.Repeat("x", size))}).Err())
		}
		b.Must(p.Close(t.Context()))
		f := &fakeSQS{max: 1000}
		var stopped *forward.StoppedError
		if r, err := b.run(f, forward.Options{}); !errors.As(err, &stopped) || !errors.Is(err, forward.ErrTooLarge) || stopped.Offset != 1 || r.Sent != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		if r, err := b.run(f, forward.Options{DeadLetters: "dead"}); err != nil || r.Sent != 1 || r.Dead != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		if dead := b.Values(b.log, "dead")[0]; len(dead) != 1 || len(dead[0]) != 1500 {
			t.Errorf("%d dead letters", len(dead))
		}
		for _, n := range f.sizes {
			if n != 1 { // two bodies together are over the limit
				t.Errorf("requests of %v", f.sizes)
			}
		}
	})
}

// When the queue refuses a request as a whole, each of its messages is sent alone, and only the one that is at fault is parked.
func TestARequestThatIsRefused(t *testing.T) {
	test(t, func(t *testing.T, b *bench) {
		b.produce(1, 5)
		f := &fakeSQS{spoils: func(body string) bool { return strings.Contains(body, "0 002") }}
		r, err := b.run(f, forward.Options{DeadLetters: "dead", Attempts: 2})
		if err != nil || r.Sent != 4 || r.Dead != 1 || r.Requests != 1+5+1 {
			t.Errorf("%+v, %v", r, err)
		}
		if dead := b.Values(b.log, "dead")[0]; !slices.Equal(dead, []string{"0 002"}) {
			t.Errorf("dead letters %v", dead)
		}
	})
}

// A queue that is not ours takes nothing: the run ends at once, and no record is called dead for it.
func TestDenied(t *testing.T) {
	test(t, func(t *testing.T, b *bench) {
		b.produce(2, 10)
		f := &fakeSQS{befalls: func(int) string { return "denied" }}
		start := time.Now()
		r, err := b.run(f, forward.Options{DeadLetters: "dead", Attempts: 1})
		if !errors.Is(err, forward.ErrDenied) || r.Dead+r.Sent != 0 || f.n != 1 || time.Since(start) > 10*time.Second {
			t.Errorf("%+v, %v, %d requests, %v", r, err, f.n, time.Since(start))
		}
		f.befalls = func(int) string { return "500" }
		r, err = b.run(f, forward.Options{DeadLetters: "dead", Attempts: 1, Within: time.Minute})
		if err == nil || r.Dead+r.Sent != 0 || f.n < 5 || f.n > 50 {
			t.Errorf("%+v, %v, %d requests", r, err, f.n)
		}
		f.befalls = nil
		if r, err := b.run(f, forward.Options{}); err != nil || r.Sent != 10 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// A run that was killed holds its partitions for the session time-out; a later one waits for that instead of ending as if there were nothing left, and takes them over.
func TestAfterOneThatWasKilled(t *testing.T) {
	test(t, func(t *testing.T, b *bench) {
		b.produce(4, 40)
		process, kill := logtest.Process(t.Context())
		killed, err := b.log.NewConsumer(process, "g", []string{"t"}, sdk.ManualCommit(), sdk.WithSessionTimeout(20*time.Second))
		b.Must(err)
		_, err = killed.Poll(process)
		b.Must(err)
		kill()
		defer killed.Close(process)
		f := &fakeSQS{}
		r, err := b.run(f, forward.Options{Within: time.Minute})
		if err != nil || r.Sent != 40 || !r.Done {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// Two runs at once send everything between them.
func TestTwoAtOnce(t *testing.T) {
	test(t, func(t *testing.T, b *bench) {
		want := b.produce(4, 400)
		f := &fakeSQS{fifo: true}
		f.befalls = func(int) string { time.Sleep(200 * time.Millisecond); return "" }
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if r, err := b.run(f, forward.Options{}); err != nil || !r.Done {
					t.Errorf("%+v, %v", r, err)
				}
			})
		}
		both.Wait()
		if got := f.values(); !slices.Equal(sorted(got), want) {
			t.Errorf("%d sent", len(got))
		}
		inOrder(t, f.values())
	})
}

// A queue so slow that the time is over before all is sent: the run ends in time, and what it has sent is committed.
func TestTheTimeIsOver(t *testing.T) {
	test(t, func(t *testing.T, b *bench) {
		b.produce(1, 100)
		f := &fakeSQS{fifo: true}
		f.befalls = func(int) string { time.Sleep(time.Second); return "" }
		r, err := b.run(f, forward.Options{Within: 20 * time.Second})
		if err != nil || r.Done || r.Sent < 10 || r.Sent > 19 {
			t.Errorf("%+v, %v", r, err)
		}
		if c := b.committed()[0]; c != r.Sent {
			t.Errorf("committed %d of %d", c, r.Sent)
		}
	})
}

// Every record has a form that SQS takes, and which gives the record back.
func TestBodies(t *testing.T) {
	test(t, func(t *testing.T, b *bench) {
		p, err := b.log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()))
		b.Must(err)
		values := [][]byte{nil, {}, {0, 1, 2}, {0xff}, []byte("\ufffe\uffff\x7f\u2028<>&"), []byte("ä\n\t\r\"")}
		for _, v := range values {
			b.Must(p.ProduceSync(t.Context(), &sdk.Record{Topic: "t", Value: v, Key: v, Headers: []sdk.Header{{Key: "\ufffe", Value: v}}}).Err())
		}
		b.Must(p.Close(t.Context()))
		f := &fakeSQS{}
		if r, err := b.run(f, forward.Options{}); err != nil || r.Sent != int64(len(values)) {
			t.Fatalf("%+v, %v", r, err)
		}
		for i, e := range f.accepted {
			var r sdk.Record
			b.Must(r.UnmarshalJSON([]byte(e.MessageBody)))
			if string(r.Value) != string(values[i]) || (r.Value == nil) != (values[i] == nil) || r.Offset != int64(i) || r.Headers[0].Key != "\ufffe" {
				t.Errorf("%d: %+v", i, r)
			}
		}
	})
}

func TestOptions(t *testing.T) {
	test(t, func(t *testing.T, b *bench) {
		for _, o := range []forward.Options{{Group: "g"}, {Group: "g", Topics: []string{"t"}, DeadLetters: "t"}, {Group: "g", Topics: []string{"t"}, Attempts: -1},
			{Group: "g", Topics: []string{"t"}, Within: -1}, {Group: "no group/at all", Topics: []string{"t"}}} {
			o.Env = env.System()
			if _, err := forward.Run(t.Context(), b.log, (&fakeSQS{}).queue(), o); !errors.Is(err, metadata.ErrInvalid) {
				t.Errorf("%+v: %v", o, err)
			}
		}
		o := forward.Options{Group: "g", Topics: []string{"t"}, DeadLetters: "nowhere", Env: env.System()}
		if _, err := forward.Run(t.Context(), b.log, (&fakeSQS{}).queue(), o); !errors.Is(err, sdk.ErrUnknownTopic) {
			t.Errorf("%v", err)
		}
	})
}
