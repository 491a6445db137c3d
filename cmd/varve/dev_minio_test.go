package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/localdev/minio/miniotest"
)

// Without a server, or a directory to keep its data in, it is said what to do.
func TestDevWithoutMinIO(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("PATH", t.TempDir())
	for _, c := range []struct {
		log, flag string
		code      int
		says      string
	}{
		{defaultURL, "--minio", exitFailed, "'make minio' builds its server"},
		{defaultURL, "--minio=./nothing", exitFailed, "'make minio' builds the server"},
		{"mem://", "--minio", exitUsage, "valid is file://./DIR"},
		{"aws://bucket/prefix?table=t", "--minio", exitUsage, "valid is file://./DIR"},
	} {
		if out, errs, code := varve(t, c.log, "", "dev", c.flag); code != c.code || out != "" || !strings.Contains(errs, c.says) {
			t.Errorf("%s on %s: exit %d, %q, %q", c.flag, c.log, code, out, errs)
		}
	}
}

func TestMinIOProgramThatWasBuilt(t *testing.T) {
	t.Chdir(t.TempDir())
	path := t.TempDir()
	t.Setenv("PATH", path)
	for _, program := range []string{filepath.Join(path, "minio"), filepath.FromSlash(minioBuilt)} { // the second goes before the first
		if err := os.MkdirAll(filepath.Dir(program), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(program, nil, 0o777); err != nil {
			t.Fatal(err)
		}
		if got, err := minioProgram(findMinIO); err != nil || filepath.Clean(got) != program {
			t.Errorf("%s, %v; want %s", got, err, program)
		}
	}
}

// When MinIO ends, so does what runs on it, and says why; what ends of itself says nothing of MinIO.
func TestWhileUp(t *testing.T) {
	ended, done := errors.New("ended"), errors.New("done")
	untilDone := func(ctx context.Context) error { <-ctx.Done(); return nil }
	if err := whileUp(t.Context(), func(context.Context) error { return ended }, untilDone); !errors.Is(err, ended) {
		t.Errorf("%v, want that MinIO ended", err)
	}
	if err := whileUp(t.Context(), untilDone, func(context.Context) error { return done }); !errors.Is(err, done) {
		t.Errorf("%v, want what was done", err)
	}
}

func TestQuoted(t *testing.T) {
	for _, s := range []string{"", "a b", "it's $HOME; `x`", `\`} {
		if out, err := exec.Command("sh", "-c", "printf %s "+quoted(s)).Output(); err != nil || string(out) != s {
			t.Errorf("%q is %q to a shell, %v", s, out, err)
		}
	}
}

// devProcess is a "varve dev --minio" in a process of its own.
type devProcess struct {
	*exec.Cmd
	url  string
	rest chan string // all of stdout, when it ends
	errs *bytes.Buffer
}

func startDev(t *testing.T, log, program string) *devProcess {
	t.Helper()
	p := &devProcess{Cmd: exec.Command(os.Args[0], "--log", log, "dev", "--minio="+program), rest: make(chan string, 1), errs: new(bytes.Buffer)}
	p.Stderr = p.errs
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill() })
	r := bufio.NewReader(out)
	line, err := r.ReadString('\n')
	if err != nil {
		p.Wait()
		t.Fatalf("it printed %q: %v: %s", line, err, p.errs)
	}
	p.url = strings.TrimSpace(line)
	go func() {
		b, _ := io.ReadAll(r)
		p.rest <- line + string(b)
	}()
	return p
}

// shell is what a shell has in its environment after it has read the file, the log and the keys.
func shell(t *testing.T, file string) (log, access, secret string) {
	t.Helper()
	out, err := exec.Command("sh", "-c", `. "$0"; echo "$VARVE_LOG"; echo "$AWS_ACCESS_KEY_ID"; echo "$AWS_SECRET_ACCESS_KEY"`, file).Output()
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(all) != 3 || all[1] == "" || len(all[2]) < 32 {
		t.Fatal("the file lacks something") // and is not shown: it has the keys
	}
	return all[0], all[1], all[2]
}

// answering tells which of the log's servers answer.
func answering(t *testing.T, log string) (all []string) {
	t.Helper()
	u, err := url.Parse(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"s3_endpoint", "dynamodb_endpoint"} {
		endpoint, err := url.Parse(u.Query().Get(name))
		if err != nil {
			t.Fatal(err)
		}
		if c, err := net.Dial("tcp", endpoint.Host); err == nil {
			c.Close()
			all = append(all, name)
		}
	}
	return all
}

// A log on MinIO: what is appended through HTTP and by the aws:// URL is read by both, is there after a SIGKILL and after an interrupt, and neither leaves a server.
// The directory is that of one process, the keys are those of one run, and nobody is told them who may not read the file.
func TestMinIO_Dev(t *testing.T) {
	program := miniotest.Program(t)
	directory := filepath.Join(t.TempDir(), "it's a log")
	file := filepath.Join(directory, "minio", "env")
	place := "file://" + filepath.ToSlash(directory)
	keys, want := map[string]bool{}, 0
	for _, end := range []os.Signal{os.Kill, os.Interrupt, nil} {
		dev := startDev(t, place, program)
		log, access, secret := shell(t, file)
		if keys[access] || keys[secret] {
			t.Error("the keys are those of an earlier run")
		}
		keys[access], keys[secret] = true, true
		if at, err := os.Stat(file); err != nil || at.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", at.Mode(), err)
		}
		miniotest.Environment(t, "AWS_ACCESS_KEY_ID", access, "AWS_SECRET_ACCESS_KEY", secret)
		if want == 0 {
			must(t, log, "", "topic", "create", "t", "--partitions", "1")
		}
		must(t, log, "directly\n", "produce", "t")
		resp, err := http.Post(dev.url+"/v1/topics/t/records", wire.JSONType, strings.NewReader(`{"records":[{"value":"over HTTP"}]}`))
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
		resp.Body.Close()
		want += 2
		for _, url := range []string{log, dev.url} {
			if got, all := must(t, url, "", "consume", "t"), strings.Repeat("directly\nover HTTP\n", want/2); got != all {
				t.Errorf("got %q, want %q", got, all)
			}
		}
		if end == nil {
			if out, errs, code := varve(t, place, "", "dev", "--minio="+program); code != exitFailed || out != "" || !strings.Contains(errs, "another MinIO runs") {
				t.Errorf("two on one directory: exit %d, %q, %q", code, out, errs)
			}
			end = syscall.SIGTERM
		}
		dev.Process.Signal(end)
		printed := <-dev.rest
		dev.Wait()
		if printed += dev.errs.String(); strings.Contains(printed, secret) || strings.Contains(printed, access) {
			t.Errorf("the keys are printed: %s", printed)
		}
		if end != os.Kill {
			if code := dev.ProcessState.ExitCode(); code != exitDone {
				t.Errorf("exit %d: %s", code, dev.errs)
			}
			if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the file with the keys is left: %v", err)
			}
		}
		for end == os.Kill && len(answering(t, log)) > 0 { // the kernel kills MinIO a moment later
			if t.Context().Err() != nil {
				break
			}
		}
		if all := answering(t, log); len(all) > 0 {
			t.Errorf("%v still answer after %v", all, end)
		}
	}
}
