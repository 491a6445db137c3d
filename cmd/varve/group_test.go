package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/sdk"
)

// member runs one command line beside the test, until stop interrupts it. lines are what it prints.
func member(t *testing.T, url string, args ...string) (lines <-chan string, stop func() (errs string, code int)) {
	t.Helper()
	lines, _, stop = watched(t, url, args...)
	return lines, stop
}

// watched is member, whose errs can be looked at while it runs.
func watched(t *testing.T, url string, args ...string) (lines <-chan string, errs *stderr, stop func() (errs string, code int)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	a, _, _ := newApp(url, "")
	errs = &stderr{}
	a.err = errs
	r, w := io.Pipe()
	a.out = w
	code, printed := make(chan int, 1), make(chan string, 1000)
	go func() {
		c := a.run(ctx, args)
		w.Close()
		code <- c
	}()
	go func() {
		defer close(printed)
		for s := bufio.NewScanner(r); s.Scan(); {
			printed <- s.Text()
		}
	}()
	return printed, errs, func() (string, int) {
		cancel()
		c := <-code
		return errs.String(), c
	}
}

// stderr may be read while it is written to.
type stderr struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *stderr) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *stderr) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// described describes a group again and again until it is as wanted.
func described(t *testing.T, url, group string, want func(*sdk.GroupDescription) bool) (d sdk.GroupDescription) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		out, errs, code := varve(t, url, "", "group", "describe", group, "--json")
		d = sdk.GroupDescription{}
		if code == exitDone {
			if err := json.Unmarshal([]byte(out), &d); err != nil {
				t.Fatal(err)
			}
			if want(&d) {
				return d
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("group %s does not come to be as it should: %s%s", group, out, errs)
		}
	}
}

// owners is how many partitions each member of a group holds, in order.
func owners(d *sdk.GroupDescription) (n []int) {
	held := map[string]int{}
	for _, p := range d.Partitions {
		if p.Owner != "" {
			held[p.Owner]++
		}
	}
	for _, k := range held {
		n = append(n, k)
	}
	slices.Sort(n)
	return n
}

// numbered is n records for each of the partitions, as produce reads them: values are PARTITION-OFFSET.
func numbered(partitions, from, n int) string {
	var b strings.Builder
	for p := range partitions {
		for i := range n {
			fmt.Fprintf(&b, `{"partition":%d,"timestamp":"2001-01-01T00:00:0%dZ","value":"%d-%d"}`+"\n", p, (from+i)%10, p, from+i)
		}
	}
	return b.String()
}

func keep(topic string) []string {
	return []string{"produce", topic, "--format", "record", "--keep-partitions"}
}

// A group goes on where it has committed, which is exactly what was printed, and ends when all is read that was there.
func TestConsumeInGroup(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "2")
	must(t, url, numbered(2, 0, 5), keep("t")...)
	first := must(t, url, "", "consume", "t", "--group", "g", "--max", "3")
	if strings.Count(first, "\n") != 3 {
		t.Errorf("--max 3 prints %q", first)
	}
	all := strings.Fields(first + must(t, url, "", "consume", "t", "--group", "g"))
	slices.Sort(all)
	if got := strings.Join(all, " "); got != "0-0 0-1 0-2 0-3 0-4 1-0 1-1 1-2 1-3 1-4" {
		t.Errorf("printed together: %s", got)
	}
	if out := must(t, url, "", "consume", "t", "--group", "g"); out != "" {
		t.Errorf("all is read, and yet %q", out)
	}
	must(t, url, numbered(1, 5, 1), keep("t")...)
	if out := must(t, url, "", "consume", "t", "--group", "g", "--json"); !strings.HasPrefix(out, `{"topic":"t","partition":0,"offset":5,`) || strings.Count(out, "\n") != 1 {
		t.Errorf("one more: %q", out)
	}
	if out := must(t, url, "", "consume", "t", "--group", "other"); strings.Count(out, "\n") != 11 {
		t.Errorf("another group: %q", out)
	}
	must(t, url, "", "topic", "create", "u", "--partitions", "1")
	must(t, url, numbered(1, 0, 1), keep("u")...)
	if out := must(t, url, "", "consume", "t", "u", "--group", "g"); out != "0-0\n" {
		t.Errorf("a second topic: %q", out)
	}
}

// Where nothing is committed, --from says where the group starts, for good.
func TestConsumeInGroupFrom(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "2")
	must(t, url, numbered(1, 0, 5), keep("t")...)
	for from, want := range map[string]string{"earliest": "0-0 0-1 0-2 0-3 0-4", "latest": "", "2001-01-01T00:00:03Z": "0-3 0-4"} {
		group := "from-" + strings.ReplaceAll(from, ":", "")
		if got := strings.Fields(must(t, url, "", "consume", "t", "--group", group, "--from", from)); strings.Join(got, " ") != want {
			t.Errorf("--from %s: %q", from, got)
		}
	}
	must(t, url, numbered(1, 5, 1), keep("t")...)
	if out := must(t, url, "", "consume", "t", "--group", "from-latest", "--from", "latest"); out != "0-5\n" {
		t.Errorf("what came between two runs --from latest: %q", out)
	}
	must(t, url, "", "topic", "create", "empty")
	for _, topic := range []string{"empty", "empty", "t"} { // the second time there is a group, which has committed nothing
		out, errs, code := varve(t, url, "", "consume", topic, "--group", "strict", "--from", "fail")
		if code != exitFailed || out != "" || !strings.Contains(errs, "committed nothing") || !strings.Contains(errs, "varve group reset GROUP --to") {
			t.Errorf("%s --from fail: exit %d: %s%s", topic, code, out, errs)
		}
	}
	must(t, url, "", "group", "reset", "strict", "--to", "4", "--topic", "t", "--partition", "0")
	must(t, url, "", "group", "reset", "strict", "--to", "latest", "--topic", "t", "--partition", "1")
	if out := must(t, url, "", "consume", "t", "--group", "strict", "--from", "fail"); out != "0-4\n0-5\n" {
		t.Errorf("after the reset: %q", out)
	}
}

// meanwhile is a stdout during whose first write something else happens.
type meanwhile struct {
	bytes.Buffer
	do func()
}

func (m *meanwhile) Write(b []byte) (int, error) {
	if m.Len() == 0 {
		m.do()
	}
	return m.Buffer.Write(b)
}

// Without --follow it ends where the partitions ended at the start: what is appended meanwhile is for the next.
func TestConsumeInGroupEndsWhereTheEndsWere(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "1")
	must(t, url, strings.Repeat(strings.Repeat("x", 1000)+"\n", 4*groupPoll/1000), "produce", "t")
	a, _, errs := newApp(url, "")
	out := &meanwhile{do: func() { must(t, url, "new\nnew\n", "produce", "t") }}
	a.out = out
	if code := a.run(t.Context(), []string{"consume", "t", "--group", "g"}); code != exitDone || strings.Contains(out.String(), "new") || strings.Count(out.String(), "\n") != 4*groupPoll/1000 {
		t.Errorf("exit %d, %d lines: %s", code, strings.Count(out.String(), "\n"), errs)
	}
	if out := must(t, url, "", "consume", "t", "--group", "g"); out != "new\nnew\n" {
		t.Errorf("the next: %q", out)
	}

	log, err := a.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c, err := log.NewConsumer(t.Context(), "other", []string{"t"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	at := sdk.TopicPartition{Topic: "t"}
	var printed bytes.Buffer
	g := &groupConsumer{app: a, consumer: c, out: bufio.NewWriter(&printed), left: map[sdk.TopicPartition]int64{at: 2}, printed: map[sdk.TopicPartition]sdk.CommitOffset{}}
	err = g.print([]sdk.Fetch{{Topic: "t", Records: []sdk.Record{{Offset: 1, Value: []byte("old")}, {Offset: 2, Value: []byte("new")}}}})
	if err != nil || printed.String() != "old\n" || g.printed[at].Offset != 2 {
		t.Errorf("of one poll: %q, to be committed %v, %v", &printed, g.printed, err)
	}
}

// What could not be printed is not committed.
func TestConsumeInGroupOnAFullDisk(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "1")
	must(t, url, numbered(1, 0, 5), keep("t")...)
	a, _, errs := newApp(url, "")
	a.out = fullDisk{}
	if code := a.run(t.Context(), []string{"consume", "t", "--group", "g"}); code != exitFailed || !strings.Contains(errs.String(), "broken off") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if out := must(t, url, "", "consume", "t", "--group", "g"); strings.Count(out, "\n") != 5 {
		t.Errorf("then: %q", out)
	}
}

// What retention removed before the group had read it is told, once, and counted as lost until the group has gone on.
func TestConsumeInGroupOvertaken(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "1")
	must(t, url, numbered(1, 0, 5), keep("t")...)
	must(t, url, "", "consume", "t", "--group", "g", "--max", "1")
	a, _, _ := newApp(url, "")
	if err := a.withLog(t.Context(), func(log *sdk.Log) error {
		_, err := log.Admin().DeleteRecords(t.Context(), "t", 0, 3)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if out := must(t, url, "", "lag"); !strings.Contains(out, "group g  lag 2 in 1 partition, 2 records lost to retention\n") {
		t.Error(out)
	}
	out, errs, code := varve(t, url, "", "consume", "t", "--group", "g")
	if code != exitDone || out != "0-3\n0-4\n" || errs != "varve: topic t partition 0: offsets 1 to 2 were removed before the group had read them; it goes on at 3\n" {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	if out := must(t, url, "", "lag"); !strings.HasPrefix(out, "group g  lag 0 in 1 partition\n") {
		t.Error(out)
	}
}

// A member that was killed is waited for, also without --follow: what it had is taken over after its time-out.
func TestConsumeInGroupAfterADeath(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "1")
	must(t, url, numbered(1, 0, 3), keep("t")...)
	dies := exec.CommandContext(t.Context(), os.Args[0], "consume", "t", "--log", url, "--group", "g", "--follow", "--session-timeout", "2s")
	printed, err := dies.StdoutPipe()
	if err == nil {
		err = dies.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(printed).ReadString('\n'); line != "0-0\n" {
		t.Fatal(line, err)
	}
	dies.Process.Kill()
	dies.Wait()
	must(t, url, numbered(1, 3, 2), keep("t")...)
	out := must(t, url, "", "consume", "t", "--group", "g")
	if !strings.HasSuffix("0-0\n0-1\n0-2\n0-3\n0-4\n", out) || strings.Count(out, "\n") < 2 {
		t.Errorf("after the death: %q", out)
	}
}

// Two members share the partitions; what one of them leaves, in good order, the other has at once.
func TestConsumeInGroupShares(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "4")
	follow := []string{"consume", "t", "--group", "g", "--follow", "--session-timeout", "5s"}
	a, stopA := member(t, url, follow...)
	b, stopB := member(t, url, follow...)
	described(t, url, "g", func(d *sdk.GroupDescription) bool { return slices.Equal(owners(d), []int{2, 2}) })
	must(t, url, numbered(4, 0, 5), keep("t")...)
	var got [2][]string
	for range 20 {
		select {
		case line := <-a:
			got[0] = append(got[0], line)
		case line := <-b:
			got[1] = append(got[1], line)
		}
	}
	if len(got[0]) != 10 || len(got[1]) != 10 {
		t.Errorf("one has printed %v, the other %v", got[0], got[1])
	}
	// A third, without --follow, waits for what they have; it prints nothing that they have printed and committed.
	described(t, url, "g", func(d *sdk.GroupDescription) bool { return sum(d.Partitions).Lag == 0 })
	if out := must(t, url, "", "consume", "t", "--group", "g"); out != "" {
		t.Errorf("a third prints %q", out)
	}
	if errs, code := stopA(); code != exitDone || errs != "" {
		t.Errorf("exit %d: %s", code, errs)
	}
	described(t, url, "g", func(d *sdk.GroupDescription) bool { return slices.Equal(owners(d), []int{4}) && len(d.Members) == 1 })
	must(t, url, numbered(4, 5, 1), keep("t")...)
	for range 4 {
		if line := <-b; !strings.HasSuffix(line, "-5") {
			t.Errorf("printed again: %s", line)
		}
	}
	if errs, code := stopB(); code != exitDone || errs != "" {
		t.Errorf("exit %d: %s", code, errs)
	}
	if out := must(t, url, "", "lag", "g"); !strings.HasPrefix(out, "group g  lag 0 in 4 partitions\n") {
		t.Errorf("in the end: %s", out)
	}
}

// While a member lives the group is changed by force only, and the member goes on from there. One that has nothing to read is named, with the reason.
func TestGroupWithMembers(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "1")
	must(t, url, numbered(1, 0, 3), keep("t")...)
	lines, stop := member(t, url, "consume", "t", "--group", "g", "--follow", "--instance-id", "one", "--session-timeout", "5s")
	for range 3 {
		<-lines
	}
	_, stopIdle := member(t, url, "consume", "t", "--group", "g", "--follow", "--instance-id", "two", "--session-timeout", "5s")
	described(t, url, "g", func(d *sdk.GroupDescription) bool {
		return len(d.Members) == 2 && !d.Members[0].Unplanned && !d.Members[1].Unplanned
	})
	out := must(t, url, "", "group", "describe", "g")
	for _, want := range []string{"group g  created ", "  members 2  lag ", "\nMEMBER  CLIENT ", " t/0 ", " 5s\n", "\ntwo is idle: there are more members than partitions", "\nTOPIC  PARTITION  COMMITTED  OWNER  START  END  LAG  LOST  AGE "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for _, line := range []string{"group reset g --to earliest", "group reset g --to earliest --dry-run", "group delete g"} {
		out, errs, code := varve(t, url, "", strings.Fields(line)...)
		if code != exitFailed || out != "" || !strings.Contains(errs, `group "g" has members: [one two]`) || !strings.Contains(errs, "--force") {
			t.Errorf("%s: exit %d: %s%s", line, code, out, errs)
		}
	}
	dry := must(t, url, "", "group", "reset", "g", "--to", "1", "--force", "--dry-run")
	run := must(t, url, "", "group", "reset", "g", "--to", "1", "--force")
	if dry, run := must(t, url, "", "group", "reset", "g", "--to", "1", "--force", "--dry-run", "--json"), must(t, url, "", "group", "reset", "g", "--to", "1", "--force", "--json"); dry != run {
		t.Errorf("dry run and run:\n%s%s", dry, run)
	}
	if dry != run || !strings.HasPrefix(run, "reset group g, 1 partition\n") {
		t.Errorf("dry run and run:\n%s%s", dry, run)
	}
	if x, y := <-lines, <-lines; x != "0-1" || y != "0-2" {
		t.Errorf("after the reset to 1: %s, %s", x, y)
	}
	if errs, code := stop(); code != exitDone {
		t.Errorf("exit %d: %s", code, errs)
	}
	stopIdle()
	must(t, url, "", "group", "delete", "g", "--force")
	if out := must(t, url, "", "group", "list", "--json"); out != "[]\n" {
		t.Errorf("groups after the deletion: %s", out)
	}
}

// A second process under an instance id takes over, and the first says so.
func TestConsumeInGroupFenced(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "1")
	args := []string{"consume", "t", "--group", "g", "--follow", "--instance-id", "one", "--session-timeout", "2s"}
	a, stopA := member(t, url, args...)
	described(t, url, "g", func(d *sdk.GroupDescription) bool { return len(owners(d)) == 1 })
	_, stopB := member(t, url, args...)
	if line, ok := <-a; ok {
		t.Errorf("the first prints %q", line)
	}
	if errs, code := stopA(); code != exitFailed || !strings.Contains(errs, "taken over") || !strings.Contains(errs, "--instance-id") {
		t.Errorf("the first: exit %d: %s", code, errs)
	}
	if errs, code := stopB(); code != exitDone {
		t.Errorf("the second: exit %d: %s", code, errs)
	}
}

func TestLag(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	if out := must(t, url, "", "topic", "create", "t", "--partitions", "2") + must(t, url, "", "lag") + must(t, url, "", "lag", "--json"); !strings.HasSuffix(out, "\n[]\n") {
		t.Errorf("no groups: %q", out)
	}
	must(t, url, numbered(2, 0, 3), keep("t")...)
	must(t, url, "", "consume", "t", "--group", "a")
	varve(t, url, "", "consume", "t", "--group", "b", "--from", "fail")
	must(t, url, "", "group", "reset", "b", "--to", "3", "--topic", "t", "--partition", "0")
	must(t, url, numbered(1, 3, 2), keep("t")...)
	out := must(t, url, "", "lag")
	for _, want := range []string{"group a  lag 2 in 2 partitions\n", "\n\ngroup b  lag 5 in 2 partitions, 1 without a commit\n", "\nt      1          none       3    3    0 "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	// One that cannot be read does not hide the others.
	for _, form := range [][]string{nil, {"--json"}} {
		out, errs, code := varve(t, url, "", append([]string{"lag", "nosuch", "a"}, form...)...)
		if code == exitDone || !strings.Contains(errs, "nosuch") || !strings.Contains(out, "a") {
			t.Errorf("%v: exit %d: %s%s", form, code, out, errs)
		}
	}
	var got []groupLag
	if err := json.Unmarshal([]byte(must(t, url, "", "lag", "b", "a", "b", "--json")), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got[0].Group != "b" || got[0].Sum != (sums{2, 1, 5, 0}) || got[1].Sum != (sums{2, 0, 2, 0}) || got[0].Partitions[1].Committed != -1 || got[0].Partitions[1].Topic != "t" {
		t.Errorf("%+v", got)
	}
}

func TestLagWarnsOfRetention(t *testing.T) {
	t.Parallel()
	a, _, errs := newApp("mem://", "")
	at := sdk.TopicPartition{Topic: "t", Partition: 1}
	a.warn("g", []sdk.GroupPartition{{TopicPartition: at, Used: 0.8, Oldest: time.UnixMilli(1)}, {TopicPartition: at, Used: 0.83, Oldest: time.UnixMilli(1)}})
	if got := errs.String(); got != "warning: group g, t partition 1: the next record to be read has used 83% of its retention, then it is deleted\n" {
		t.Errorf("%q", got)
	}
	url := newURL(t)
	must(t, url, "", "topic", "create", "t", "--partitions", "1", "--config", "retention.ms=1000")
	must(t, url, numbered(1, 0, 2), keep("t")...)
	must(t, url, "", "consume", "t", "--group", "g", "--max", "1")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		out, errs, code := varve(t, url, "", "lag", "--json")
		if strings.HasPrefix(errs, "warning: group g, t partition 0: ") && strings.HasPrefix(out, `[{"group":"g"`) {
			break
		}
		if code != exitDone || time.Now().After(deadline) {
			t.Fatalf("exit %d: %s%s", code, out, errs)
		}
	}
}

func TestGroupWords(t *testing.T) {
	for want, partitions := range map[string][]sdk.TopicPartition{
		"":              nil,
		"t/0":           {{Topic: "t"}},
		"t/0-2,4;u/5-6": {{Topic: "t"}, {Topic: "t", Partition: 1}, {Topic: "t", Partition: 2}, {Topic: "t", Partition: 4}, {Topic: "u", Partition: 5}, {Topic: "u", Partition: 6}},
	} {
		if got := ranges(partitions); got != want {
			t.Errorf("%v is %q, want %q", partitions, got, want)
		}
	}
	for ms, want := range map[int64]string{0: "-", 7: "7ms", 59_999: "59.999s", 61_400: "1m1s"} {
		if got := millis(ms); got != want {
			t.Errorf("%d ms is %q, want %q", ms, got, want)
		}
	}
	if got := (sums{Partitions: 1, NoCommit: 1, Lag: 7, Lost: 2}).String(); got != "lag 7 in 1 partition, 1 without a commit, 2 records lost to retention" {
		t.Errorf("%q", got)
	}
	for want, p := range map[string]sdk.GroupPartition{"-": {}, "0s": {Oldest: time.UnixMilli(1), AgeMs: 499}, "1m1s": {Oldest: time.UnixMilli(1), AgeMs: 61_499}} {
		if got := age(&p); got != want {
			t.Errorf("%d ms old is %q, want %q", p.AgeMs, got, want)
		}
	}
	if got := used(&sdk.GroupPartition{}); got != "-" {
		t.Errorf("nothing to read has used %q", got)
	}
}

// What members call themselves is others' text: it stays in its cell, and moves no cursor.
func TestTablesPrintWhatPrints(t *testing.T) {
	var out strings.Builder
	if err := table(&out, "MEMBER CLIENT READS", [][]any{{"m", "\x1b[31mé \u202e\x07\nfake\tline", `/a\d"/`}}); err != nil {
		t.Fatal(err)
	}
	_, row, _ := strings.Cut(out.String(), "\n")
	if want := []string{"m", `\x1b[31mé`, `\u202e\a\nfake\tline`, `/a\d"/`}; !slices.Equal(strings.Fields(row), want) || strings.Count(row, "\n") != 1 {
		t.Errorf("%q, want %q", row, want)
	}
}
