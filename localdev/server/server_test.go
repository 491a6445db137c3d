package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/localdev/server"
	"github.com/varvelog/varve/sdk"
)

var requests = flag.Int("requests", 400, "requests of TestExactlyOnceUnderKills")

// serveLog names the log that this binary, when it was started again by a test, is to serve.
const serveLog = "VARVE_TEST_SERVE"

func TestMain(m *testing.M) {
	if url := os.Getenv(serveLog); url != "" {
		if err := serve(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serve prints the server's URL and serves until its standard input ends: with the test, if that is killed.
func serve(url string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	log, err := sdk.Open(ctx, url, sdk.WithDriver(embedded.Driver()))
	if err != nil {
		return err
	}
	s, err := server.Start(log, server.Options{Token: "secret"})
	if err != nil {
		return err
	}
	fmt.Println(s.URL())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	<-ctx.Done()
	return errors.Join(s.Close(context.Background()), log.Close())
}

// process is a server in a process of its own.
type process struct {
	*exec.Cmd
	url string
}

func startProcess(t *testing.T, log string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0], "-test.run=^$")}
	p.Env = append(os.Environ(), serveLog+"="+log)
	p.Stderr = os.Stderr
	_, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server did not start: %v", err)
	}
	p.url = strings.TrimSpace(line)
	return p
}

// post sends a request until it is answered for good, to whichever server there is. An answer that says "again", and none, is followed by the same request.
func post(ctx context.Context, e env.Env, current *atomic.Pointer[process], path, body string, into any, headers ...string) (tries int, err error) {
	for tries = 1; ; tries++ {
		p := current.Load()
		r, err := http.NewRequestWithContext(ctx, "POST", p.url+path, strings.NewReader(body))
		if err != nil {
			return tries, err
		}
		r.Header.Set("Authorization", "Bearer secret")
		if body != "" {
			r.Header.Set("Content-Type", wire.JSONType)
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		answer, err := http.DefaultClient.Do(r)
		if err == nil {
			var b []byte
			b, err = io.ReadAll(answer.Body)
			answer.Body.Close()
			switch {
			case err != nil:
			case answer.StatusCode < 300:
				return tries, json.Unmarshal(b, into)
			default:
				var f wire.Failure
				if json.Unmarshal(b, &f) != nil || f.Error == nil || !f.Error.Retriable {
					return tries, fmt.Errorf("%s: %d: %s", path, answer.StatusCode, b)
				}
			}
		}
		if ctx.Err() != nil {
			return tries, fmt.Errorf("%w: %v", context.Cause(ctx), err)
		}
		_ = e.Sleep(ctx, e.Jitter(20*time.Millisecond)) // while there is no server
	}
}

// Eight streams of requests with producer id and sequence, whose server is killed again and again: each record that was acknowledged is in the log once, at the offset
// that was answered, and nothing else is. 10,000 requests by -requests 10000.
func TestExactlyOnceUnderKills(t *testing.T) {
	e := env.System()
	url := "file://" + filepath.Join(t.TempDir(), "log")
	log, err := sdk.Open(t.Context(), url, sdk.WithDriver(embedded.Driver()), sdk.WithCreateTable())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if _, err := log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: "t", Partitions: 8, LaneWidth: 4}); err != nil {
		t.Fatal(err)
	}
	const streams = 8
	var current atomic.Pointer[process]
	current.Store(startProcess(t, url))
	answered := make(chan struct{}, *requests)
	type ack struct {
		value     string
		partition int
		offset    *int64
	}
	acks := make([][]ack, streams)
	var retried, repeated atomic.Int64
	var all sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	for stream := range streams {
		all.Go(func() {
			var id wire.Producer
			if _, err := post(ctx, e, &current, "/v1/producers", "", &id); err != nil {
				t.Error(err)
				cancel()
				return
			}
			for n := 1; n <= *requests/streams; n++ {
				body := fmt.Sprintf(`{"records":[{"partition":%d,"value":"%d-%d-a"},{"partition":%d,"value":"%d-%d-b"}]}`, stream, stream, n, stream/4*4+n%4, stream, n)
				var p wire.Produced
				tries, err := post(ctx, e, &current, "/v1/topics/t/records", body, &p, wire.ProducerIDHeader, id.ID, wire.SequenceHeader, fmt.Sprint(n))
				if err != nil || len(p.Results) != 2 {
					t.Errorf("stream %d, request %d: %v: %+v", stream, n, err, p)
					cancel()
					return
				}
				if retried.Add(int64(tries - 1)); p.Repeated {
					repeated.Add(1)
				}
				for i, r := range p.Results {
					acks[stream] = append(acks[stream], ack{fmt.Sprintf("%d-%d-%c", stream, n, 'a'+i), *r.Partition, r.Offset})
				}
				answered <- struct{}{}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	kills := 0
	for running := true; running; {
		next := 10 + int(e.Uint64()%uint64(max(*requests/20, 20)))
		for ; next > 0 && running; next-- {
			select {
			case <-answered:
			case <-done:
				running = false
			}
		}
		if running {
			p := current.Load()
			p.Process.Kill()
			p.Wait()
			current.Store(startProcess(t, url))
			kills++
		}
	}
	last := current.Load()
	last.Process.Signal(syscall.SIGINT)
	if err := last.Wait(); err != nil {
		t.Errorf("the last server: %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
	found := map[string]string{}
	r, err := log.NewReader(t.Context(), "t", sdk.To(sdk.Latest))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
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
				if at := found[string(x.Value)]; at != "" {
					t.Errorf("%s is at %s and at %d/%d", x.Value, at, f.Partition, x.Offset)
				}
				found[string(x.Value)] = fmt.Sprint(f.Partition, "/", x.Offset)
			}
		}
	}
	n := 0
	for _, list := range acks {
		for _, a := range list {
			n++
			at := found[a.value]
			if at == "" || a.offset != nil && at != fmt.Sprint(a.partition, "/", *a.offset) {
				t.Errorf("%s was acknowledged at %d/%v, found at %q", a.value, a.partition, a.offset, at)
			}
		}
	}
	if n != len(found) || n != *requests/streams*streams*2 || kills == 0 {
		t.Errorf("%d acknowledged, %d in the log, %d kills", n, len(found), kills)
	}
	t.Logf("%d requests, %d kills, %d sent again, %d of them had been applied: %d records, each once", n/2, kills, retried.Load(), repeated.Load(), len(found))
}
