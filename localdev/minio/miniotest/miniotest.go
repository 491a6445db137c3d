// Package miniotest gives tests a real MinIO, each test a server of its own, ended and removed with the test.
package miniotest

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/localdev/minio"
)

// Variable names the server's program. `make test-minio` sets it.
const Variable = "VARVE_MINIO"

// Bucket is the one bucket of a test's server.
const Bucket = "varve-test"

// Program is the server's program. Without one the test is skipped.
func Program(t testing.TB) string {
	t.Helper()
	program := os.Getenv(Variable)
	if program == "" {
		t.Skipf("%s names no MinIO: 'make minio' builds one, 'make test-minio' runs this test", Variable)
	}
	return program
}

// Start starts a server with an empty Bucket and with these settings of MinIO's.
func Start(t testing.TB, settings ...string) *minio.Server {
	t.Helper()
	program := Program(t)
	dir, err := os.MkdirTemp("", "varve-minio-")
	if err != nil {
		t.Fatal(err)
	}
	s, err := minio.Start(t.Context(), env.System(), program, dir, settings...)
	if err != nil {
		os.RemoveAll(dir)
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	if err := s.MakeBucket(t.Context(), Bucket); err != nil {
		t.Fatal(err)
	}
	return s
}

// ServeTables serves a DynamoDB engine on a loopback port and returns its endpoint.
func ServeTables(t testing.TB, o dynamodb.Options) string {
	t.Helper()
	engine, err := dynamodb.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	return Serve(t, engine)
}

// Serve serves a handler on a loopback port and returns its URL.
func Serve(t testing.TB, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// Environment sets these variables, name and value in turn, and takes every other setting of AWS out of the test's environment: the machine's own
// configuration stays out.
func Environment(t testing.TB, pairs ...string) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "") // so that it is set again after the test
			os.Unsetenv(name)
		}
	}
	nowhere := filepath.Join(t.TempDir(), "none")
	for _, name := range []string{"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"} {
		t.Setenv(name, nowhere)
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for i := 0; i < len(pairs); i += 2 {
		t.Setenv(pairs[i], pairs[i+1])
	}
}

// RootEnvironment is Environment with the credentials of the server's root user.
func RootEnvironment(t testing.TB, s *minio.Server) {
	t.Helper()
	access, secret := s.Credentials()
	Environment(t, "AWS_ACCESS_KEY_ID", access, "AWS_SECRET_ACCESS_KEY", secret)
}

// WriteFile makes a file of the test's own and returns its path.
func WriteFile(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
