package s3

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/env"
	server "github.com/varvelog/varve/localdev/minio"
	"github.com/varvelog/varve/localdev/minio/miniotest"
	"github.com/varvelog/varve/segment/store"
)

// TestMinIO_Credentials: keys from the environment, from a profile and by web identity, all through AWS's default chain.
func TestMinIO_Credentials(t *testing.T) {
	s := miniotest.Start(t)
	access, secret := s.Credentials()
	cfg := Config{Bucket: miniotest.Bucket, Endpoint: s.Endpoint(), Region: server.Region}
	use := func(t *testing.T, cfg Config) {
		t.Helper()
		if err := mustOpen(t, cfg).Put(t.Context(), fmt.Sprintf("by/%x", t.Name()), []byte("x")); err != nil {
			t.Error(err)
		}
	}
	t.Run("environment", func(t *testing.T) {
		miniotest.RootEnvironment(t, s)
		use(t, cfg)
		t.Setenv("AWS_SECRET_ACCESS_KEY", "another")
		if _, err := Open(t.Context(), cfg); !errors.Is(err, store.ErrDenied) {
			t.Errorf("with another secret: %v", err)
		}
	})
	t.Run("profile", func(t *testing.T) {
		keys := miniotest.WriteFile(t, "[default]\naws_access_key_id=nobody\naws_secret_access_key=nothing\n[varve]\naws_access_key_id="+access+"\naws_secret_access_key="+secret+"\n")
		conf := miniotest.WriteFile(t, "[profile varve]\nregion="+server.Region+"\nendpoint_url="+s.Endpoint()+"\n")
		miniotest.Environment(t, "AWS_SHARED_CREDENTIALS_FILE", keys, "AWS_CONFIG_FILE", conf)
		use(t, Config{Bucket: miniotest.Bucket, Profile: "varve"})
		if _, err := Open(t.Context(), cfg); !errors.Is(err, store.ErrDenied) {
			t.Errorf("with the default profile: %v", err)
		}
	})
	t.Run("web identity", func(t *testing.T) {
		issuer := miniotest.NewIssuer(t, s, "token", time.Hour)
		issuer.Environment(t)
		use(t, Config{Bucket: miniotest.Bucket, Endpoint: issuer.S3})
		if given, refused, _ := issuer.Counts(); given != 1 || refused != 0 {
			t.Errorf("credentials were given %d times, and %d requests refused", given, refused)
		}
		t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", miniotest.WriteFile(t, "another token"))
		if _, err := Open(t.Context(), Config{Bucket: miniotest.Bucket, Endpoint: issuer.S3}); !errors.Is(err, store.ErrDenied) {
			t.Errorf("with another token: %v", err)
		}
	})
}

// TestBR42_MinIO: puts go on, eight at a time, while session credentials of MinIO come to their end; then while S3 calls the next ones expired early.
// One renewal each, no put fails, and S3 refuses nothing for age but what was under way when it changed its mind.
func TestBR42_MinIO(t *testing.T) {
	const life = 10 * time.Second
	issuer := miniotest.NewIssuer(t, miniotest.Start(t), "token", life)
	issuer.Environment(t)
	st := mustOpen(t, Config{Bucket: miniotest.Bucket, Endpoint: issuer.S3})
	issuer.SetLife(time.Hour)

	puts := putUntil(t, st, "a", life+time.Second)
	if given, refused, _ := issuer.Counts(); given != 2 || refused != 0 {
		t.Errorf("over the end of a life: given %d times, %d requests refused; want 2 and none", given, refused)
	}
	issuer.Expire()
	puts += putUntil(t, st, "b", time.Second)
	given, refused, _ := issuer.Counts()
	if given != 3 || refused < 1 || refused > 8 {
		t.Errorf("called expired early: given %d times, %d requests refused; want 3 and 1 to 8", given, refused)
	}
	t.Logf("%d puts over two renewals, %d requests refused on the way", puts, refused)
}

// TestBR42_MinIOMultipart: S3 calls the credentials expired early while an upload is open. One renewal, no part is lost, and nothing is left open.
func TestBR42_MinIOMultipart(t *testing.T) {
	issuer := miniotest.NewIssuer(t, miniotest.Start(t), "token", time.Hour)
	issuer.Environment(t)
	st := mustOpen(t, Config{Bucket: miniotest.Bucket, Prefix: "renewed", Endpoint: issuer.S3})
	next, n := inParts(threeParts), 0
	size, err := st.PutParts(t.Context(), "a", func() ([]byte, error) {
		if n++; n == 3 { // the first two were read ahead, and the upload is open
			issuer.Expire()
		}
		return next()
	})
	if err != nil || size != int64(len(threeParts)) {
		t.Fatalf("%d, %v", size, err)
	}
	if got, err := st.Get(t.Context(), "a", 0, -1, nil); err != nil || !bytes.Equal(got, threeParts) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if given, refused, _ := issuer.Counts(); given != 2 || refused < 1 || refused > store.PartsInFlight {
		t.Errorf("given %d times, %d requests refused; want 2, and 1 to %d", given, refused, store.PartsInFlight)
	}
	wantNoUpload(t, st, "a")
}

// putUntil puts objects, eight at a time, until d has passed. Every put must succeed. It returns how many there were.
func putUntil(t *testing.T, st *Store, name string, d time.Duration) (puts int) {
	t.Helper()
	ctx, cancel := env.System().WithTimeout(t.Context(), d)
	defer cancel()
	var counts [8]int
	var wg sync.WaitGroup
	for w := range counts {
		wg.Go(func() {
			for ; ctx.Err() == nil; counts[w]++ {
				if err := st.Put(t.Context(), fmt.Sprintf("%s/%d/%d", name, w, counts[w]), digits(10_000)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for _, n := range counts {
		puts += n
	}
	return puts
}
