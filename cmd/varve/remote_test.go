package main

import (
	"strings"
	"testing"

	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/localdev/server"
	"github.com/varvelog/varve/sdk"
)

// Over HTTP the command produces, consumes, replays, and looks at topics and groups; the rest it refuses, and says how it is done.
func TestRemoteLog(t *testing.T) {
	t.Setenv("VARVE_TOKEN", "token-of-the-test")
	url := newURL(t)
	must(t, url, "", "topic", "create", "flights", "--partitions", "3")
	log, err := sdk.Open(t.Context(), url, sdk.WithDriver(embedded.Driver()))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s, err := server.Start(log, server.Options{Token: "token-of-the-test"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	must(t, s.URL(), "a\nb\nc\n", "produce", "flights")
	if out := must(t, s.URL(), "", "consume", "flights"); len(strings.Fields(out)) != 3 {
		t.Errorf("consumed %q", out)
	}
	if out := must(t, s.URL(), "", "topic", "list"); !strings.Contains(out, "flights") || !strings.Contains(out, "3") {
		t.Errorf("list: %q", out)
	}
	if out := must(t, s.URL(), "", "topic", "describe", "flights"); !strings.Contains(out, "partitions 3") {
		t.Errorf("describe: %q", out)
	}
	if out := must(t, s.URL(), "", "replay", "flights"); len(strings.Fields(out)) != 3 {
		t.Errorf("replayed %q", out)
	}
	must(t, url, "", "consume", "flights", "--group", "g", "--max", "1")
	if out := must(t, s.URL(), "", "group", "list"); !strings.Contains(out, "g") {
		t.Errorf("groups: %q", out)
	}
	for _, args := range [][]string{{"group", "describe", "g"}, {"lag"}} {
		if out := must(t, s.URL(), "", args...); !strings.Contains(out, "lag 2 in 3 partitions") {
			t.Errorf("%v: %q", args, out)
		}
	}
	if out := must(t, s.URL(), "", "consume", "flights", "--group", "g"); len(strings.Fields(out)) != 2 {
		t.Errorf("the group goes on with %q", out)
	}
	for _, args := range [][]string{
		{"topic", "create", "x"}, {"topic", "alter", "flights", "--partitions", "9"}, {"topic", "delete", "flights"},
		{"group", "reset", "g", "--to", "earliest"}, {"group", "delete", "g"}, {"compact"}, {"retain"}, {"sweep"}, {"verify"}, {"dev"},
	} {
		out, errs, code := varve(t, s.URL(), "", args...)
		if code != exitFailed || out != "" || !strings.Contains(errs, "not supported over HTTP; open the log by its aws:// URL") {
			t.Errorf("%v: exit %d, %q, %q", args, code, out, errs)
		}
	}
}
