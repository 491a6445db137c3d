package s3

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/xml"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awscreds "github.com/aws/aws-sdk-go-v2/credentials"
)

// service is an S3 with one bucket that checks what no in-process server checks (signatures, by an implementation
// other than the client's; checksums; that nothing is chunked), and that answers as a test wants it to.
type service struct {
	t *testing.T
	// answer, if not nil, takes a request; next is the proper answer, which it may call, change or leave out.
	// n counts requests from 1. An error is a broken connection.
	answer func(n int, r *request, next func() *http.Response) (*http.Response, error)

	mu       sync.Mutex
	objects  map[string][]byte // by URL path
	metadata map[string]string // x-amz-meta-varve-upload, by URL path
	uploads  map[string]*open  // by id
	begun    int               // uploads so far
	requests []*request
}

// open is a multipart upload that is neither completed nor aborted.
type open struct {
	path, mark, algorithm string
	parts                 map[string][]byte // by number
}

type request struct {
	*http.Request
	body []byte
}

func newService(t *testing.T) *service {
	return &service{t: t, objects: map[string][]byte{}, metadata: map[string]string{}, uploads: map[string]*open{}}
}

// open opens a store on the service, in the process, without counting the requests of the self-test.
func (s *service) open(change func(*Config)) *Store {
	s.t.Helper()
	cfg := Config{Bucket: "bucket", Prefix: "log", Endpoint: "http://s3.test", Region: "eu-north-1", Credentials: static, Transport: s}
	if change != nil {
		change(&cfg)
	}
	answer := s.answer
	s.answer = nil
	store, err := Open(s.t.Context(), cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.answer, s.requests = answer, nil
	return store
}

var static = awscreds.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "token")

// RoundTrip makes the service an http.RoundTripper.
func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	seen := &request{Request: r}
	if r.Body != nil {
		body := bytes.NewBuffer(make([]byte, 0, max(r.ContentLength, 0)+bytes.MinRead)) // which it does not outgrow
		if _, err := body.ReadFrom(r.Body); err != nil {
			return nil, err
		}
		r.Body.Close()
		seen.body = body.Bytes()
	}
	s.mu.Lock()
	s.requests = append(s.requests, seen)
	n := len(s.requests)
	s.mu.Unlock()
	s.check(seen)
	next := func() *http.Response {
		w := httptest.NewRecorder()
		s.serve(w, seen)
		resp := w.Result()
		resp.Request = r
		return resp
	}
	if s.answer == nil {
		return next(), nil
	}
	return s.answer(n, seen, next)
}

// ServeHTTP makes it a handler, for tests that need a real connection.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host = "http", r.Host
	resp, err := s.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	io.Copy(w, resp.Body)
}

// say is an error answer.
func say(status int, code string, headers ...string) *http.Response {
	resp := &http.Response{StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), Header: http.Header{}}
	body := ""
	if code != "" {
		body = "<Error><Code>" + code + "</Code><Message>said on purpose</Message></Error>"
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Region" {
			body = strings.Replace(body, "</Error>", "<Region>"+headers[i+1]+"</Region></Error>", 1)
		} else {
			resp.Header.Set(headers[i], headers[i+1])
		}
	}
	resp.Body = io.NopCloser(strings.NewReader(body))
	return resp
}

func (s *service) serve(w http.ResponseWriter, r *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.URL.Path
	body, exists := s.objects[key]
	w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
	fail := func(status int, code string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, code)
	}
	q := r.URL.Query()
	switch {
	case q.Has("uploads"):
		s.begun++
		id := fmt.Sprint("upload-", s.begun)
		s.uploads[id] = &open{path: key, mark: r.Header.Get("X-Amz-Meta-Varve-Upload"), algorithm: r.Header.Get("X-Amz-Checksum-Algorithm"), parts: map[string][]byte{}}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
	case q.Has("uploadId") && (s.uploads[q.Get("uploadId")] == nil || s.uploads[q.Get("uploadId")].path != key):
		fail(http.StatusNotFound, "NoSuchUpload")
	case q.Has("uploadId"):
		s.upload(w, r, q.Get("uploadId"), fail)
	case r.Method == http.MethodPut && exists && r.Header.Get("If-None-Match") == "*":
		fail(http.StatusPreconditionFailed, "PreconditionFailed")
	case r.Method == http.MethodPut:
		s.objects[key] = r.body
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPost && r.URL.Query().Has("delete"):
		s.deleteMany(w, r)
	case r.URL.Query().Get("list-type") == "2":
		s.list(w, r)
	case !exists:
		fail(http.StatusNotFound, "NoSuchKey")
	default:
		if mark, ok := s.metadata[key]; ok {
			w.Header().Set("X-Amz-Meta-Varve-Upload", mark)
		}
		http.ServeContent(w, r.Request, "", time.Now(), bytes.NewReader(body))
	}
}

// upload is a step of an open upload.
func (s *service) upload(w http.ResponseWriter, r *request, id string, fail func(int, string)) {
	u := s.uploads[id]
	switch r.Method {
	case http.MethodPut:
		if (u.algorithm == "CRC32C") != (r.Header.Get(checksumHeader) != "") {
			fail(http.StatusBadRequest, "InvalidRequest") // the algorithm is chosen at the beginning
			return
		}
		u.parts[r.URL.Query().Get("partNumber")] = r.body
		w.Header().Set("ETag", strconv.Quote(crc32c(r.body)))
	case http.MethodDelete:
		delete(s.uploads, id)
		w.WriteHeader(http.StatusNoContent)
	case http.MethodPost:
		if _, exists := s.objects[u.path]; exists && r.Header.Get("If-None-Match") == "*" {
			fail(http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		body, code := u.join(r.body)
		if code != "" {
			fail(http.StatusBadRequest, code)
			return
		}
		s.objects[u.path], s.metadata[u.path] = body, u.mark
		delete(s.uploads, id)
		fmt.Fprint(w, "<CompleteMultipartUploadResult><Bucket>bucket</Bucket></CompleteMultipartUploadResult>")
	}
}

// join is the object that a completion makes, or the code that refuses it.
func (u *open) join(request []byte) (body []byte, code string) {
	var in struct {
		Part []struct {
			PartNumber           int
			ETag, ChecksumCRC32C string
		}
	}
	if xml.Unmarshal(request, &in) != nil || len(in.Part) != len(u.parts) {
		return nil, "MalformedXML"
	}
	for i, p := range in.Part {
		part, ok := u.parts[fmt.Sprint(p.PartNumber)]
		switch {
		case p.PartNumber != i+1:
			return nil, "InvalidPartOrder"
		case !ok || strings.Trim(p.ETag, "\"") != crc32c(part) || u.algorithm != "" && p.ChecksumCRC32C != crc32c(part):
			return nil, "InvalidPart"
		case i < len(in.Part)-1 && len(part) < 5<<20:
			return nil, "EntityTooSmall"
		}
		body = append(body, part...)
	}
	return body, ""
}

func (s *service) deleteMany(w http.ResponseWriter, r *request) {
	var in struct {
		Object []struct{ Key string }
	}
	if err := xml.Unmarshal(r.body, &in); err != nil {
		s.t.Errorf("delete request: %v", err)
	}
	fmt.Fprint(w, "<DeleteResult>")
	for _, o := range in.Object {
		delete(s.objects, strings.TrimSuffix(r.URL.Path, "/")+"/"+o.Key)
		fmt.Fprintf(w, "<Deleted><Key>%s</Key></Deleted>", o.Key)
	}
	fmt.Fprint(w, "</DeleteResult>")
}

func (s *service) list(w http.ResponseWriter, r *request) {
	q := r.URL.Query()
	fmt.Fprint(w, "<ListBucketResult>")
	var keys []string
	for path := range s.objects {
		key := strings.TrimPrefix(path, "/bucket/")
		if strings.HasPrefix(key, q.Get("prefix")) && key > max(q.Get("start-after"), q.Get("continuation-token")) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for i, key := range keys {
		if fmt.Sprint(i) == q.Get("max-keys") {
			fmt.Fprintf(w, "<IsTruncated>true</IsTruncated><NextContinuationToken>%s</NextContinuationToken>", keys[i-1])
			break
		}
		fmt.Fprintf(w, "<Contents><Key>%s</Key><Size>%d</Size><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>", key, len(s.objects["/bucket/"+key]))
	}
	fmt.Fprint(w, "</ListBucketResult>")
}

var authorization = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([a-z0-9-]+)/s3/aws4_request, ?SignedHeaders=([a-z0-9;-]+), ?Signature=([0-9a-f]{64})$`)

// check fails the test unless the request is signed, whole and plain.
func (s *service) check(r *request) {
	s.t.Helper()
	auth := authorization.FindStringSubmatch(r.Header.Get("Authorization"))
	if auth == nil {
		s.t.Errorf("%s %s: Authorization is %q", r.Method, r.URL, r.Header.Get("Authorization"))
		return
	}
	signed := strings.Split(auth[4], ";")
	if want := s.sign(r, auth[1], auth[3], signed); !strings.HasSuffix(want, auth[5]) {
		s.t.Errorf("%s %s: signed as %s, the other implementation says %s", r.Method, r.URL, r.Header.Get("Authorization"), want)
	}
	if r.Header.Get("X-Amz-Trailer") != "" || r.Header.Get("Content-Encoding") != "" || len(r.TransferEncoding) > 0 || strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING") {
		s.t.Errorf("%s %s is chunked or has trailers: %v", r.Method, r.URL, r.Header)
	}
	if int64(len(r.body)) != r.ContentLength {
		s.t.Errorf("%s %s: %d bytes came, announced were %d", r.Method, r.URL, len(r.body), r.ContentLength)
	}
	for header := range r.Header {
		if lower := strings.ToLower(header); strings.HasPrefix(lower, "x-amz-") && !slices.Contains(signed, lower) {
			s.t.Errorf("%s %s: header %s is not signed", r.Method, r.URL, header)
		}
	}
	if sum := r.Header.Get(checksumHeader); sum != "" && sum != crc32c(r.body) {
		s.t.Errorf("%s %s: checksum %s, the body's is %s", r.Method, r.URL, sum, crc32c(r.body))
	}
}

func crc32c(b []byte) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))))
}

// sign is the Authorization that the AWS SDK gives the same request.
func (s *service) sign(r *request, key, region string, signed []string) string {
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		s.t.Errorf("X-Amz-Date: %v", err)
	}
	again := r.Clone(context.Background())
	again.Header = http.Header{}
	for _, name := range signed {
		if v := r.Header.Values(name); len(v) > 0 {
			again.Header[http.CanonicalHeaderKey(name)] = v
		}
	}
	if !slices.Contains(signed, "content-length") {
		again.ContentLength = 0
	}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	creds := aws.Credentials{AccessKeyID: key, SecretAccessKey: "secret", SessionToken: r.Header.Get("X-Amz-Security-Token")}
	if err := signer.SignHTTP(context.Background(), creds, again, r.Header.Get("X-Amz-Content-Sha256"), "s3", region, at); err != nil {
		s.t.Error(err)
	}
	return again.Header.Get("Authorization")
}

// did is what was requested, such as "PUT /bucket/log/a".
func (s *service) did() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for _, r := range s.requests {
		line := r.Method + " " + r.URL.Path
		switch q := r.URL.Query(); {
		case q.Has("uploads"):
			line += " begin"
		case q.Has("partNumber"):
			line += " part " + q.Get("partNumber")
		case q.Has("uploadId"):
			line += map[string]string{http.MethodPost: " complete", http.MethodDelete: " abort"}[r.Method]
		}
		if span := r.Header.Get("Range"); span != "" {
			line += " " + span
		}
		list = append(list, line)
	}
	return list
}

func (s *service) expect(want ...string) {
	s.t.Helper()
	if got := s.did(); !slices.Equal(got, want) {
		s.t.Errorf("requests were\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func readCloser(s string) io.ReadCloser { return io.NopCloser(strings.NewReader(s)) }
