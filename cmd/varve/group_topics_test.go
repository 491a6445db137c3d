package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/sdk"
)

// A topic that is deleted ends no member of a group, whether it holds some of it or not: each says so in one line, and the other topic goes on. When the last
// one is gone, they wait for one of its name, and read it from its start, although --from is latest.
func TestConsumeInGroupTopicGone(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	for _, topic := range []string{"t", "u"} {
		must(t, url, "", "topic", "create", topic, "--partitions", "1")
	}
	args := []string{"consume", "t", "u", "--group", "g", "--follow", "--session-timeout", "5s", "--from", "latest"}
	a, errsA, stopA := watched(t, url, args...)
	b, errsB, stopB := watched(t, url, args...)
	c, errsC, stopC := watched(t, url, args...)
	described(t, url, "g", func(d *sdk.GroupDescription) bool { return len(d.Members) == 3 && len(owners(d)) == 2 })
	say := func(text string) {
		t.Helper()
		described(t, url, "g", func(*sdk.GroupDescription) bool {
			return strings.Contains(errsA.String(), text) && strings.Contains(errsB.String(), text) && strings.Contains(errsC.String(), text)
		})
	}
	next := func(what string) string {
		t.Helper()
		select {
		case line := <-a:
			return line
		case line := <-b:
			return line
		case line := <-c:
			return line
		case <-time.After(time.Minute):
			t.Fatal("nothing is printed of", what)
			return ""
		}
	}
	must(t, url, "", "topic", "delete", "t")
	say("topic t was deleted")
	must(t, url, numbered(1, 0, 1), keep("u")...)
	if line := next("the other"); line != "0-0" {
		t.Errorf("of the other topic: %q", line)
	}
	must(t, url, "", "topic", "delete", "u")
	say("topic u was deleted")
	for _, args := range [][]string{{"lag", "g"}, {"group", "describe", "g"}} {
		out := must(t, url, "", args...)
		for _, topic := range []string{"t", "u"} {
			if !strings.Contains(out, "\ntopic "+topic+" is not there: deleted, or not created yet\n") {
				t.Errorf("%v: %s", args, out)
			}
		}
	}
	must(t, url, "", "topic", "create", "t", "--partitions", "1")
	must(t, url, numbered(1, 5, 1), keep("t")...)
	if line := next("the new one"); line != "0-5" {
		t.Errorf("of the new topic: %q", line)
	}
	for _, stop := range []func() (string, int){stopA, stopB, stopC} {
		errs, code := stop()
		var told []string
		for line := range strings.Lines(errs) {
			if strings.Contains(line, "topic") { // and not of a machine that is too slow for its heartbeats
				told = append(told, line)
			}
		}
		want := "varve: topic t was deleted: the group goes on without it\nvarve: topic u was deleted: no other is left to read, and one of that name is waited for\n"
		if got := strings.Join(told, ""); code != exitDone || got != want {
			t.Errorf("exit %d: %s", code, errs)
		}
	}
}

// Without --follow, a topic that another member has and that is deleted is not waited for. That none is left of which something was to be read is an error.
func TestConsumeInGroupEndsWithoutTheTopic(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		topics string
		errs   string
		code   int
	}{
		{"t u", "varve: topic t was deleted: the group goes on without it\n", exitDone},
		{"t", "varve: group \"g\": none of the topics that this member reads is left: [t]\n", exitFailed},
	} {
		url := newURL(t)
		for _, topic := range []string{"t", "u"} {
			must(t, url, "", "topic", "create", topic, "--partitions", "1")
			must(t, url, numbered(1, 0, 1), keep(topic)...)
		}
		a, _, _ := newApp(url, "")
		log, err := a.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		other, err := log.NewConsumer(t.Context(), "g", []string{"t"}, sdk.WithInstanceID("other")) // which holds it and reads nothing
		if err != nil {
			t.Fatal(err)
		}
		described(t, url, "g", func(d *sdk.GroupDescription) bool { return len(owners(d)) == 1 })
		lines, stop := member(t, url, append(append([]string{"consume"}, strings.Fields(c.topics)...), "--group", "g")...)
		described(t, url, "g", func(d *sdk.GroupDescription) bool { return len(d.Members) == 2 && !d.Members[0].Unplanned })
		must(t, url, "", "topic", "delete", "t")
		for range lines { // until it ends
		}
		if errs, code := stop(); code != c.code || errs != c.errs {
			t.Errorf("consume %s: exit %d: %s", c.topics, code, errs)
		}
		if err := other.Close(t.Context()); err != nil {
			t.Error(err)
		}
		log.Close()
	}
}

// What was printed of a partition that was lost is not committed for what comes under its name later.
func TestConsumeInGroupForgetsWhatIsLost(t *testing.T) {
	at, kept := sdk.TopicPartition{Topic: "t"}, sdk.TopicPartition{Topic: "t", Partition: 1}
	g := &groupConsumer{printed: map[sdk.TopicPartition]sdk.CommitOffset{at: {Offset: 7}, kept: {Offset: 8}}}
	g.lost(context.Background(), []sdk.TopicPartition{at})
	if len(g.printed) != 1 || g.printed[kept].Offset != 8 {
		t.Errorf("to be committed: %v", g.printed)
	}
}

// An option that is given and empty, as by a variable that is not set, is not taken for one that is left out.
func TestConsumeRefusesEmptyOptions(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t")
	for _, args := range []string{"--group=", "--group=g --instance-id=", "--to="} {
		out, errs, code := varve(t, url, "", append([]string{"consume", "t"}, strings.Fields(args)...)...)
		if code != exitUsage || out != "" || !strings.Contains(errs, "is empty") {
			t.Errorf("%s: exit %d: %s%s", args, code, out, errs)
		}
	}
}

// Options that make no sense are refused also where there is nothing left to read, so that a job with one does not pass until records come.
func TestConsumeInGroupThatHasReadAllRefusesNonsense(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	must(t, url, "", "topic", "create", "t")
	must(t, url, "", "consume", "t", "--group", "g")
	for _, args := range []string{"--instance-id a/b", "--session-timeout 1ms", "--session-timeout 25h", "--from 3", "--max -1"} {
		out, errs, code := varve(t, url, "", append([]string{"consume", "t", "--group", "g"}, strings.Fields(args)...)...)
		if code != exitUsage || out != "" || errs == "" {
			t.Errorf("%s: exit %d: %s%s", args, code, out, errs)
		}
	}
}
