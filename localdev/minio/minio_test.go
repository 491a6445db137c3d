package minio

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
)

// This binary stands in for MinIO's program, so that what is here needs none. The variable says what it does.
const pretend = "VARVE_TEST_PRETEND"

func TestMain(m *testing.M) {
	switch os.Getenv(pretend) {
	case "":
		os.Exit(m.Run())
	case "serve": // as MinIO would
		at := slices.Index(os.Args, "--address") + 1
		fmt.Fprintln(os.Stderr, http.ListenAndServe(os.Args[at], http.NewServeMux()))
	case "serve well":
		at := slices.Index(os.Args, "--address") + 1
		well := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		fmt.Fprintln(os.Stderr, http.ListenAndServe(os.Args[at], well))
	case "end":
		fmt.Println("no room for", os.Getenv("MINIO_ROOT_PASSWORD"))
	case "start one and stay":
		os.Setenv(pretend, "serve well")
		s, err := Start(context.Background(), env.System(), os.Args[0], os.Args[1])
		fmt.Println(s.address, err)
		select {}
	}
	os.Exit(1)
}

func pretending(t *testing.T, what string) (program, dir string) {
	t.Setenv(pretend, what)
	t.Setenv("MINIO_ROOT_PASSWORD", "of this machine's own MinIO")
	return os.Args[0], filepath.Join(t.TempDir(), "minio")
}

// answers tells whether anything listens.
func answers(s *Server) bool {
	c, err := net.Dial("tcp", s.address)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// A server answers from Start on, not after Kill, again after Restart at the same address, and not after Close, which leaves the data.
func TestServer(t *testing.T) {
	program, dir := pretending(t, "serve well")
	s, err := Start(t.Context(), env.System(), program, dir)
	if err != nil {
		t.Fatal(err)
	}
	at := s.Endpoint()
	if err := s.Restart(t.Context()); err == nil {
		t.Error("a server that runs was started again")
	}
	for range 2 {
		if !answers(s) {
			t.Error("it does not answer")
		}
		s.Kill()
		s.Kill()
		if answers(s) {
			t.Error("it answers after Kill")
		}
		if _, err := os.Stat(s.data()); err != nil {
			t.Error(err)
		}
		if err := s.Restart(t.Context()); err != nil || s.Endpoint() != at {
			t.Fatalf("%v, at %s and before at %s", err, s.Endpoint(), at)
		}
	}
	if err := s.Close(); err != nil || answers(s) {
		t.Errorf("after Close: %v, answers %v", err, answers(s))
	}
	if _, err := os.Stat(s.data()); err != nil {
		t.Error(err)
	}
}

// One server at a time runs on a directory, also when whoever started the other is gone and could not take it along.
func TestServerHasItsDirectoryAlone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("nothing is locked there")
	}
	program, dir := pretending(t, "serve well")
	s, err := Start(t.Context(), env.System(), program, dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := Start(t.Context(), env.System(), program, dir); !errors.Is(err, ErrInUse) {
			t.Errorf("a second one: %v", err)
		}
		s.lock.Close() // as its parent's end does
	}
	s.Kill()
	again, err := Start(t.Context(), env.System(), program, dir)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// A server that ends of itself is told of with what it said; one that runs is not.
func TestWatch(t *testing.T) {
	program, dir := pretending(t, "serve well")
	s, err := Start(t.Context(), env.System(), program, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Watch(ctx); err != nil {
		t.Errorf("%v of one that runs", err)
	}
	s.process.command.Process.Kill()
	if err := s.Watch(t.Context()); !errors.Is(err, errEnded) || !strings.HasSuffix(err.Error(), "signal: killed") {
		t.Errorf("%v of one that was killed", err)
	}
}

// Each server has keys of its own.
func TestServerKeys(t *testing.T) {
	program, dir := pretending(t, "serve well")
	keys := map[string]bool{}
	for n := range 3 {
		s, err := Start(t.Context(), env.System(), program, fmt.Sprint(dir, n))
		if err != nil {
			t.Fatal(err)
		}
		access, secret := s.Credentials()
		if keys[access] || keys[secret] || len(secret) < 32 || !slices.Contains(s.environment(), "MINIO_ROOT_PASSWORD="+secret) {
			t.Errorf("keys %v and one more", keys)
		}
		if i := slices.IndexFunc(s.environment(), func(v string) bool { return strings.HasSuffix(v, "own MinIO") }); i >= 0 {
			t.Error("this machine's own MinIO configures it")
		}
		keys[access], keys[secret] = true, true
		s.Close()
	}
}

// What does not come up is an error that says what is known, and shows no secret.
func TestServerThatDoesNotStart(t *testing.T) {
	program, dir := pretending(t, "end")
	if _, err := Start(t.Context(), env.System(), program, dir); !errors.Is(err, errEnded) || !strings.Contains(err.Error(), "no room for (secret)") {
		t.Errorf("one that ends: %v", err)
	}
	if _, err := Start(t.Context(), env.System(), filepath.Join(dir, "nothing"), dir); err == nil || !strings.Contains(err.Error(), "make minio") {
		t.Errorf("none there: %v", err)
	}
	t.Setenv(pretend, "serve")
	ctx, cancel := env.System().WithTimeout(t.Context(), 3*probeWait)
	defer cancel()
	if _, err := Start(ctx, env.System(), program, dir); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one that is never well: %v", err)
	}
}

// A server does not outlive whoever started it, however that ends.
func TestServerOfAKilledProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can tie a process to its parent")
	}
	program, dir := pretending(t, "start one and stay")
	parent := exec.Command(program, dir)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var address, problem string
	line, _ := bufio.NewReader(out).ReadString('\n')
	fmt.Sscan(line, &address, &problem)
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(line, err)
	}
	defer c.Close()
	parent.Process.Kill()
	parent.Wait()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the server says something")
	} else if !errors.Is(err, io.EOF) {
		t.Logf("the connection ended with %v", err)
	}
	// The kernel closes what a process had open in no order that one could count on.
	for end := time.Now().Add(10 * time.Second); answers(&Server{address: address}); {
		if time.Now().After(end) {
			t.Fatal("the server still answers")
		}
	}
}
