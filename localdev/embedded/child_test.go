package embedded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/sdk"
)

// The tests start this binary again as other processes on the same log. What such a process is to do is in its environment.
const (
	childLog   = "VARVE_TEST_LOG"   // its URL; set in a child only
	childWork  = "VARVE_TEST_WORK"  // "produce", "delete", or one of sweep_test.go's
	childName  = "VARVE_TEST_NAME"  // begins every value that it produces
	childCount = "VARVE_TEST_COUNT" // of records
	childPoint = "VARVE_TEST_POINT" // at which it stops for ever,
	childNth   = "VARVE_TEST_NTH"   // the time when it gets there for the nth time,
	childHeld  = "VARVE_TEST_HELD"  // if set not for ever, but until its input ends
	childClock = "VARVE_TEST_CLOCK" // how far its clocks, and that of its table, are off
)

const topicName = "t"

func TestMain(m *testing.M) {
	if os.Getenv(childLog) == "" {
		os.Exit(m.Run())
	}
	if err := child(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
}

// child is main of another process. It says on stdout what was acknowledged, and when it stops.
func child(ctx context.Context) error {
	point := env.Point(os.Getenv(childPoint))
	nth, _ := strconv.ParseInt(os.Getenv(childNth), 10, 64)
	var seen atomic.Int64
	off, _ := time.ParseDuration(os.Getenv(childClock))
	e := env.System()
	e.Clock = shifted{e.Clock, off}
	input := inputEnd()
	e.Pause = func(p env.Point) {
		if p == point && seen.Add(1) == nth {
			fmt.Println("paused")
			if os.Getenv(childHeld) != "" {
				<-input
				point = "" // it goes on: nobody else asks, as this is the only flush
			}
		}
		if p == point && seen.Load() >= nth {
			select {} // every goroutine that gets here: a process that is stopped does nothing more
		}
	}
	d := hooked{off: off}
	if point == env.BeforeFence || point == env.AfterFence {
		d.hook = dropCommits()
	}
	log, err := sdk.Open(ctx, os.Getenv(childLog), sdk.WithDriver(d), sdk.WithEnv(e))
	if err != nil {
		return err
	}
	switch work := os.Getenv(childWork); work {
	case "delete":
		return log.Admin().DeleteTopic(ctx, topicName)
	case "compact", "retain", "sweep", "read":
		return errors.Join(childLoop(ctx, log, work, e, input), log.Close())
	}
	n, _ := strconv.Atoi(os.Getenv(childCount))
	return errors.Join(childProduce(ctx, log, os.Getenv(childName), n), log.Close())
}

// childProduce produces n records, at most a few at a time so that there are many flushes.
func childProduce(ctx context.Context, log *sdk.Log, name string, n int) error {
	p, err := log.NewProducer(sdk.WithLinger(0, 0), sdk.WithBufferBytes(400))
	if err != nil {
		return err
	}
	for i := range n {
		r := &sdk.Record{Topic: topicName, Key: strconv.AppendInt(nil, int64(i%7), 10), Value: fmt.Appendf(nil, "%s-%d", name, i)}
		p.Produce(ctx, r, func(r *sdk.Record, err error) {
			if err != nil {
				fmt.Printf("failed %s %v\n", r.Value, err)
				return
			}
			fmt.Printf("ack %d %d %s\n", r.Partition, r.Offset, r.Value)
		})
	}
	return p.Close(ctx)
}

// hooked is the driver of file:// with a hook in its engine, whose clock is off.
type hooked struct {
	hook dynamodb.Hook
	off  time.Duration
}

func (hooked) Schemes() []string { return []string{"file"} }

func (d hooked) Open(ctx context.Context, u *url.URL, o sdk.DriverOptions) (sdk.Backend, error) {
	path, err := directory(u)
	if err != nil {
		return sdk.Backend{}, err
	}
	return openDirectory(ctx, path, dynamodb.Options{Hook: d.hook, Now: func() time.Time { return time.Now().Add(d.off) }}, o)
}

// dropCommits loses every third commit on the way to the table, so that its outcome must be settled by a fence.
func dropCommits() dynamodb.Hook {
	var n atomic.Int64
	return func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
		if c.Op == "UpdateItem" && strings.Contains(string(c.Body), "attribute_not_exists") && strings.HasPrefix(c.Keys[0].Partition, "L#") && n.Add(1)%3 == 0 {
			return dynamodb.Dropped()
		}
		return dynamodb.Fault{}
	}
}

// shifted is a clock that is off.
type shifted struct {
	env.Clock
	off time.Duration
}

func (s shifted) Now() time.Time { return s.Clock.Now().Add(s.off) }

// inputEnd is closed when nothing more can come from the parent.
func inputEnd() <-chan struct{} {
	end := make(chan struct{})
	go func() {
		defer close(end)
		io.Copy(io.Discard, os.Stdin)
	}()
	return end
}

// acked is where a record was acknowledged to be.
type acked struct {
	partition int
	offset    int64
}

// process is a child as its parent sees it.
type process struct {
	*exec.Cmd
	input io.Closer
	lines *bufio.Scanner
	acks  map[string]acked // by value
}

// start starts a child on the log.
func start(t *testing.T, url string, settings map[string]string) *process {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), childLog+"="+url, "GORACE=atexit_sleep_ms=0") // or the detector has each wait for a second when it ends
	for name, value := range settings {
		c.Env = append(c.Env, name+"="+value)
	}
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return &process{Cmd: c, input: in, lines: bufio.NewScanner(out), acks: map[string]acked{}}
}

// watch reads what the child says until it is paused or ends, and tells which.
func (p *process) watch(t *testing.T) (paused bool) {
	t.Helper()
	for p.lines.Scan() {
		var a acked
		var value string
		switch line := p.lines.Text(); {
		case line == "paused":
			return true
		case strings.HasPrefix(line, "ack "):
			if _, err := fmt.Sscanf(line, "ack %d %d %s", &a.partition, &a.offset, &value); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if _, twice := p.acks[value]; twice {
				t.Errorf("%s was acknowledged twice", value)
			}
			p.acks[value] = a
		default:
			t.Errorf("child: %s", line)
		}
	}
	return false
}
