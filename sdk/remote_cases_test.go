package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/sdk"
)

func appends(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/records")
}

// An append that is carried out each time and never answered is ErrUnknown when the time to hear of it is over, what was accepted behind it failed for certain, and
// what comes after is appended afresh: under another producer id, since the spent sequence may be in the log, or not.
func TestRemote_UnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, seen := newFar(t), &acks{}
		f.create(f.near, sdk.NewTopic{Name: "t", Partitions: 1})
		p := f.producer(f.log, sdk.WithDeliveryDeadline(20*time.Second))
		f.must(p.ProduceSync(ctx, rec("t", "before")).Err())
		ids := map[string]bool{}
		f.befall(func(r *http.Request) mishap {
			if !appends(r) {
				return nothing
			}
			ids[r.Header.Get("Varve-Producer-Id")+"/"+r.Header.Get("Varve-Producer-Sequence")] = true
			return cutAfter
		})
		start := time.Now()
		p.Produce(ctx, rec("t", "unknown"), seen.promise)
		time.Sleep(10 * time.Second)
		p.Produce(ctx, rec("t", "behind"), seen.promise)
		f.must(p.Flush(ctx))
		if took := time.Since(start); took < 25*time.Second || took > 26*time.Second {
			t.Errorf("settled after %v, not after the deadline and a quarter", took)
		}
		if got := seen.list(); len(got) != 2 || !errors.Is(got[0].err, sdk.ErrUnknown) || sdk.OutcomeOf(got[0].err) != sdk.Unknown ||
			!errors.Is(got[1].err, sdk.ErrPriorFailed) || sdk.OutcomeOf(got[1].err) != sdk.NotApplied {
			t.Errorf("told %v", got)
		}
		if len(ids) != 1 {
			t.Errorf("sent as %v, want one id and sequence", ids)
		}
		f.befall(nil)
		r := rec("t", "after")
		f.must(p.ProduceSync(ctx, r).Err())
		f.must(p.Close(ctx))
		var values []string
		for _, x := range f.contents("t")[0] {
			values = append(values, string(x.Value))
		}
		if got := strings.Join(values, " "); got != "before unknown after" || r.Offset != 2 {
			t.Errorf("in the log are %q, the last at %d", got, r.Offset)
		}
	})
}

// A function that has forgotten the producer is told of a new one if nothing of the request was ever sent before, and only then.
func TestRemote_Evicted(t *testing.T) {
	for _, lostBefore := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFar(t)
			f.create(f.near, sdk.NewTopic{Name: "t", Partitions: 1})
			p := f.producer(f.log)
			f.must(p.ProduceSync(ctx, rec("t", "a")).Err())
			lost, first := false, ""
			evicting := f.hop.handler
			f.hop.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				id := r.Header.Get("Varve-Producer-Id")
				if appends(r) && (first == "" || id == first) {
					first = id
					w.WriteHeader(409)
					fmt.Fprint(w, `{"error":{"code":"producer_evicted","message":"too old","retriable":false}}`)
					return
				}
				evicting.ServeHTTP(w, r)
			})
			f.befall(func(r *http.Request) mishap {
				if appends(r) && lostBefore && !lost {
					lost = true
					return cutBefore
				}
				return nothing
			})
			r := rec("t", "b")
			err := p.ProduceSync(ctx, r).Err()
			switch {
			case lostBefore && (!errors.Is(err, sdk.ErrUnknown) || !errors.Is(err, sdk.ErrProducerEvicted)):
				t.Errorf("evicted between two attempts: %v", err)
			case !lostBefore && (err != nil || r.Offset != 1):
				t.Errorf("evicted before the first: offset %d, %v", r.Offset, err)
			}
			c := rec("t", "c")
			f.must(p.ProduceSync(ctx, c).Err())
			f.must(p.Close(ctx))
			if n := len(f.contents("t")[0]); int64(n) != c.Offset+1 {
				t.Errorf("%d records, the last was told %d", n, c.Offset)
			}
		})
	}
}

// Applied, and offsets no longer known: no error, and -1.
func TestRemote_OffsetsUnknown(t *testing.T) {
	f := newFar(t)
	f.create(f.near, sdk.NewTopic{Name: "t", Partitions: 1})
	handler := f.hop.handler
	f.hop.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if appends(r) {
			fmt.Fprint(w, `{"results":[{"partition":0,"offset":null}],"repeated":true,"offsets_known":false}`)
			return
		}
		handler.ServeHTTP(w, r)
	})
	p, r := f.producer(f.log), rec("t", "a")
	if err := p.ProduceSync(ctx, r).Err(); err != nil || r.Offset != -1 {
		t.Errorf("offset %d, %v", r.Offset, err)
	}
	f.must(p.Close(ctx))
}

// Answers that are JSON, or frames, and yet make no sense: nothing is taken for an acknowledgement or for a record.
func TestRemote_AnswersThatMakeNoSense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFar(t)
		f.create(f.near, sdk.NewTopic{Name: "t", Partitions: 1})
		p := f.producer(f.log, sdk.WithDeliveryDeadline(time.Second))
		f.must(p.ProduceSync(ctx, rec("t", "a")).Err())
		var body, positions string
		handler := f.hop.handler
		f.hop.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/records") {
				handler.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Varve-Positions", positions)
			fmt.Fprint(w, body)
		})
		for _, body = range []string{`{}`, `{"results":[]}`, `null`, `[]`, `{"results":[{"partition":1,"offset":1}]}`, `{"results":[{"partition":0,"offset":-1}]}`,
			`{"results":[{"partition":0}]}`, `{"results":[{"partition":0,"offset":1},{"partition":0,"offset":2}]}`, `{"results":[{"error":{"code":"x"}}]}`, `{"results":[null]}`} {
			if err := p.ProduceSync(ctx, rec("t", "b")).Err(); !errors.Is(err, sdk.ErrUnknown) {
				t.Errorf("%s: %v", body, err)
			}
		}
		f.must(p.Close(ctx))
		frame := "\x00\x00\x00\x00\x00\x00\x00\x05abcde"
		for _, c := range []struct{ positions, body string }{
			{"", ""}, {"0:1:0", ""}, {"1:1:0:1", ""}, {"0:1:0:1,0:1:0:1", ""}, {"0:-1:0:1", ""}, {"0:x:0:1", ""}, {"99999999999:1:0:1", ""},
			{"0:1:0:1", "\x00"}, {"0:1:0:1", "\x00\x00\x00\x00\xff\xff\xff\xff"}, {"0:1:0:1", "\x00\x00\x00\x07\x00\x00\x00\x00"}, {"0:1:0:1", frame}, {"0:1:0:1", strings.Repeat("\xff", 200)},
		} {
			positions, body = c.positions, c.body
			r, err := f.log.NewReader(ctx, "t")
			f.must(err)
			if fetches, err := r.Poll(ctx); !errors.Is(err, sdk.ErrUnreachable) || len(fetches) > 0 {
				t.Errorf("%q, %q: %v, %v", c.positions, c.body, fetches, err)
			}
			f.must(r.Close())
		}
	})
}

// What is damaged in the log is told with its offsets, halts its partition alone, and can be passed by a seek.
func TestRemote_Damage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("t", 2, 64)
		b.write("t", one(0, numbers(0, 3)))
		bad := b.encode(numbers(3, 2))
		bad[len(bad)-1] ^= 1
		b.writeRaw("t", extent{0, 2, bad}, extent{1, 3, b.encode(numbers(0, 3))})
		b.write("t", one(0, numbers(5, 2)))
		log := newHop(t, b.log).dial(t)
		r, err := log.NewReader(ctx, "t", sdk.To(sdk.Latest))
		check(t, err)
		defer r.Close()
		got, damages := map[int]int{}, 0
		for {
			fetches, err := r.Poll(ctx)
			var damage *sdk.DataError
			switch {
			case errors.Is(err, io.EOF):
				if got[0] != 5 || got[1] != 3 || damages != 1 {
					t.Errorf("read %v, %d damages", got, damages)
				}
				return
			case errors.As(err, &damage):
				if damages++; damage.Partition != 0 || damage.From != 3 || damage.To != 5 || !errors.Is(err, sdk.ErrCorrupt) {
					t.Fatalf("%v", err)
				}
				check(t, r.Seek(0, damage.To))
			default:
				check(t, err)
			}
			for _, f := range fetches {
				got[f.Partition] += len(f.Records)
			}
		}
	})
}

// A producer hears within a minute or so that its topic has grown.
func TestRemote_Growth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFar(t)
		f.create(f.near, sdk.NewTopic{Name: "t", Partitions: 1, LaneWidth: 1})
		p := f.producer(f.log, sdk.WithPartitioner(sdk.ExplicitPartitioner()))
		f.must(p.ProduceSync(ctx, rec("t", "a")).Err())
		_, err := f.near.Admin().AlterTopic(ctx, "t", sdk.Alteration{Partitions: 3})
		f.must(err)
		time.Sleep(2 * time.Minute)
		f.must(p.ProduceSync(ctx, rec("t", "b")).Err())
		r := &sdk.Record{Topic: "t", Partition: 2}
		f.must(p.ProduceSync(ctx, r).Err())
		f.must(p.Close(ctx))
		if n := f.verify("t", []ack{{r, nil}}); n != 1 {
			t.Error(n)
		}
	})
}

// A reader at the end is woken by what is appended, and asks seldom while nothing is.
func TestRemote_LongPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFar(t)
		f.create(f.near, sdk.NewTopic{Name: "t", Partitions: 8})
		r, err := f.log.NewReader(ctx, "t", sdk.WithWait(time.Minute))
		f.must(err)
		f.requests()
		if got, err := r.Poll(ctx); err != nil || len(got) > 0 {
			t.Errorf("%v, %v", got, err)
		}
		if n := f.requests()["GET /v1/topics/t/records"]; n > 7 {
			t.Errorf("%d requests in a minute of nothing", n)
		}
		p := f.producer(f.near)
		f.must(p.ProduceSync(ctx, rec("t", "x")).Err())
		start := time.Now()
		if got, err := r.Poll(ctx); err != nil || len(got) != 1 || time.Since(start) > 3*time.Second {
			t.Errorf("after %v: %v, %v", time.Since(start), got, err)
		}
		f.must(r.Close())
		f.must(p.Close(ctx))
	})
}

// Topics, offsets, times and what groups have committed are answered as directly; everything else is refused, typed, and says what to do.
func TestRemote_Admin(t *testing.T) {
	f := newFar(t)
	f.create(f.near, sdk.NewTopic{Name: "t", Partitions: 5, LaneWidth: 2, Config: map[string]string{"retention.ms": "3600000"}})
	f.create(f.near, sdk.NewTopic{Name: "u"})
	p := f.producer(f.log, sdk.WithPartitioner(sdk.ExplicitPartitioner()))
	at := time.UnixMilli(1_700_000_000_000).UTC()
	for i := range 3 {
		f.must(p.ProduceSync(ctx, &sdk.Record{Topic: "t", Partition: 4, Timestamp: at.Add(time.Duration(i) * time.Hour)}).Err())
	}
	f.must(p.Close(ctx))
	far, near := f.log.Admin(), f.near.Admin()
	same := func(what string, a, b any, errs ...error) {
		t.Helper()
		if x, y := fmt.Sprintf("%+v", a), fmt.Sprintf("%+v", b); x != y || errors.Join(errs...) != nil {
			t.Errorf("%s: over HTTP %s, directly %s, %v", what, x, y, errors.Join(errs...))
		}
	}
	x, err1 := far.Topic(ctx, "t")
	y, err2 := near.Topic(ctx, "t")
	y.Stored = nil // only the table knows
	same("Topic", *x, *y, err1, err2)
	xs, err1 := far.ListTopics(ctx)
	same("ListTopics", []any{len(xs), xs[0].Name, xs[1].Name}, []any{2, "t", "u"}, err1)
	xo, err1 := far.Offsets(ctx, "t")
	yo, err2 := near.Offsets(ctx, "t")
	same("Offsets", xo, yo, err1, err2)
	xd, err1 := far.DescribeTopic(ctx, "t")
	same("DescribeTopic", []any{xd.Load[0].Partition, xd.Load[0].Records, xd.Load[0].RecordShare, len(xd.Load)}, []any{4, 3, 1.0, 5}, err1)
	offset, err1 := far.OffsetForTime(ctx, "t", 4, at.Add(time.Minute))
	same("OffsetForTime", offset, 1, err1)
	if _, err := far.OffsetForTime(ctx, "t", 4, at.Add(24*time.Hour)); !errors.Is(err, sdk.ErrNoOffset) {
		t.Errorf("a time after all: %v", err)
	}
	if _, err := far.OffsetForTime(ctx, "t", 5, at); !errors.Is(err, sdk.ErrNoPartition) {
		t.Errorf("no such partition: %v", err)
	}
	if _, err := far.Topic(ctx, "nobody"); !errors.Is(err, sdk.ErrUnknownTopic) {
		t.Errorf("no such topic: %v", err)
	}

	if _, err := far.GroupOffsets(ctx, "g", "t"); !errors.Is(err, sdk.ErrUnknownGroup) {
		t.Errorf("no such group: %v", err)
	}
	f.must(far.CommitGroupOffsets(ctx, "g", "t", map[int]sdk.CommitOffset{4: {Offset: 2, Metadata: "m"}, 0: {Offset: 0}}))
	xg, err1 := far.GroupOffsets(ctx, "g", "t")
	yg, err2 := near.GroupOffsets(ctx, "g", "t")
	same("GroupOffsets", xg, yg, err1, err2)
	if len(xg) != 2 || xg[1].Partition != 4 || xg[1].Offset != 2 || xg[1].Metadata != "m" {
		t.Errorf("committed: %+v", xg)
	}
	if err := far.CommitGroupOffsets(ctx, "g", "t", map[int]sdk.CommitOffset{4: {Offset: 1}}); !errors.Is(err, sdk.ErrBehind) {
		t.Errorf("back: %v", err)
	}
	var outside *sdk.RangeError
	if err := far.CommitGroupOffsets(ctx, "g", "t", map[int]sdk.CommitOffset{4: {Offset: 4}}); !errors.As(err, &outside) || outside.End != 3 || outside.Partition != 4 {
		t.Errorf("past the end: %v", err)
	}
	xl, err1 := far.ListGroups(ctx)
	same("ListGroups", xl, []string{"g"}, err1)
	if _, err := far.DescribeGroup(ctx, "nobody", sdk.Earliest); !errors.Is(err, sdk.ErrUnknownGroup) {
		t.Errorf("no such group: %v", err)
	}
	c, err := f.near.NewConsumer(ctx, "g", []string{"t"})
	f.must(err)
	_, err = c.Poll(ctx) // it has its partitions
	f.must(err)
	xg2, err1 := far.DescribeGroup(ctx, "g", sdk.Latest)
	yg2, err2 := near.DescribeGroup(ctx, "g", sdk.Latest)
	for _, d := range []*sdk.GroupDescription{xg2, yg2} { // ages are of the moment
		for i := range d.Partitions {
			d.Partitions[i].AgeMs, d.Partitions[i].Used = 0, 0
		}
		for i := range d.Members {
			d.Members[i].QuietMs = 0
		}
	}
	same("DescribeGroup", *xg2, *yg2, err1, err2)
	if len(xg2.Members) != 1 || len(xg2.Partitions) != 5 || xg2.Partitions[4].Lag != 1 {
		t.Errorf("group: %+v", xg2)
	}
	var active *sdk.GroupActiveError
	if err := far.CommitGroupOffsets(ctx, "g", "t", map[int]sdk.CommitOffset{4: {Offset: 3}}); !errors.As(err, &active) || len(active.Members) != 1 {
		t.Errorf("with a member: %v", err)
	}
	f.must(c.Close(ctx))
}

func TestRemote_Unsupported(t *testing.T) {
	f := newFar(t)
	f.create(f.near, sdk.NewTopic{Name: "t"})
	admin, p := f.log.Admin(), f.producer(f.log)
	defer p.Close(ctx)
	member, err := f.log.NewConsumer(ctx, "g", []string{"t"}, sdk.ManualCommit())
	f.must(err)
	defer member.Close(ctx)
	for what, err := range map[string]error{
		"CreateTopic":   second(admin.CreateTopic(ctx, sdk.NewTopic{Name: "x"})),
		"AlterTopic":    second(admin.AlterTopic(ctx, "t", sdk.Alteration{Partitions: 9})),
		"DeleteTopic":   admin.DeleteTopic(ctx, "t"),
		"CleanTopics":   second(admin.CleanTopics(ctx)),
		"DeleteRecords": second(admin.DeleteRecords(ctx, "t", 0, 0)),
		"SetFence":      admin.SetFence(ctx, "t", 0, 0, 1),
		"Fence":         second(admin.Fence(ctx, "t", 0)),
		"ReadSegment":   second(admin.ReadSegment(ctx, "x")),
		"ResetGroup":    second(admin.ResetGroup(ctx, sdk.GroupReset{Group: "g", To: sdk.ResetTo{Position: sdk.Earliest}})),
		"DeleteGroup":   admin.DeleteGroup(ctx, "g", true),
		"Step":          member.Step(ctx, p, map[sdk.TopicPartition]sdk.CommitOffset{{Topic: "t"}: {Offset: 1}}, rec("t", "x")),
		"Prepare":       second(p.Prepare(ctx, rec("t", "x"))),
		"BatchReader":   second(f.log.NewBatchReader().Read(ctx, "t", []sdk.ReadFrom{{}}, 1, 0)),
	} {
		var unsupported *sdk.UnsupportedError
		if !errors.As(err, &unsupported) || !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, sdk.ErrNotSupported) || !contains(err, "aws://") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if b := f.log.Backend(); b.Table != nil || b.Store != nil {
		t.Error("it has a backend")
	}
	f.must(f.log.Close())
	if err := admin.DeleteTopic(ctx, "t"); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	if _, err := f.log.NewProducer(); !errors.Is(err, sdk.ErrClosed) {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

// A list of more names than one answer has comes whole; one whose answers go round in a circle is an error.
func TestRemote_Pages(t *testing.T) {
	f := newFar(t)
	var asked []string
	answers := map[string]string{"": `{"groups":["a","b"],"more":true}`, "b": `{"groups":["c"],"more":true}`, "c": `{"groups":[]}`}
	f.hop.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		after := r.URL.Query().Get("after")
		asked = append(asked, after)
		fmt.Fprint(w, answers[after])
	})
	names, err := f.log.Admin().ListGroups(ctx)
	if got := fmt.Sprint(names, asked); err != nil || got != "[a b c] [ b c]" {
		t.Errorf("%s, %v", got, err)
	}
	for _, answers["c"] = range []string{`{"groups":["b"],"more":true}`, `{"groups":[],"more":true}`, `{"more":true}`} {
		if names, err := f.log.Admin().ListGroups(ctx); !errors.Is(err, sdk.ErrUnreachable) || names != nil {
			t.Errorf("%s: %v, %v", answers["c"], names, err)
		}
	}
}

// Members of a group whose requests meet every mishap of a network read everything, each at least once and in order, and commit all of it: no partition stays without an owner, and what is
// committed never goes back.
func TestRemote_MembersInTrouble(t *testing.T) {
	for seed := range uint64(6 / raceShare) {
		synctest.Test(t, func(t *testing.T) {
			f := newFar(t)
			f.create(f.near, sdk.NewTopic{Name: "t", Partitions: 6, LaneWidth: 3})
			chance := rand.New(rand.NewPCG(seed, 1))
			trouble := true
			f.befall(func(r *http.Request) mishap { // under its lock
				if !trouble || r.URL.Path == "/v1" || chance.IntN(5) > 0 {
					return nothing
				}
				return []mishap{cutBefore, cutAfter, fails500, failed500, throttled, retryLater, cutBody, garbage}[chance.IntN(8)]
			})
			seen := make([]map[int]map[int64]bool, 3)
			stop, done := make([]context.CancelFunc, len(seen)), make(chan error, len(seen))
			var mu sync.Mutex
			start := func(i int) {
				life, cancel := context.WithCancel(ctx)
				stop[i], seen[i] = cancel, map[int]map[int64]bool{}
				log := f.dial()
				go func() {
					done <- consume(life, log, func(p int, offset int64) {
						mu.Lock()
						defer mu.Unlock()
						if seen[i][p] == nil {
							seen[i][p] = map[int64]bool{}
						}
						seen[i][p][offset] = true
					})
				}()
			}
			p := f.producer(f.near)
			for i := range seen {
				start(i)
				for range 20 {
					for range 10 {
						p.Produce(ctx, rec("t", "v"), nil)
					}
					time.Sleep(2 * time.Second)
				}
			}
			stop[0]()                                                                                                  // it leaves; the others take over
			if err := <-done; err != nil && !errors.Is(err, sdk.ErrUnreachable) && !errors.Is(err, sdk.ErrThrottled) { // its farewell may meet trouble too
				t.Errorf("seed %d: %v", seed, err)
			}
			time.Sleep(2 * time.Minute)
			f.mu.Lock()
			trouble = false
			f.mu.Unlock()
			time.Sleep(2 * time.Minute)
			d, err := f.near.Admin().DescribeGroup(ctx, "g", sdk.Earliest)
			f.must(err)
			total := 0
			for _, part := range d.Partitions {
				if part.Lag != 0 || part.Owner == "" {
					t.Errorf("seed %d: %+v", seed, part)
				}
				total += int(part.End)
				for offset := range part.End {
					if !seen[0][part.Partition][offset] && !seen[1][part.Partition][offset] && !seen[2][part.Partition][offset] {
						t.Errorf("seed %d: partition %d offset %d was read by nobody", seed, part.Partition, offset)
					}
				}
			}
			if total != 600 || len(d.Members) != 2 {
				t.Errorf("seed %d: %d records, %d members", seed, total, len(d.Members))
			}
			stop[1]()
			stop[2]()
			f.must(<-done)
			f.must(<-done)
			f.must(p.Close(ctx))
		})
	}
}

// consume reads as a member of group g until life ends, and leaves. Within what it holds, offsets must follow one another.
func consume(life context.Context, log *sdk.Log, read func(partition int, offset int64)) error {
	next := map[int]int64{}
	forget := func(_ context.Context, all []sdk.TopicPartition) {
		for _, tp := range all {
			delete(next, tp.Partition)
		}
	}
	var c *sdk.Consumer
	var err error
	for c == nil {
		c, err = log.NewConsumer(life, "g", []string{"t"}, sdk.WithSessionTimeout(30*time.Second), sdk.AutoCommit(time.Second), sdk.OnRevoked(forget), sdk.OnLost(forget))
		if err != nil && !errors.Is(err, sdk.ErrUnreachable) && !errors.Is(err, sdk.ErrThrottled) {
			return err
		}
	}
	for life.Err() == nil {
		fetches, err := c.Poll(life)
		if err != nil && life.Err() == nil && !errors.Is(err, sdk.ErrUnreachable) {
			return err
		}
		for _, f := range fetches {
			for _, r := range f.Records {
				if want, known := next[f.Partition]; known && r.Offset != want {
					return fmt.Errorf("partition %d: offset %d where %d should be", f.Partition, r.Offset, want)
				}
				next[f.Partition] = r.Offset + 1
				read(f.Partition, r.Offset)
			}
		}
	}
	return c.Close(ctx)
}

// Requests under the caller's own sequence, sent again until they are answered, are applied once through every mishap of a network, and answered alike.
func TestRemote_OnceInTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFar(t)
		f.create(f.near, sdk.NewTopic{Name: "t", Partitions: 2, LaneWidth: 2})
		p := f.producer(f.log, sdk.WithDeliveryDeadline(5*time.Second))
		chance, unknown, repeated := rand.New(rand.NewPCG(7, 7)), 0, 0
		f.befall(func(r *http.Request) mishap {
			if !appends(r) || chance.IntN(10) < 3 {
				return nothing
			}
			return []mishap{cutBefore, cutAfter, fails500, failed500, throttled, retryLater, cutBody, garbage, silence}[chance.IntN(9)]
		})
		id := p.NewProducerID()
		const n = 60
		for seq := int64(1); seq <= n; seq++ {
			for {
				a, b := rec("t", fmt.Sprint(seq)), rec("t", fmt.Sprint(seq))
				b.Partition = 1
				once, err := p.AppendOnce(ctx, id, seq, a, b)
				if errors.Is(err, sdk.ErrUnknown) {
					unknown++
					continue
				}
				f.must(err)
				if once.Repeated {
					repeated++
				}
				if once.OffsetsKnown && (a.Offset != seq-1 || b.Offset != seq-1) {
					t.Fatalf("request %d is at %d and %d", seq, a.Offset, b.Offset)
				}
				break
			}
		}
		f.befall(nil)
		r, err := f.log.NewReader(ctx, "t", sdk.To(sdk.Latest))
		f.must(err)
		for part, values := range readAll(t, r) {
			for i, v := range values {
				if v != fmt.Sprint(i+1) {
					t.Fatalf("partition %d: %s at offset %d", part, v, i)
				}
			}
			if len(values) != n {
				t.Errorf("partition %d: %d of %d", part, len(values), n)
			}
		}
		if unknown == 0 || repeated == 0 {
			t.Errorf("%d outcomes unknown, %d repeated", unknown, repeated)
		}
		t.Logf("%d outcomes unknown, %d repeated", unknown, repeated)
	})
}

// Of two that expect the same end over HTTP exactly one gets it, whatever answers are lost on the way: no append is in the log that was told refused, and none twice.
func TestRemote_AppendIfUnderMishaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, chance := newFar(t), rand.New(rand.NewPCG(3, 4))
		f.create(f.near, sdk.NewTopic{Name: "t", Partitions: 1})
		f.befall(func(r *http.Request) mishap {
			if appends(r) && chance.IntN(10) < 4 {
				return []mishap{cutBefore, cutAfter, fails500, failed500, throttled, retryLater, cutBody, garbage}[chance.IntN(8)]
			}
			return nothing
		})
		var both sync.WaitGroup
		var told [2]map[string]error
		for i := range 2 {
			told[i] = map[string]error{}
			both.Go(func() {
				p := f.producer(f.log, sdk.WithDeliveryDeadline(5*time.Second))
				for end, n := int64(0), 0; end < 60; n++ {
					value := fmt.Sprint(i, ".", n)
					err := p.AppendIf(ctx, "t", 0, []*sdk.Record{rec("t", value)}, sdk.EndIs(end))
					told[i][value] = err
					var refused *sdk.ConditionError
					switch {
					case err == nil:
						end++
					case errors.As(err, &refused):
						end = refused.End
					case !errors.Is(err, sdk.ErrUnknown) && !errors.Is(err, sdk.ErrTimedOut):
						t.Errorf("AppendIf: %v", err)
						return
					}
				}
				f.must(p.Close(ctx))
			})
		}
		both.Wait()
		f.befall(nil)
		there := map[string]bool{}
		for _, r := range f.contents("t")[0] {
			if there[string(r.Value)] {
				t.Errorf("%s is there twice", r.Value)
			}
			there[string(r.Value)] = true
		}
		outcomes := map[string]int{}
		for i := range told {
			for value, err := range told[i] {
				outcomes[fmt.Sprint(sdk.OutcomeOf(err), there[value])]++
				if o := sdk.OutcomeOf(err); o == sdk.Applied && !there[value] || o == sdk.NotApplied && there[value] {
					t.Errorf("%s: %v, in the log: %v", value, err, there[value])
				}
			}
		}
		t.Log(outcomes)
	})
}

// After an attempt that was not answered, a refusal settles it only if the partition is past what was expected: otherwise that attempt may be applied yet.
func TestRemote_AppendIfRefusedAfterALostAnswer(t *testing.T) {
	for _, c := range []struct {
		when    sdk.Condition
		settled bool
	}{{sdk.EndIs(0), true}, {sdk.EndIs(5), false}, {sdk.TokenIs(2), true}, {sdk.TokenIs(4), false}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFar(t)
			f.create(f.near, sdk.NewTopic{Name: "t", Partitions: 1})
			f.must(f.near.Admin().SetFence(ctx, "t", 0, 0, 3))
			p := f.producer(f.log)
			f.must(p.AppendIf(ctx, "t", 0, []*sdk.Record{rec("t", "a")}, sdk.TokenIs(3)))
			lost := false
			ids := map[string]bool{}
			f.befall(func(r *http.Request) mishap {
				if !appends(r) {
					return nothing
				}
				ids[r.Header.Get("Varve-Producer-Id")+"/"+r.Header.Get("Varve-Producer-Sequence")] = true
				if lost {
					return nothing
				}
				lost = true
				return cutBefore
			})
			err := p.AppendIf(ctx, "t", 0, []*sdk.Record{rec("t", "b")}, c.when)
			var refused *sdk.ConditionError
			switch {
			case c.settled && (!errors.As(err, &refused) || refused.End != 1 || refused.Token != 3 || sdk.OutcomeOf(err) != sdk.NotApplied):
				t.Errorf("past it: %v", err)
			case !c.settled && (errors.As(err, &refused) || sdk.OutcomeOf(err) != sdk.Unknown):
				t.Errorf("not there yet: %v", err)
			}
			f.must(p.AppendIf(ctx, "t", 0, []*sdk.Record{rec("t", "c")}, sdk.EndIs(1)))
			if want := 1; c.settled && len(ids) != want || !c.settled && len(ids) != want+1 {
				t.Errorf("ids and sequences %v", ids)
			}
			f.must(p.Close(ctx))
		})
	}
}

// What is appended atomically over HTTP is there as a whole or not at all, once, and as it was told, whatever befalls requests and answers.
func TestRemote_AppendAtomicUnderMishaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, chance := newFar(t), rand.New(rand.NewPCG(5, 6))
		f.create(f.near, sdk.NewTopic{Name: "a", Partitions: 2, LaneWidth: 1})
		f.create(f.near, sdk.NewTopic{Name: "b", Partitions: 1})
		f.befall(func(r *http.Request) mishap {
			if appends(r) && chance.IntN(10) < 5 {
				return []mishap{cutBefore, cutAfter, fails500, failed500, throttled, retryLater, cutBody, garbage}[chance.IntN(8)]
			}
			return nothing
		})
		p := f.producer(f.log, sdk.WithPartitioner(sdk.ExplicitPartitioner()))
		told, offsets := map[string]error{}, map[string]int64{}
		for i := range 60 {
			value := fmt.Sprint(i)
			records := []*sdk.Record{rec("b", value), rec("a", value), {Topic: "a", Partition: 1, Key: []byte{0xff}, Value: []byte(value), Headers: []sdk.Header{{Key: "h", Value: []byte{}}}}}
			told[value] = p.AppendAtomic(ctx, records...)
			offsets[value] = records[2].Offset
		}
		f.must(p.Close(ctx))
		there, at := map[string]int{}, map[string]int64{}
		for _, topic := range []string{"a", "b"} {
			for i, records := range f.contents(topic) {
				for offset, r := range records {
					there[string(r.Value)]++
					if topic == "a" && i == 1 {
						at[string(r.Value)] = int64(offset)
						if string(r.Key) != "\xff" || len(r.Headers) != 1 || r.Headers[0].Value == nil {
							t.Errorf("%q has become %+v", r.Value, r)
						}
					}
				}
			}
		}
		outcomes := map[string]int{}
		for value, err := range told {
			o, n := sdk.OutcomeOf(err), there[value]
			outcomes[fmt.Sprint(o, n)]++
			if n != 0 && n != 3 || o == sdk.Applied && (n != 3 || offsets[value] != at[value]) || o == sdk.NotApplied && n != 0 {
				t.Errorf("%s: %d of 3 records at %d, told %d and %v", value, n, at[value], offsets[value], err)
			}
		}
		if t.Log(outcomes); len(outcomes) < 3 {
			t.Errorf("outcomes %v", outcomes)
		}
	})
}

// A topic that was deleted and created anew is not the one that a producer knows, and what is too large for a request is refused before it is sent.
func TestRemote_AppendAtomicRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFar(t)
		f.create(f.near, sdk.NewTopic{Name: "a", Partitions: 1})
		p := f.producer(f.log)
		f.must(p.AppendAtomic(ctx, rec("a", "x")))
		f.requests()
		many := make([]*sdk.Record, 5)
		for i := range many {
			many[i] = rec("a", strings.Repeat("x", 900_000))
		}
		if err := p.AppendAtomic(ctx, many...); !errors.Is(err, sdk.ErrTooLarge) || sdk.OutcomeOf(err) != sdk.NotApplied || f.requests()["POST /v1/records"] > 0 {
			t.Errorf("too large: %v", err)
		}
		f.must(f.near.Admin().DeleteTopic(ctx, "a"))
		f.create(f.near, sdk.NewTopic{Name: "a", Partitions: 1})
		if err := p.AppendAtomic(ctx, rec("a", "y")); !errors.Is(err, sdk.ErrTopicGone) || sdk.OutcomeOf(err) != sdk.NotApplied {
			t.Errorf("created anew: %v", err)
		}
		f.must(p.Close(ctx))
		if n := len(f.contents("a")[0]); n != 0 {
			t.Errorf("%d records", n)
		}
	})
}
