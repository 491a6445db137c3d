package lambda_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"

	runtime "github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdaurl"
)

// TestMain makes this test binary the tiny function that the tests run, when it is started as one.
func TestMain(m *testing.M) {
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") == "" {
		code := m.Run()
		os.RemoveAll(built.dir)
		os.Exit(code)
	}
	switch os.Getenv("TINY") {
	case "url":
		lambdaurl.Start(http.HandlerFunc(tinyURL))
	case "plain":
		runtime.Start(tinyPlain)
	case "no init":
		fmt.Println("gone before the first event")
		os.Exit(3)
	}
}

// ask asks the test, at the URL that it gave, and returns when it is answered.
func ask(what string) string {
	r, err := http.Get(os.Getenv("ASK") + what)
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	return string(b)
}

func tinyURL(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/pid":
		fmt.Fprint(w, os.Getpid())
	case "/ask":
		fmt.Fprint(w, ask("/"))
	case "/stream":
		w.WriteHeader(202)
		fmt.Fprint(w, "first ")
		ask("/")
		fmt.Fprint(w, "second")
	case "/large":
		w.Write(bytes.Repeat([]byte("x"), 20<<20))
	case "/later": // what must not be done
		go func() {
			for {
				ask("/beat")
			}
		}()
		fmt.Fprint(w, os.Getpid())
	case "/hang":
		fmt.Fprintln(os.Stdout, "hangs")
		select {}
	case "/half":
		w.Write([]byte("half"))
		ask("/")
		os.Exit(1)
	case "/exit":
		os.Exit(1)
	default:
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Echo", r.Header.Get("X-Echo"))
		w.Header().Add("Set-Cookie", "a=1")
		w.Header().Add("Set-Cookie", "b=2")
		json.NewEncoder(w).Encode(map[string]any{"method": r.Method, "url": r.URL.RequestURI(), "body": body, "cookie": r.Header.Get("Cookie")})
	}
}

func tinyPlain(ctx context.Context, in map[string]string) (map[string]any, error) {
	if in["fail"] != "" {
		return nil, errors.New(in["fail"])
	}
	deadline, _ := ctx.Deadline()
	return map[string]any{"got": in, "deadline": deadline, "other": os.Getenv("HOME"), "statusCode": 201, "body": "whole"}, nil
}
