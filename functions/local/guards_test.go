package local_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/localdev/server"
)

// overHTTP sends a request to a server.
func (s *site) overHTTP(base, method, target, body string, headers ...string) *exchange {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, base+target, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return keep(&exchange{method, target, r.Header, []byte(body), answer.StatusCode, answer.Header, b})
}

// raw sends bytes over a connection of its own and returns the answer, which is read as one to a request of the method.
func raw(t *testing.T, url, method string, parts ...string) (*http.Response, []byte) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	for _, p := range parts {
		if _, err := io.WriteString(conn, p); err != nil {
			break // it may have answered, and closed
		}
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, _ := io.ReadAll(answer.Body)
	return answer, b
}

// guards: the server lets nobody in without the token, nor under another name, and waits for nobody who does not send.
func guards(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	s := newSite(t)
	v, err := server.Start(s.log, server.Options{Token: "secret", Headers: 20 * time.Second, Body: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := v.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	for _, x := range samples {
		for _, bad := range [][]string{nil, {"Authorization: Bearer wrong"}, {"Authorization: Bearer"}, {"Authorization: secret"}, {"Authorization: Basic secret"}, {"Authorization: Bearer secrets"}} {
			s.fails(s.overHTTP(v.URL(), x.op, x.target, x.body, append(bad, x.headers...)...), 401, wire.Unauthorized)
		}
	}
	s.want(s.overHTTP(v.URL(), "GET", "/v1", "", "Authorization: bearer secret"), 200, nil)
	s.want(s.overHTTP(v.URL(), "POST", "/v1/topics/t/records", `{"records":[{"value":"v"}]}`, asJSON, "Authorization: Bearer secret"), 200, nil)

	const head = "Authorization: Bearer secret\r\nContent-Type: application/json\r\n"
	for _, path := range []string{"/v1/topics/t/records", "/v1/records", "/v1/groups/g/offsets", "/v1/groups/g/members/a", "/v1/groups/g/lanes/0123456789ab", "/v1/groups/g/moves", "/v1/groups/g/plan"} {
		method := map[bool]string{false: "POST", true: "PUT"}[path == "/v1/groups/g/plan"]
		for _, length := range []string{"Content-Length: 1000\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"} {
			answer, b := raw(t, v.URL(), method, method+" "+path+" HTTP/1.1\r\nHost: localhost\r\n"+head+length)
			x := keep(&exchange{method, path, http.Header{"Content-Type": {wire.JSONType}}, []byte("{"), answer.StatusCode, answer.Header, b})
			if e := s.fails(x, 408, wire.SlowBody); !e.Retriable {
				t.Error(e)
			}
		}
	}
	answer, b := raw(t, v.URL(), "POST", "POST /v1/topics/t/records HTTP/1.1\r\nHost: localhost\r\n"+head+fmt.Sprintf("Content-Length: %d\r\n\r\n", 7<<20), string(bytes.Repeat([]byte("x"), 64<<10)))
	s.fails(keep(&exchange{"POST", "/v1/topics/t/records", http.Header{"Content-Type": {wire.JSONType}}, nil, answer.StatusCode, answer.Header, b}), 413, wire.TooLarge)

	var many strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&many, "X-Header-%d: x\r\n", i)
	}
	if answer, _ := raw(t, v.URL(), "GET", "GET /v1 HTTP/1.1\r\nHost: localhost\r\n", many.String(), "\r\n"); answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Error(answer.Status)
	}
	for host, ok := range map[string]bool{"localhost": true, "LOCALHOST:1": true, "127.0.0.1:99": true, "[::1]": true, "[::1]:80": true, "evil.example": false, "localhost.evil.example": false, "10.0.0.1": false, "": false} {
		answer, b := raw(t, v.URL(), "GET", "GET /v1 HTTP/1.1\r\nHost: "+host+"\r\nAuthorization: Bearer secret\r\n\r\n")
		if want := map[bool]int{true: 200, false: 400}[ok]; answer.StatusCode != want {
			t.Errorf("host %q: %s %s", host, answer.Status, b)
		}
	}
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "10.1.2.3:0", "example.com:0", "127.0.0.1", "nonsense", "127.0.0.1:x"} {
		if v, err := server.Start(s.log, server.Options{Listen: address}); err == nil {
			v.Close(context.Background())
			t.Errorf("it listens on %s", address)
		}
	}
}
