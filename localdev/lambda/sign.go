package lambda

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/varvelog/varve/internal/env"
)

// Signer is whose requests a URL lets through: those signed by this key, for service lambda in the region, no longer than five minutes ago.
type Signer struct {
	AccessKey, SecretKey, Region string
	Clock                        env.Env // default env.System()
}

const signedFor = 5 * time.Minute

// check compares a request's signature with the one that AWS's own signer makes of what it says is signed.
func (s *Signer) check(r *http.Request, body []byte) error {
	given := r.Header.Get("Authorization")
	if given == "" {
		return errors.New("the request is not signed")
	}
	fields, ok := strings.CutPrefix(given, "AWS4-HMAC-SHA256 ")
	if !ok {
		return errors.New("the signature is not an AWS4-HMAC-SHA256")
	}
	parts := map[string]string{}
	for field := range strings.SplitSeq(fields, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		parts[name] = value
	}
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		return errors.New("there is no X-Amz-Date")
	}
	clock := s.Clock
	if clock.Clock == nil {
		clock = env.System()
	}
	if age := clock.Now().Sub(at); age > signedFor || age < -signedFor {
		return fmt.Errorf("the signature is of %v", at)
	}
	if want := fmt.Sprintf("%s/%s/%s/lambda/aws4_request", s.AccessKey, at.Format("20060102"), s.Region); parts["Credential"] != want {
		return fmt.Errorf("the credential is not of %s", want)
	}
	names := strings.Split(parts["SignedHeaders"], ";")
	if !slices.Contains(names, "host") || !slices.Contains(names, "x-amz-date") {
		return errors.New("host and x-amz-date are not signed")
	}
	signed, err := s.sign(r, body, names, at)
	if err != nil {
		return err
	}
	_, want, _ := strings.Cut(signed, "Signature=")
	if !hmac.Equal([]byte(want), []byte(parts["Signature"])) {
		return errors.New("the signature does not match")
	}
	return nil
}

// sign signs what the request says is signed.
func (s *Signer) sign(r *http.Request, body []byte, names []string, at time.Time) (string, error) {
	u := &url.URL{Scheme: "https", Host: r.Host, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	again := &http.Request{Method: r.Method, URL: u, Host: r.Host, Header: http.Header{}}
	for _, name := range names {
		switch name {
		case "host":
		case "content-length":
			again.ContentLength = int64(len(body))
		default:
			again.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	sum := sha256.Sum256(body)
	err := v4.NewSigner().SignHTTP(context.Background(), aws.Credentials{AccessKeyID: s.AccessKey, SecretAccessKey: s.SecretKey, SessionToken: again.Header.Get("X-Amz-Security-Token")},
		again, hex.EncodeToString(sum[:]), "lambda", s.Region, at)
	return again.Header.Get("Authorization"), err
}
