package server_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/localdev/server"
	"github.com/varvelog/varve/sdk"
)

// started serves a log with an empty topic t until the test ends, and returns host:port.
func started(t *testing.T, o server.Options) string {
	t.Helper()
	log, err := sdk.Open(t.Context(), "mem://", sdk.WithDriver(embedded.Driver()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: "t", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	s, err := server.Start(log, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	return strings.TrimPrefix(s.URL(), "http://")
}

// says sends the text, keeps the connection open, and returns the status of the answer. A server that waits for more fails the test after a minute.
func says(t *testing.T, address, text string) int {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprint(c, strings.ReplaceAll(text, "\n", "\r\n"))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%v to %.100q", err, text)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// A refusal does not wait for a body that is slow to come: the server here would wait for an hour.
func TestRefusalsDoNotWaitForTheBody(t *testing.T) {
	address := started(t, server.Options{Body: time.Hour})
	for request, want := range map[string]int{
		"POST /v1/topics/t/records HTTP/1.1\nHost: localhost\nContent-Type: text/plain\nContent-Length: 4000000\n\nx":                            415,
		"POST /v1/topics/t/records HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: 99999999999\n\nx":                  413,
		"POST /v1/nowhere HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: 4000000\n\nx":                               404,
		"PUT /v1/topics/t/records HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: 4000000\n\nx":                       405,
		"POST /v1/topics/t/records HTTP/1.1\nHost: elsewhere.example\nContent-Type: application/json\nContent-Length: 4000000\n\nx":              400,
		"POST /v1/topics/t/records HTTP/1.1\nHost: localhost\nExpect: 100-continue\nContent-Type: application/json\nContent-Length: 5000000\n\n": 413,
		"POST /v1/topics/t/records HTTP/1.1\nHost: localhost\nContent-Type: application/json\n" + strings.Repeat("A: b\n", 20000) + "\n":         431,
	} {
		if got := says(t, address, request); got != want {
			t.Errorf("%.100q: %d, want %d", request, got, want)
		}
	}
}

func TestSlowBody(t *testing.T) {
	address := started(t, server.Options{Body: 50 * time.Millisecond})
	if got := says(t, address, "POST /v1/topics/t/records HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: 100\n\n{"); got != http.StatusRequestTimeout {
		t.Errorf("%d", got)
	}
}

// Half a body does not hold up the server's end: the server here would wait an hour for the rest.
func TestCloseDoesNotWaitForTheBody(t *testing.T) {
	log, err := sdk.Open(t.Context(), "mem://", sdk.WithDriver(embedded.Driver()))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s, err := server.Start(log, server.Options{Body: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprint(c, "POST /v1/topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n")
	answers := bufio.NewReader(c)
	if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") { // the body is asked for
		t.Fatal(line, err)
	}
	if _, err := answers.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if resp, err := http.ReadResponse(answers, nil); err != nil || resp.StatusCode != http.StatusRequestTimeout {
		t.Errorf("%v, %v; want an answer that it may be sent again", resp, err)
	}
}

func TestToken(t *testing.T) {
	address := started(t, server.Options{Token: "right"})
	for header, want := range map[string]int{
		"": 401, "Authorization: Bearer wrong\n": 401, "Authorization: Bearer \n": 401, "Authorization: Basic right\n": 401, "Authorization: right\n": 401,
		"Authorization: Bearer right\n": 200, "Authorization: bearer right\n": 200,
	} {
		if got := says(t, address, "GET /v1/topics HTTP/1.1\nHost: localhost\n"+header+"\n"); got != want {
			t.Errorf("%q: %d, want %d", header, got, want)
		}
	}
}

// A container's port is forwarded to it from the machine's loopback address: the Host that is asked for is still this machine.
func TestListensElsewhereWithAToken(t *testing.T) {
	address := started(t, server.Options{Listen: "0.0.0.0:0", Token: "right"})
	address = address[strings.LastIndex(address, ":"):]
	for request, want := range map[string]int{
		"Host: localhost" + address + "\nAuthorization: Bearer right\n":         200,
		"Host: localhost" + address + "\n":                                      401,
		"Host: elsewhere.example" + address + "\nAuthorization: Bearer right\n": 400,
	} {
		if got := says(t, "127.0.0.1"+address, "GET /v1/topics HTTP/1.1\n"+request+"\n"); got != want {
			t.Errorf("%q: %d, want %d", request, got, want)
		}
	}
}

func TestListensOnLoopbackOnly(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:80", "localhost", "127.0.0.1:99999"} {
		if s, err := server.Start(nil, server.Options{Listen: address}); err == nil {
			s.Close(t.Context())
			t.Errorf("%s is listened on", address)
		}
	}
}

// However many requests wait for records, others are served: those that find no room to wait are answered at once, with nothing. Without that the waiting ones here,
// as many as the server takes at a time, would leave no room for anybody.
func TestWaitingRequestsKeepNobodyOut(t *testing.T) {
	const atATime, waiting = 256, 192
	address := started(t, server.Options{})
	log, err := sdk.Open(t.Context(), "http://"+address)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	defer http.DefaultClient.CloseIdleConnections()
	answers := make(chan int, atATime)
	for range atATime {
		go func() {
			resp, err := http.Get("http://" + address + "/v1/topics/t/partitions/0/records?offset=0&wait=20s")
			if err != nil {
				answers <- 0
				return
			}
			resp.Body.Close()
			answers <- resp.StatusCode
		}()
	}
	for range atATime - waiting {
		if status := <-answers; status != http.StatusOK {
			t.Errorf("answered with %d", status)
		}
	}
	p, err := log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.ProduceSync(t.Context(), &sdk.Record{Topic: "t", Value: []byte("v")}).Err(); err != nil {
		t.Error(err)
	}
	p.Close(t.Context())
	for range waiting { // who wait hear of it
		if status := <-answers; status != http.StatusOK {
			t.Errorf("answered with %d", status)
		}
	}
}
