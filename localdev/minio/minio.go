// Package minio runs MinIO's server: a program of its own, on the loopback address, with credentials that nobody else knows, the only one on its data, and gone when
// whoever started it is. The program is under the AGPL: it is run, never linked. `make minio` builds it.
package minio

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/varvelog/varve/internal/env"
)

// Region is where the server says that its buckets are.
const Region = "eu-central-1"

const (
	startTime = 60 * time.Second // until it answers, on a machine that is busy building
	probeTime = time.Second      // for one question whether it does
	probeWait = 50 * time.Millisecond
	attempts  = 3 // another process may take the port between its choice and its use
)

// Server is a server and its data. Methods are for one goroutine at a time.
type Server struct {
	program        string
	dir            string // holds the data, and what the program keeps in its home
	address        string
	access, secret string
	settings       []string // further variables of the program's environment
	env            env.Env
	lock           *os.File // held by this process and by the program, while either of them lives
	process        *process // nil: not running
}

// ErrInUse is a directory with a server that still runs.
var ErrInUse = errors.New("another MinIO runs on the data of this directory")

// Start starts the program on the data in dir, which is made if it is not there, and waits until it answers. The server lives until
// Close, also when ctx ends earlier. Settings are variables of MinIO's, as NAME=value. ErrInUse: there is one on that directory already.
func Start(ctx context.Context, e env.Env, program, dir string, settings ...string) (*Server, error) {
	s := &Server{program: program, dir: dir, settings: settings, env: e, access: fmt.Sprintf("varve%016x", e.Uint64()), secret: fmt.Sprintf("%016x%016x", e.Uint64(), e.Uint64())}
	if err := os.MkdirAll(s.data(), 0o700); err != nil {
		return nil, err
	}
	var err error
	if s.lock, err = lockFile(filepath.Join(dir, "lock")); err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// start starts the program on a port that is free.
func (s *Server) start(ctx context.Context) error {
	for n := 1; ; n++ {
		var err error
		if s.address, err = freeAddress(); err == nil {
			err = s.Restart(ctx)
		}
		if err == nil || !errors.Is(err, errEnded) || n == attempts {
			return err
		}
	}
}

// Restart starts the server again after Kill: same address, credentials and data.
func (s *Server) Restart(ctx context.Context) error {
	if s.process != nil {
		return errors.New("minio: the server is running")
	}
	p, err := startProcess(s.program, []string{"server", "--quiet", "--address", s.address, "--certs-dir", filepath.Join(s.dir, "certs"), s.data()}, s.environment(), s.lock)
	if err != nil {
		return fmt.Errorf("minio: %w: 'make minio' builds the server", err)
	}
	s.process = p
	if err := s.ready(ctx); err != nil {
		s.Kill()
		return s.saying(p, err)
	}
	return nil
}

// saying is the error with the last words of the program, if it had any.
func (s *Server) saying(p *process, err error) error {
	if said := p.said.String(); said != "" {
		err = fmt.Errorf("%w; it said: %s", err, strings.ReplaceAll(said, s.secret, "(secret)"))
	}
	return fmt.Errorf("minio: %w", err)
}

// Watch waits until the program ends of itself, which is an error, or ctx is done. It has to return before Kill or Close is called.
func (s *Server) Watch(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.process.ended:
		return s.saying(s.process, s.process.end())
	}
}

// Kill kills the server as a crash would (SIGKILL) and waits until it is gone. Its data stay.
func (s *Server) Kill() {
	if s.process != nil {
		s.process.kill()
		s.process = nil
	}
}

// Close kills the server, for good. Its data stay: what it has acknowledged survives that.
func (s *Server) Close() error {
	s.Kill()
	return s.lock.Close()
}

// Endpoint is the server's URL.
func (s *Server) Endpoint() string { return "http://" + s.address }

// Credentials are the root user's.
func (s *Server) Credentials() (accessKey, secretKey string) { return s.access, s.secret }

// Client is a client with the root user's credentials, which makes one attempt of each request.
func (s *Server) Client() (*minio.Core, error) {
	return minio.NewCore(s.address, &minio.Options{Creds: credentials.NewStaticV4(s.access, s.secret, ""), Region: Region, MaxRetries: 1})
}

// MakeBucket makes a bucket if there is none of that name.
func (s *Server) MakeBucket(ctx context.Context, bucket string) error {
	c, err := s.Client()
	if err != nil {
		return err
	}
	err = c.Client.MakeBucket(ctx, bucket, minio.MakeBucketOptions{Region: Region})
	if minio.ToErrorResponse(err).Code == "BucketAlreadyOwnedByYou" {
		return nil
	}
	return err
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// environment is the program's: nothing of a MinIO that is configured on this machine.
func (s *Server) environment() (list []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "MINIO_") && !strings.HasPrefix(v, "HOME=") {
			list = append(list, v)
		}
	}
	list = append(list, s.settings...)
	return append(list, "HOME="+s.dir, "MINIO_ROOT_USER="+s.access, "MINIO_ROOT_PASSWORD="+s.secret, "MINIO_REGION="+Region, "MINIO_BROWSER=off", "MINIO_UPDATE=off")
}

// errEnded is a program that ended before it answered.
var errEnded = errors.New("the server ended")

// ready waits until the server says that it is.
func (s *Server) ready(ctx context.Context) error {
	ctx, cancel := s.env.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		if s.healthy(ctx) {
			return nil
		}
		timer, stop := s.env.After(probeWait)
		select {
		case <-timer:
		case <-s.process.ended:
			stop()
			return s.process.end()
		case <-ctx.Done():
			stop()
			return fmt.Errorf("the server does not answer: %w", ctx.Err())
		}
	}
}

func (s *Server) healthy(ctx context.Context) bool {
	limited, cancel := s.env.WithTimeout(ctx, probeTime)
	defer cancel()
	r, err := http.NewRequestWithContext(limited, http.MethodGet, s.Endpoint()+"/minio/health/cluster", nil)
	if err != nil {
		return false
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// freeAddress is a loopback address that was free a moment ago: the program does not tell which port it took if it is to take any.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
