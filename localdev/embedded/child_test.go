package embedded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/sdk"
)

// The tests start this binary again as other processes on the same log. What such a process is to do is in its environment.
const (
	childLog   = "VARVE_TEST_LOG"   // its URL; set in a child only
	childWork  = "VARVE_TEST_WORK"  // "produce" or "delete"
	childName  = "VARVE_TEST_NAME"  // begins every value that it produces
	childCount = "VARVE_TEST_COUNT" // of records
	childPoint = "VARVE_TEST_POINT" // at which it stops for ever,
	childNth   = "VARVE_TEST_NTH"   // the time when it gets there for the nth time
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
	e := env.System()
	e.Pause = func(p env.Point) {
		if p == point && seen.Add(1) == nth {
			fmt.Println("paused")
		}
		if p == point && seen.Load() >= nth {
			select {} // every goroutine that gets here: a process that is stopped does nothing more
		}
	}
	d := hooked{}
	if point == env.BeforeFence || point == env.AfterFence {
		d.hook = dropCommits()
	}
	log, err := sdk.Open(ctx, os.Getenv(childLog), sdk.WithDriver(d), sdk.WithEnv(e))
	if err != nil {
		return err
	}
	if os.Getenv(childWork) == "delete" {
		return log.Admin().DeleteTopic(ctx, topicName)
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

// hooked is the driver of file:// with a hook in its engine.
type hooked struct{ hook dynamodb.Hook }

func (hooked) Schemes() []string { return []string{"file"} }

func (d hooked) Open(ctx context.Context, u *url.URL, o sdk.DriverOptions) (sdk.Backend, error) {
	path, err := directory(u)
	if err != nil {
		return sdk.Backend{}, err
	}
	return openDirectory(ctx, path, dynamodb.Options{Hook: d.hook}, o)
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

// acked is where a record was acknowledged to be.
type acked struct {
	partition int
	offset    int64
}

// process is a child as its parent sees it.
type process struct {
	*exec.Cmd
	lines *bufio.Scanner
	acks  map[string]acked // by value
}

// start starts a child on the log.
func start(t *testing.T, url string, settings map[string]string) *process {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), childLog+"="+url)
	for name, value := range settings {
		c.Env = append(c.Env, name+"="+value)
	}
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return &process{Cmd: c, lines: bufio.NewScanner(out), acks: map[string]acked{}}
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
