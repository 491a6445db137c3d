package sdk_test

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/localdev/minio/miniotest"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

// awsServices are an S3 with one bucket and a DynamoDB, and the keys that the S3 wants.
type awsServices struct{ bucket, s3, tables, key, secret string }

// url is the aws:// URL of a log on the services, with further parameters.
func (a awsServices) url(prefix, table string, more ...string) string {
	q := url.Values{"table": {table}, "region": {"eu-central-1"}, "s3_endpoint": {a.s3}, "dynamodb_endpoint": {a.tables}}
	for i := 0; i < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return "aws://" + a.bucket + "/" + prefix + "?" + q.Encode()
}

// inProcess serves both protocols in this process.
func inProcess(t *testing.T) awsServices {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	objects := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(objects.Close)
	return awsServices{"bucket", objects.URL, miniotest.ServeTables(t, dynamodb.Options{}), "id", "secret"}
}

// isolate keeps the machine's own AWS configuration out.
func isolate(t *testing.T, config, credentials string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"config": config, "credentials": credentials} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
			os.Unsetenv(name)
		}
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "credentials"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

func TestOpenAWS(t *testing.T) { testOpenAWS(t, inProcess(t)) }

func testOpenAWS(t *testing.T, services awsServices) {
	isolate(t, "", "")
	t.Setenv("AWS_ACCESS_KEY_ID", services.key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", services.secret)
	at := services.url

	_, err := sdk.Open(t.Context(), at("prod/a", "varve-a"))
	if !errors.Is(err, sdk.ErrNoLog) || !errors.Is(err, metadata.ErrNoTable) || !strings.Contains(err.Error(), "--create-table") || !strings.Contains(err.Error(), "varve-a") {
		t.Fatalf("a missing table: %v", err)
	}
	log, err := sdk.Open(t.Context(), at("prod/a", "varve-a"), sdk.WithCreateTable())
	if err != nil {
		t.Fatal(err)
	}
	createTopic(t, log, sdk.NewTopic{Name: "t", Partitions: 2})
	produce(t, log, "t", 10, 3, 2)
	if err := log.Close(); err != nil {
		t.Error(err)
	}

	log, err = sdk.Open(t.Context(), at("prod/a", "varve-a"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	offsets, err := log.Admin().Offsets(t.Context(), "t")
	if err != nil || offsets[0].End != 3 || offsets[1].End != 2 {
		t.Errorf("%v, %v", offsets, err)
	}
	r, err := log.NewReader(t.Context(), "t", sdk.To(sdk.Latest))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if f, err := r.Poll(t.Context()); err != nil || len(f) == 0 || !strings.HasPrefix(string(f[0].Records[0].Value), "0/0 ") && !strings.HasPrefix(string(f[0].Records[0].Value), "1/0 ") {
		t.Errorf("%v, %v", f, err)
	}

	if _, err := sdk.Open(t.Context(), at("prod/a", "varve-b"), sdk.WithCreateTable()); !errors.Is(err, sdk.ErrWrongLog) {
		t.Errorf("another table at the prefix: %v", err)
	}
	if _, err := sdk.Open(t.Context(), at("prod/b", "varve-a")); !errors.Is(err, sdk.ErrWrongLog) {
		t.Errorf("another prefix of the table: %v", err)
	}
	if _, err := sdk.Open(t.Context(), at("prod/a", "varve-a", "path_style", "true", "s3_compat", "virtual-host")); err == nil {
		t.Errorf("path style and virtual host: %v", err)
	}
}

// Each service may have a profile of its own.
func TestOpenAWSProfiles(t *testing.T) { testOpenAWSProfiles(t, inProcess(t)) }

func testOpenAWSProfiles(t *testing.T, services awsServices) {
	profile := "[%s]\naws_access_key_id=%s\naws_secret_access_key=%s\n"
	isolate(t, "[profile objects]\n[profile tables]\n", fmt.Sprintf(profile+profile, "objects", services.key, services.secret, "tables", "t", "s"))
	at := services.url
	log, err := sdk.Open(t.Context(), at("p", "varve", "s3_profile", "objects", "dynamodb_profile", "tables"), sdk.WithCreateTable())
	if err != nil {
		t.Fatal(err)
	}
	log.Close()
	if _, err := sdk.Open(t.Context(), at("p", "varve", "s3_profile", "none", "dynamodb_profile", "tables")); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("a profile that is not there: %v", err)
	}
}
