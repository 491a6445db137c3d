package miniotest

import (
	"bytes"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
)

// TestMinIO_DataSurviveACrash: what was put is there after Kill and Restart, with the same keys.
func TestMinIO_DataSurviveACrash(t *testing.T) {
	s := Start(t)
	c, err := s.Client()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.PutObject(t.Context(), Bucket, "a", strings.NewReader("bytes"), 5, "", "", minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	body, _, _, err := c.GetObject(t.Context(), Bucket, "a", minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	got := new(bytes.Buffer)
	if _, err := got.ReadFrom(body); err != nil || got.String() != "bytes" {
		t.Errorf("%q, %v", got, err)
	}
}
