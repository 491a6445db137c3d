package dynamodb_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/localdev/dynamodb"
)

// The test binary is also the other process: with these in its environment it writes to the file and says on
// standard output what was acknowledged.
const (
	childJob  = "ENGINE_TEST_CHILD" // count or pairs
	childFile = "ENGINE_TEST_FILE"
	childName = "ENGINE_TEST_NAME"
)

func TestMain(m *testing.M) {
	job, ok := children[os.Getenv(childJob)]
	if !ok {
		os.Exit(m.Run())
	}
	engine, err := dynamodb.New(dynamodb.Options{File: os.Getenv(childFile)})
	if err == nil {
		err = job(clientOf(engine), os.Getenv(childName), os.Stdout)
	}
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	_ = engine.Close()
}

var children = map[string]func(client *sdk.Client, name string, acks io.Writer) error{
	"count": count, "pairs": pairs,
	"open": func(*sdk.Client, string, io.Writer) error { return nil },
}

const increments = 60

// count adds to one counter with all the others, and puts an item of its own with each increment, in a transaction
// every third time. A busy file is tried again.
func count(client *sdk.Client, name string, acks io.Writer) error {
	for i := 0; i < increments; {
		own := fmt.Sprintf("%s-%d", name, i)
		err := step(client, own, i%3 == 0)
		switch code(err) {
		case "":
			fmt.Fprintln(acks, "ack", own)
			i++
		case "ThrottlingException", "TransactionConflictException":
		default:
			return err
		}
	}
	return nil
}

func step(client *sdk.Client, own string, transaction bool) error {
	ctx := context.Background()
	add := updating("counter", "ADD n :v", "v:1")
	if transaction {
		_, err := client.TransactWriteItems(ctx, &sdk.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{add, putting(fmt.Sprintf(`pk:%q sk:"s"`, own), "attribute_not_exists(pk)")}})
		return err
	}
	if _, err := client.PutItem(ctx, &sdk.PutItemInput{TableName: table, Item: key(own, "s")}); err != nil {
		return err
	}
	_, err := client.UpdateItem(ctx, &sdk.UpdateItemInput{TableName: table, Key: add.Update.Key, UpdateExpression: add.Update.UpdateExpression, ExpressionAttributeValues: add.Update.ExpressionAttributeValues})
	return err
}

// pairs writes rows of two items of one value without end: one transaction a row.
func pairs(client *sdk.Client, name string, acks io.Writer) error {
	for i := 0; ; i++ {
		_, err := client.TransactWriteItems(context.Background(), &sdk.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
			putting(fmt.Sprintf(`pk:"%s-%d" sk:"x" n:%d`, name, i, i), ""), putting(fmt.Sprintf(`pk:"%s-%d" sk:"y" n:%d`, name, i, i), ""), updating("last", "SET n=:v", fmt.Sprintf("v:%d", i)),
		}})
		if err != nil {
			return err
		}
		fmt.Fprintln(acks, "ack", i)
	}
}

// child starts the test binary as another process.
func child(t *testing.T, job, file, name string) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childJob+"="+job, childFile+"="+file, childName+"="+name)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// TestSeveralProcessesOnOneFile: four processes and this one count together; nothing is lost and nothing applied
// twice.
func TestSeveralProcessesOnOneFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "engine.db")
	f := newFixture(t, dynamodb.Options{File: file})
	names := []string{"a", "b", "c", "d"}
	var all sync.WaitGroup
	for _, name := range names {
		cmd, out := child(t, "count", file, name)
		all.Go(func() {
			content, _ := io.ReadAll(out)
			if err := cmd.Wait(); err != nil || strings.Count(string(content), "ack") != increments {
				t.Errorf("process %s: %v\n%s", name, err, content)
			}
		})
	}
	if err := count(f.client, "here", io.Discard); err != nil {
		t.Error(err)
	}
	all.Wait()
	if got, want := f.get("counter", "s"), fmt.Sprintf(`n:%d pk:"counter" sk:"s"`, increments*5); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, name := range append(names, "here") {
		for i := range increments {
			if f.get(fmt.Sprintf("%s-%d", name, i), "s") == "" {
				t.Errorf("item %d of %s is missing", i, name)
			}
		}
	}
}

// TestProcessesOpenOneNewFile at the same moment: all of them find its tables, whoever made them.
func TestProcessesOpenOneNewFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "engine.db")
	var all sync.WaitGroup
	for range 6 {
		cmd, out := child(t, "open", file, "")
		all.Go(func() {
			content, _ := io.ReadAll(out)
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v: %s", err, content)
			}
		})
	}
	all.Wait()
	newFixture(t, dynamodb.Options{File: file}).put(`pk:"a" sk:"s"`)
}

// TestKilledProcess: the process that writes is killed (SIGKILL) in the middle of it, five times on one file. Every
// row that it acknowledged is there, and no row is there by half.
func TestKilledProcess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "engine.db")
	newFixture(t, dynamodb.Options{File: file}).engine.Close()
	for round := range 5 {
		name := fmt.Sprint("round", round)
		cmd, out := child(t, "pairs", file, name)
		acknowledged := -1
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			n, err := strconv.Atoi(strings.TrimPrefix(lines.Text(), "ack "))
			if err != nil {
				t.Fatal(lines.Text())
			}
			acknowledged = n
			if n == 7*(round+1) {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait() // killed
		f := reopen(t, file)
		var last int
		if _, err := fmt.Sscanf(f.get("last", "s"), "n:%d", &last); err != nil || last < acknowledged {
			t.Fatalf("round %d: last is %d, %d acknowledged (%v)", round, last, acknowledged, err)
		}
		for i := range last + 2 {
			x, y := f.get(fmt.Sprintf("%s-%d", name, i), "x"), f.get(fmt.Sprintf("%s-%d", name, i), "y")
			if whole := strings.Replace(x, `sk:"x"`, `sk:"y"`, 1) == y; !whole || (x != "") != (i <= last) {
				t.Errorf("round %d, row %d of %d: %q, %q", round, i, last, x, y)
			}
		}
		if err := f.engine.Close(); err != nil {
			t.Error(err)
		}
	}
}

// reopen is an engine on a file that has its table already. It must open within a moment: a dead process holds
// nothing.
func reopen(t *testing.T, file string) *fixture {
	t.Helper()
	start := time.Now()
	engine, err := dynamodb.New(dynamodb.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("opening took %v", took)
	}
	f := &fixture{T: t, engine: engine, client: clientOf(engine)}
	if _, err := f.client.DescribeTable(f.ctx(), &sdk.DescribeTableInput{TableName: aws.String("tbl")}); err != nil {
		t.Fatal(err)
	}
	return f
}
