package judge

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// server is a judge that is a program: where it is looked for, and how it is started on a port of the loopback
// interface.
type server struct {
	name string
	// candidates are programs, the first of which is there and passes probe is taken. tools stands for .tools.
	candidates []string
	probe      []string // arguments that print the version and fail if the program will not do
	arguments  []string // PORT stands for the port
	ready      *regexp.Regexp
	install    string
	without    []string // operations that it does not have
}

var servers = []server{
	{
		name: "moto", candidates: []string{"tools/moto/bin/python3", "python3"},
		probe:     []string{"-c", "import moto, moto.server, flask; print(moto.__version__)"},
		arguments: []string{"-m", "moto.server", "-H", "127.0.0.1", "-p", "PORT"},
		ready:     regexp.MustCompile(`Running on`), install: "pip install 'moto[server]==5.2.1', or make judges",
	},
	{
		name: "dynoxide", candidates: []string{"tools/dynoxide/bin/dynoxide", "dynoxide"},
		probe:     []string{"--version"},
		arguments: []string{"--host", "127.0.0.1", "--port", "PORT"},
		ready:     regexp.MustCompile(`(?i)listening|running`), install: "cargo install dynoxide-rs --version 3.2.0, or make judges",
	},
	{
		name: "dynalite", candidates: []string{"tools/dynalite/node_modules/.bin/dynalite", "dynalite"},
		probe:     []string{"--help"},
		arguments: []string{"--host", "127.0.0.1", "--port", "PORT", "--createTableMs", "0", "--deleteTableMs", "0", "--updateTableMs", "0"},
		ready:     regexp.MustCompile(`(?i)listening`), install: "npm install dynalite@4.0.0, or make judges",
		without: []string{"TransactWriteItems", "TransactGetItems", "UpdateTimeToLive"},
	},
}

// find is the program and its version, "" if it is not here.
func (s server) find() (program, version string) {
	tools, err := filepath.Abs("../../../.tools")
	if err != nil {
		return "", ""
	}
	for _, candidate := range s.candidates {
		if rest, ok := strings.CutPrefix(candidate, "tools"); ok {
			candidate = tools + rest
		}
		path, err := exec.LookPath(candidate)
		if err != nil {
			continue
		}
		if out, err := exec.Command(path, s.probe...).Output(); err == nil {
			version, _, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
			return path, version
		}
	}
	return "", ""
}

// start runs the program until the test ends, and is its URL.
func (s server) start(t *testing.T, program string) (string, error) {
	port, err := freePort()
	if err != nil {
		return "", err
	}
	arguments := make([]string, len(s.arguments))
	for i, a := range s.arguments {
		arguments[i] = strings.ReplaceAll(a, "PORT", port)
	}
	ctx, stop := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, program, arguments...)
	command.Dir = t.TempDir()
	command.Env = append(os.Environ(), "PYTHONUNBUFFERED=1")
	said := &output{ready: s.ready, serves: make(chan struct{})}
	command.Stdout, command.Stderr = said, said
	if err := command.Start(); err != nil {
		stop()
		return "", err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = command.Wait() // it is killed, or has crashed: then its requests fail
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		if t.Failed() {
			t.Logf("%s said last: %s", s.name, said.text)
		}
	})
	select {
	case <-said.serves:
		return "http://127.0.0.1:" + port, nil
	case <-ended:
		return "", fmt.Errorf("%s ended: %s", s.name, said.text)
	}
}

// output is the end of what a program prints.
type output struct {
	ready  *regexp.Regexp
	serves chan struct{} // closed when it has said that it serves
	isUp   bool
	text   []byte
}

// Write is called by one goroutine.
func (o *output) Write(b []byte) (int, error) {
	o.text = append(o.text, b...)
	if !o.isUp && o.ready.Match(o.text) {
		o.isUp = true
		close(o.serves)
	}
	const kept = 4 << 10
	o.text = o.text[max(0, len(o.text)-kept):]
	return len(b), nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
