package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
)

var update = flag.Bool("update", false, "write the golden files anew")

// asCommand, set in the environment of what tests start, makes this program the command instead of its tests.
const asCommand = "VARVE_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Setenv(asCommand, "1")
	os.Exit(m.Run())
}

// newApp is the command line as a test sees it.
func newApp(url, stdin string) (a *app, out, errs *bytes.Buffer) {
	out, errs = new(bytes.Buffer), new(bytes.Buffer)
	return &app{in: strings.NewReader(stdin), out: out, err: errs, url: url, env: env.System()}, out, errs
}

// varve runs one command line on the log.
func varve(t *testing.T, url, stdin string, args ...string) (out, errs string, code int) {
	t.Helper()
	a, o, e := newApp(url, stdin)
	code = a.run(t.Context(), args)
	return o.String(), e.String(), code
}

// must runs one command line that succeeds and returns what it prints.
func must(t *testing.T, url, stdin string, args ...string) string {
	t.Helper()
	out, errs, code := varve(t, url, stdin, args...)
	if code != exitDone {
		t.Fatalf("varve %s: exit %d: %s", strings.Join(args, " "), code, errs)
	}
	return out
}

// newURL is the URL of an empty log, or one that is made unasked. It is another one while TestMinIO_Again runs.
var newURL = func(t *testing.T) string {
	t.Helper()
	return "file://" + filepath.Join(t.TempDir(), "log")
}

// A golden file is a session: "$ varve …" is a command line, lines with "< " after it its stdin, and the rest up to the next command what it printed: stdout as it is,
// stderr after "! ", and the exit status if it is not 0.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.golden")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(script))
			if got == string(script) {
				return
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("go test -update rewrites %s; it says\n%s\nbut was\n%s", file, script, got)
		})
	}
}

// replay runs a session's commands on a log of its own and returns it with what they print now.
func replay(t *testing.T, script string) string {
	url := newURL(t)
	var b strings.Builder
	for i, block := range strings.Split(script, "$ varve ")[1:] {
		lines := strings.Split(block, "\n")
		fmt.Fprintf(&b, "$ varve %s\n", lines[0])
		var stdin strings.Builder
		for _, line := range lines[1:] {
			if text, ok := strings.CutPrefix(line, "< "); ok {
				fmt.Fprintf(&b, "< %s\n", text)
				stdin.WriteString(text + "\n")
			}
		}
		a, out, errs := newApp(url, stdin.String())
		a.env.Rand = env.NewRand(uint64(i)) // another for each process, and the same in every run: so are topic ids
		code := a.run(t.Context(), strings.Fields(lines[0]))
		b.WriteString(strings.ReplaceAll(out.String(), url, "URL"))
		for line := range strings.Lines(strings.ReplaceAll(errs.String(), url, "URL")) {
			b.WriteString("! " + line)
		}
		if code != 0 {
			fmt.Fprintf(&b, "exit %d\n", code)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestExitStatus(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t")
	for _, c := range []struct {
		line  string
		stdin string
		want  int
	}{
		{"topic list", "", exitDone},
		{"--help", "", exitDone},
		{"topic create --help", "", exitDone},
		{"completion bash", "", exitDone},
		{"", "", exitUsage},
		{"nonsense", "", exitUsage},
		{"topic", "", exitUsage},
		{"topic nonsense", "", exitUsage},
		{"topic list extra", "", exitUsage},
		{"topic list --nonsense", "", exitUsage},
		{"topic create", "", exitUsage},
		{"topic create x --partitions 0", "", exitUsage},
		{"topic create x --partitions many", "", exitUsage},
		{"topic create x --partitions 9999", "", exitUsage},
		{"topic create x --config retention.ms", "", exitUsage},
		{"topic create x --config retention.hours=1", "", exitUsage},
		{"topic create x/y", "", exitUsage},
		{"topic create t", "", exitFailed},
		{"topic describe none", "", exitFailed},
		{"topic alter t", "", exitUsage},
		{"topic alter t --partitions 2", "", exitUsage},
		{"topic delete none", "", exitFailed},
		{"produce none", "a\n", exitFailed},
		{"produce t --format xml", "a\n", exitUsage},
		{"produce t --format lines --key-field k", "a\n", exitUsage},
		{"produce t --keep-partitions", "a\n", exitUsage},
		{"produce t --keep-partitions --partition 1 --format record", "{}\n", exitUsage},
		{"produce t --partition 99", "a\n", exitUsage},
		{"produce t --partition -7", "a\n", exitUsage},
		{"produce t --format json", "no JSON\n", exitFailed},
		{"produce t --format record", `{"value":1}` + "\n", exitFailed},
		{"produce t", "", exitDone},
		{"consume none", "", exitFailed},
		{"consume t --from yesterday", "", exitUsage},
		{"consume t --from -1", "", exitUsage},
		{"consume t --to earliest", "", exitUsage},
		{"consume t --max -1", "", exitUsage},
		{"consume t --follow --to end", "", exitUsage},
		{"consume t --partition 99", "", exitUsage},
		{"consume t --partition x", "", exitUsage},
		{"consume t --from 99 --partition 0", "", exitFailed},
		{"consume", "", exitUsage},
		{"consume t u", "", exitUsage},
		{"consume none --group g", "", exitFailed},
		{"consume t none --group g", "", exitFailed},
		{"consume t --group g --from 3", "", exitUsage},
		{"consume t --group g --from yesterday", "", exitUsage},
		{"consume t --group g --to end", "", exitUsage},
		{"consume t --group g --partition 0", "", exitUsage},
		{"consume t --group g --max -1", "", exitUsage},
		{"consume t --group g/h", "", exitUsage},
		{"consume t --group g --instance-id a/b", "", exitUsage},
		{"consume t --group g --session-timeout 1ms", "", exitUsage},
		{"consume t --group g --session-timeout soon", "", exitUsage},
		{"consume t --from fail", "", exitUsage},
		{"consume t --instance-id a", "", exitUsage},
		{"group", "", exitUsage},
		{"group nonsense", "", exitUsage},
		{"group list extra", "", exitUsage},
		{"group describe", "", exitUsage},
		{"group describe none", "", exitFailed},
		{"group describe a/b", "", exitUsage},
		{"group reset none --to earliest", "", exitFailed},
		{"group reset none", "", exitUsage},
		{"group reset none --to noon", "", exitUsage},
		{"group reset none --to earliest --shift 1", "", exitUsage},
		{"group delete none", "", exitFailed},
		{"lag", "", exitDone},
		{"lag none", "", exitFailed},
		{"segment inspect /no/such/file", "", exitFailed},
		{"segment inspect cli_test.go", "", exitFailed},
		{"dynamodb --listen nonsense", "", exitUsage},
		{"topic list --log nonsense", "", exitUsage},
		{"topic list --log file://", "", exitUsage},
		{"topic list --log aws://b/p?tabel=x", "", exitUsage},
	} {
		out, errs, code := varve(t, url, c.stdin, strings.Fields(c.line)...)
		if code != c.want {
			t.Errorf("varve %s: exit %d, want %d: %s", c.line, code, c.want, errs)
		}
		if code != exitDone && (out != "" || !strings.Contains(errs, "varve: ")) {
			t.Errorf("varve %s: stdout %q, stderr %q: an error goes to stderr, and only there", c.line, out, errs)
		}
		if code == exitDone && errs != "" {
			t.Errorf("varve %s: stderr %q", c.line, errs)
		}
	}
}

// What only looks, or needs a topic, creates nothing where no log is; to begin one in a directory needs no flag.
func TestNoLog(t *testing.T) {
	parent := t.TempDir()
	url := "file://" + filepath.Join(parent, "typo", "x")
	for _, line := range []string{"topic list", "topic list --json", "topic describe t", "topic alter t --partitions 9", "topic delete t", "produce t", "consume t", "consume t --group g", "group list", "group describe g", "group reset g --to 0", "group delete g", "lag"} {
		out, errs, code := varve(t, url, "a\n", strings.Fields(line)...)
		if code != exitFailed || out != "" || !strings.Contains(errs, "no such log") || !strings.Contains(errs, "varve topic create") {
			t.Errorf("varve %s: exit %d: %s%s", line, code, out, errs)
		}
	}
	if out, _, _ := varve(t, url, "", "__complete", "consume", ""); !strings.HasPrefix(out, ":1\n") {
		t.Errorf("completes with %q", out)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	must(t, url, "", "topic", "create", "t")
	if out := must(t, url, "", "topic", "list"); !strings.Contains(out, "\nt ") {
		t.Error(out)
	}
	if out := must(t, newURL(t), "", "topic", "list", "--create-table", "--json"); out != "[]\n" {
		t.Error(out)
	}
}

func TestCompletionOfTopics(t *testing.T) {
	url := newURL(t)
	for _, name := range []string{"orders", "payments"} {
		must(t, url, "", "topic", "create", name)
	}
	for _, command := range [][]string{{"topic", "describe"}, {"topic", "alter"}, {"topic", "delete"}, {"produce"}, {"consume"}} {
		out, _, _ := varve(t, url, "", append(append([]string{"__complete"}, command...), "")...)
		if !strings.HasPrefix(out, "orders\npayments\n") {
			t.Errorf("%v completes with %q", command, out)
		}
	}
}

func TestCompletionOfGroups(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	for _, name := range []string{"orders", "payments"} {
		must(t, url, "", "topic", "create", name, "--partitions", "1")
		must(t, url, "", "consume", name, "--group", "of-"+name)
	}
	for _, command := range []string{"group describe", "group reset", "group delete", "lag", "lag of-orders", "consume orders --group"} {
		out, _, _ := varve(t, url, "", append(append([]string{"__complete"}, strings.Fields(command)...), "")...)
		if !strings.HasPrefix(out, "of-orders\nof-payments\n") {
			t.Errorf("%s completes with %q", command, out)
		}
	}
	for _, command := range []string{"group reset g --topic", "consume --group g orders"} {
		out, _, _ := varve(t, url, "", append(append([]string{"__complete"}, strings.Fields(command)...), "")...)
		if !strings.HasPrefix(out, "orders\npayments\n") {
			t.Errorf("%s completes with %q", command, out)
		}
	}
	for _, command := range []string{"consume orders", "group describe of-orders"} {
		if out, _, _ := varve(t, url, "", append(append([]string{"__complete"}, strings.Fields(command)...), "")...); !strings.HasPrefix(out, ":4\n") {
			t.Errorf("%s, which takes no more, completes with %q", command, out)
		}
	}
}

// interrupted runs a command line until it has printed all that is waited for, in whatever order, and then interrupts it.
func interrupted(t *testing.T, url string, wait []string, args ...string) (out, errs string, code int) {
	t.Helper()
	a, _, e := newApp(url, "")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, w := io.Pipe()
	a.out = w
	done := make(chan struct{})
	go func() {
		defer close(done)
		code = a.run(ctx, args)
		w.Close()
	}()
	var b strings.Builder
	chunk := make([]byte, 4096)
	for {
		n, err := r.Read(chunk)
		b.Write(chunk[:n])
		if err != nil {
			break
		}
		if !slices.ContainsFunc(wait, func(w string) bool { return !strings.Contains(b.String(), w) }) {
			cancel()
		}
	}
	<-done
	return b.String(), e.String(), code
}
