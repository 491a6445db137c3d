package main

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awscreds "github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/minio/minio-go/v7"

	"github.com/varvelog/varve/functions/fetch"
	"github.com/varvelog/varve/functions/produce"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/sdk"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The same program gives the same bytes, which hold it under the name and with the mode that Lambda wants.
func TestWriteZip(t *testing.T) {
	dir := t.TempDir()
	var files [2][]byte
	for i, name := range []string{"a.zip", "b.zip"} {
		path := filepath.Join(dir, name)
		check(t, writeZip(path, strings.NewReader("program")))
		b, err := os.ReadFile(path)
		check(t, err)
		files[i] = b
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("the same program gives different files")
	}
	z, err := zip.NewReader(bytes.NewReader(files[0]), int64(len(files[0])))
	check(t, err)
	if len(z.File) != 1 || z.File[0].Name != "bootstrap" || z.File[0].Mode() != 0o755 {
		t.Fatalf("%+v", z.File)
	}
	f, err := z.File[0].Open()
	check(t, err)
	if b, err := io.ReadAll(f); err != nil || string(b) != "program" {
		t.Errorf("%q, %v", b, err)
	}
	if err := writeZip(filepath.Join(dir, "none", "c.zip"), strings.NewReader("")); err == nil {
		t.Error("a file in a folder that is not there")
	}
}

func TestParseLog(t *testing.T) {
	d, err := parseLog("aws://records/log?table=varve&region=eu-central-1")
	if err != nil || d != (data{"records", "varve", "eu-central-1"}) {
		t.Errorf("%+v, %v", d, err)
	}
	for _, bad := range []string{"", "aws://", "aws://records/log?table=varve", "aws://records/log?region=r", "file:///x?table=t&region=r", "aws://a b/"} {
		if d, err := parseLog(bad); err == nil {
			t.Errorf("%q: %+v", bad, d)
		}
	}
}

// The smoke test goes through the handlers of both functions, behind a front that wants a signature as a function's URL does; and it fails where that front does not.
func TestSmoke(t *testing.T) {
	log, err := sdk.Open(t.Context(), "mem://", sdk.WithDriver(embedded.Driver()), sdk.WithCreateTable())
	check(t, err)
	defer log.Close()
	_, err = log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: smokeTopic, Partitions: 1})
	check(t, err)
	service := produce.New(log, produce.Options{})
	defer service.Close(t.Context())
	var open bool // to everybody
	guarded := func(h http.Handler) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if a := r.Header.Get("Authorization"); !open && !(strings.HasPrefix(a, "AWS4-HMAC-SHA256 Credential=id/") && strings.Contains(a, "/eu-central-1/lambda/aws4_request")) {
				http.Error(w, `{"Message":"Forbidden"}`, http.StatusForbidden)
				return
			}
			h.ServeHTTP(w, r)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	tester := &tester{env: env.System(), produce: guarded(service.Handler()), fetch: guarded(fetch.New(log, fetch.Options{}).Handler()),
		config: aws.Config{Region: "eu-central-1", Credentials: awscreds.NewStaticCredentialsProvider("id", "secret", "")}}
	check(t, tester.roundTrip(t.Context()))
	check(t, tester.roundTrip(t.Context()))
	check(t, tester.refusesStrangers(t.Context()))
	open = true
	if err := tester.refusesStrangers(t.Context()); err == nil {
		t.Error("a function that is open to everybody passes")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tester.roundTrip(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

// A bucket goes with all that is in it, and one that is gone is no error.
func TestDeleteBucket(t *testing.T) {
	backend := s3mem.New()
	check(t, backend.CreateBucket("records"))
	s := httptest.NewServer(gofakes3.New(backend).Server())
	defer s.Close()
	c := aws.Config{Region: "us-east-1", BaseEndpoint: aws.String(s.URL), Credentials: awscreds.NewStaticCredentialsProvider("id", "secret", "")}
	client, err := bucketClient(t.Context(), c)
	check(t, err)
	check(t, client.EnableVersioning(t.Context(), "records"))
	for _, name := range []string{"log/a", "log/b", "log/a"} {
		_, err := client.PutObject(t.Context(), "records", name, strings.NewReader(name), int64(len(name)), minio.PutObjectOptions{})
		check(t, err)
	}
	check(t, client.RemoveObject(t.Context(), "records", "log/b", minio.RemoveObjectOptions{}))
	n, err := deleteBucket(t.Context(), c, "records")
	if err != nil || n < 3 {
		t.Errorf("%d versions, %v", n, err)
	}
	left, err := client.ListBuckets(t.Context())
	if err != nil || slices.ContainsFunc(left, func(b minio.BucketInfo) bool { return b.Name == "records" }) {
		t.Errorf("%v, %v", left, err)
	}
	if n, err := deleteBucket(t.Context(), c, "records"); err != nil || n != 0 {
		t.Errorf("again: %d, %v", n, err)
	}
}
