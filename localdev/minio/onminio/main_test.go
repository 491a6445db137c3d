package main

import (
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/varvelog/varve/localdev/minio/miniotest"
)

// TestMinIO_Run: the command's exit status is passed on, it finds the log and the keys in its environment, and nothing is left.
func TestMinIO_Run(t *testing.T) {
	program := miniotest.Program(t)
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	said := filepath.Join(t.TempDir(), "said")
	err := run(t.Context(), program, []string{"sh", "-c", `test -n "$AWS_SECRET_ACCESS_KEY" && printf %s "$VARVE_LOG" >"$0" && exit 3`, said})
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != 3 {
		t.Fatalf("%v, want exit status 3", err)
	}
	log, err := os.ReadFile(said)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(string(log))
	if err != nil || u.Scheme != "aws" {
		t.Fatalf("VARVE_LOG was %q, %v", log, err)
	}
	for _, name := range []string{"s3_endpoint", "dynamodb_endpoint"} {
		endpoint, err := url.Parse(u.Query().Get(name))
		if err != nil {
			t.Fatal(err)
		}
		if c, err := net.Dial("tcp", endpoint.Host); err == nil {
			c.Close()
			t.Errorf("%s still answers", name)
		}
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
}

func TestRunNeedsAProgram(t *testing.T) {
	for _, c := range [][]string{{"", "true"}, {"minio"}} {
		if err := run(t.Context(), c[0], c[1:]); err == nil {
			t.Errorf("%v runs", c)
		}
	}
}
