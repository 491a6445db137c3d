package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/minio/miniotest"
)

// This binary is also the workers.
func TestMain(m *testing.M) {
	if os.Getenv(specVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// small is a run that takes seconds.
func small(out io.Writer) options {
	return options{playFor: 1000 * time.Millisecond, seed: 7, timeout: 3 * time.Second, gap: 100 * time.Millisecond, pace: 20 * time.Millisecond, out: out,
		cast: map[role]int{producer: 1, reader: 1, member: 1, stepper: 1, keeper: 1, server: 1, client: 1, watcher: 1}}
}

// played plays a run, which must end without a violation and leave nothing.
func played(t *testing.T, o func(io.Writer) options) {
	t.Helper()
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	var out bytes.Buffer
	v, err := play(t.Context(), o(&out))
	t.Logf("\n%s", &out)
	if err != nil {
		t.Fatal(err)
	}
	if !v.ok() {
		t.Errorf("%d violations", len(v.violations))
	}
	for _, what := range []string{"read", "results, each once", "acknowledged"} {
		if v.counts[what] == 0 {
			t.Errorf("%q has not come up", what)
		}
	}
	nothingLeft(t, temp)
}

func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
}

func TestChaos(t *testing.T) { played(t, small) }

func TestMinIO_Chaos(t *testing.T) {
	program := miniotest.Program(t)
	miniotest.Environment(t, "AWS_ACCESS_KEY_ID", "", "AWS_SECRET_ACCESS_KEY", "") // to be set again after the test
	played(t, func(out io.Writer) options {
		o := small(out)
		o.minio, o.playFor, o.gap, o.pace, o.timeout = program, 20*time.Second, 500*time.Millisecond, 100*time.Millisecond, 2*time.Second
		return o
	})
}

// A run that is interrupted has no verdict, and nothing of it is left.
func TestInterrupted(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	ctx, interrupt := context.WithCancel(t.Context())
	o := small(writer(func(b []byte) {
		if bytes.Contains(b, []byte("settles")) { // all processes run
			interrupt()
		}
	}))
	o.playFor, o.cast = 1, map[role]int{producer: 1}
	if v, err := play(ctx, o); v != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", v, err)
	}
	nothingLeft(t, temp)
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

// What was to be played and was not is told.
func TestTally(t *testing.T) {
	all := []fault{{kind: killed, whom: "reader"}, {kind: frozen, whom: "reader"}, {kind: cutOff, whom: "connections"}}
	tally := newTally(all)
	tally.add(all[0])
	tally.add(all[0])
	if got := fmt.Sprint(tally.missing()); got != "[cut of connections freeze of reader]" || tally.total() != 2 {
		t.Errorf("missing are %v of %d", got, tally.total())
	}
	var out bytes.Buffer
	tally.print(&out)
	if rows := strings.Split(out.String(), "\n"); len(rows) != 4 || strings.Join(strings.Fields(rows[2]), " ") != "reader 2 0" {
		t.Errorf("\n%s", &out)
	}
}

// A history is read up to a line that was cut short, and on with the next life; what was written at one moment stays in order.
func TestJournal(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "p-1"+journalSuffix)
	for _, life := range []string{"p-1.1", "p-1.2"} {
		j, err := openJournal(path, life, env.System())
		if err != nil {
			t.Fatal(err)
		}
		j.write(line{Kind: append_, Value: "a"}, line{Kind: append_, Value: "b"})
		j.write(line{Kind: told, Value: "a", Failure: j.failed(io.EOF)}, line{Kind: told, Value: "b", Failure: j.failed(io.EOF)})
		fmt.Fprint(j.file, `{"at":1,"kind":"told","val`)
		j.file.Close()
	}
	lines, err := readJournals(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, l := range lines {
		fmt.Fprint(&got, l.By, " ", l.Kind, l.Value, " ")
		if l.Kind == told && (l.Failure == nil || l.Failure.Number != 1 || !l.Failure.Refused) {
			t.Errorf("%+v", l.Failure)
		}
	}
	life := func(by string) string {
		return strings.ReplaceAll("BY born BY appenda BY appendb BY tolda BY toldb ", "BY", by)
	}
	if want := life("p-1.1") + life("p-1.2"); got.String() != want {
		t.Errorf("%s\nwant\n%s", &got, want)
	}
}

// echo answers each byte with the same.
func echo(t *testing.T) (address string, came <-chan byte) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	bytes := make(chan byte, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 1)
				for {
					if _, err := c.Read(b); err != nil {
						return
					}
					bytes <- b[0]
					if _, err := c.Write(b); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String(), bytes
}

// What a proxy does to connections: nothing, late, only there and not back, none any more.
func TestProxy(t *testing.T) {
	address, came := echo(t)
	p, err := newProxy(env.System())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	p.lead(address)
	dial := func() net.Conn {
		c, err := net.Dial("tcp", p.address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	ask := func(c net.Conn, b byte) error {
		if _, err := c.Write([]byte{b}); err != nil {
			return err
		}
		answer := make([]byte, 1)
		_, err := c.Read(answer)
		if err == nil && answer[0] != b {
			t.Errorf("asked %d, answered %d", b, answer[0])
		}
		return err
	}
	a := dial()
	if err := ask(a, 1); err != nil || <-came != 1 {
		t.Error(err)
	}
	if n := p.late(time.Millisecond); n != 1 {
		t.Errorf("%d connections", n)
	}
	if err := ask(a, 2); err != nil || <-came != 2 {
		t.Error(err)
	}
	p.late(0)
	if n := p.halve(); n != 1 {
		t.Errorf("%d connections", n)
	}
	if err := ask(a, 3); !errors.Is(err, io.EOF) || <-came != 3 {
		t.Errorf("half-closed: %v", err)
	}
	b := dial()
	if err := ask(b, 4); err != nil || <-came != 4 {
		t.Error(err)
	}
	if p.cut() == 0 {
		t.Error("no connection was cut")
	}
	if err := ask(b, 5); err == nil {
		t.Error("a connection that was cut answers")
	}
	p.lead("127.0.0.1:0")
	if err := ask(dial(), 6); err == nil {
		t.Error("there is no service, and it answers")
	}
}

// A full disk takes nothing, and is as it was when it is freed. It takes root.
func TestDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	d, err := newDisk(path, 8<<20)
	if err != nil {
		t.Skip(err)
	}
	defer d.close()
	file := filepath.Join(path, "file")
	for range 2 {
		if err := d.fill(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err == nil {
			t.Error("a full disk takes a file")
		}
		left, err := d.free()
		if err != nil || left < 7<<20 {
			t.Errorf("%d bytes left, %v", left, err)
		}
		if err := os.WriteFile(file, []byte("small"), 0o600); err != nil {
			t.Error(err)
		}
	}
}
