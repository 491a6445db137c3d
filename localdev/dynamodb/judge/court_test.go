package judge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// tablesEvery is after how many requests the whole tables are compared.
const tablesEvery = 100

// court is an engine and a judge that are in the same state before each request.
type court struct {
	judge         string
	engine, other *sdk.Client
	g             *generator
	covered       *coverage
	record        *record
	created       map[string]*request // by table, of those that the generator made
}

// record is what came of the differences.
type record struct {
	matched   map[string]int         // entries by name
	unmatched map[string]*difference // the first of each kind
	counts    map[string]int         // by the same kinds
	lost      int                    // answers of the judge that the network lost
}

func newRecord() *record {
	return &record{matched: map[string]int{}, unmatched: map[string]*difference{}, counts: map[string]int{}}
}

func (r *record) merge(other *record) {
	r.lost += other.lost
	for name, n := range other.matched {
		r.matched[name] += n
	}
	for kind, d := range other.unmatched {
		if r.unmatched[kind] == nil {
			r.unmatched[kind] = d
		}
		r.counts[kind] += other.counts[kind]
	}
}

// run compares n requests. An error is one of the harness, not a difference.
func (c *court) run(ctx context.Context, n int) error {
	for _, s := range c.g.tables {
		if err := c.both(ctx, &request{op: "CreateTable", table: s.name, create: &tableRequest{schema: s, onDemand: true}}); err != nil {
			return err
		}
	}
	for i := 0; i < n; i++ {
		r := c.g.next()
		for c.unsent(r) {
			r = c.g.next()
		}
		if err := c.one(ctx, r); err != nil {
			return fmt.Errorf("request %d: %w\n%s", i, err, r)
		}
		if (i+1)%tablesEvery == 0 || i == n-1 {
			if err := c.compareTables(ctx); err != nil {
				return fmt.Errorf("after request %d: %w", i, err)
			}
		}
	}
	return nil
}

// drop removes the tables that run has made.
func (c *court) drop(ctx context.Context) error {
	for _, s := range c.g.tables {
		if err := c.both(ctx, &request{op: "DeleteTable", table: s.name}); err != nil {
			return err
		}
	}
	return nil
}

// both has a request of the harness's own performed.
func (c *court) both(ctx context.Context, r *request) error {
	for _, client := range []*sdk.Client{c.engine, c.other} {
		if _, err := send(ctx, client, r); err != nil {
			return fmt.Errorf("%s: %w", r, err)
		}
		if err := settled(ctx, client, r); err != nil {
			return err
		}
	}
	return nil
}

// settled waits until a table that was made or dropped is there or gone.
func settled(ctx context.Context, client *sdk.Client, r *request) error {
	const limit = 2 * time.Minute
	switch in := (&sdk.DescribeTableInput{TableName: &r.table}); r.op {
	case "CreateTable":
		return sdk.NewTableExistsWaiter(client, func(o *sdk.TableExistsWaiterOptions) { o.MinDelay = 5 * time.Millisecond }).Wait(ctx, in, limit)
	case "DeleteTable":
		return sdk.NewTableNotExistsWaiter(client, func(o *sdk.TableNotExistsWaiterOptions) { o.MinDelay = 5 * time.Millisecond }).Wait(ctx, in, limit)
	}
	return nil
}

// one sends a request to both and judges what differs.
func (c *court) one(ctx context.Context, r *request) error {
	met, err := c.items(ctx, c.engine, r)
	if err != nil {
		return err
	}
	out, engineErr := send(ctx, c.engine, r)
	engine := answerOf(out, engineErr)
	out, judgeErr := send(ctx, c.other, r)
	judged := answerOf(out, judgeErr)
	if isLost(judgeErr) {
		c.record.lost++
		c.covered.note(r, engine)
		return errors.Join(c.settleTables(ctx, r, engine, judged), c.align(ctx, r))
	}
	c.covered.note(r, engine)
	if slices.Contains(engine.meanings(), "?") {
		return fmt.Errorf("the engine's message has no meaning here: %s\n%s", engine.message, r)
	}
	differences := compare(engine, judged)
	apart := len(differences) > 0 && differences[0].field == "outcome"
	switch {
	case r.create != nil:
		if err := c.settleTables(ctx, r, engine, judged); err != nil {
			return err
		}
	case r.isWrite() && !apart:
		state, err := c.compareItems(ctx, r)
		if err != nil {
			return err
		}
		differences = append(differences, state...)
	}
	under := map[string]bool{}
	for _, d := range differences {
		d.judge, d.r, d.engineAnswer, d.judgeAnswer = c.judge, r, engine, judged
		d.before = strings.Join(slices.Sorted(maps.Values(shown(met))), "\n           ")
		c.weigh(&d, under)
	}
	for title := range under {
		c.record.matched[title]++
	}
	if r.isWrite() && len(differences) > 0 {
		return c.align(ctx, r)
	}
	return nil
}

// isLost: nobody knows what the judge has answered, which no judge is to blame for while there are few of them.
func isLost(err error) bool {
	var broken *net.OpError
	return errors.As(err, &broken) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// settleTables waits for tables, and after a difference lets the judge have the tables that the engine has.
func (c *court) settleTables(ctx context.Context, r *request, engine, judged answer) error {
	if r.op != "CreateTable" && r.op != "DeleteTable" {
		return nil
	}
	if engine.code == "" && r.op == "CreateTable" {
		c.created[r.table] = r
	}
	if judged.code == "" {
		if err := settled(ctx, c.other, r); err != nil {
			return err
		}
	}
	if engine.outcome() == judged.outcome() {
		return nil
	}
	there := func(client *sdk.Client) bool {
		_, err := client.DescribeTable(ctx, &sdk.DescribeTableInput{TableName: &r.table})
		return err == nil
	}
	fix, client := &request{op: "DeleteTable", table: r.table}, c.other
	switch {
	case there(c.engine) && !there(c.other):
		fix = c.created[r.table]
	case there(c.engine) || !there(c.other):
		return nil
	}
	if _, err := send(ctx, client, fix); err != nil {
		return err
	}
	return settled(ctx, client, fix)
}

// weigh looks for the entry that a difference falls under, and adds its title to under.
func (c *court) weigh(d *difference, under map[string]bool) {
	for _, e := range entries {
		if e.judge == d.judge && e.covers(d) {
			under[e.title()] = true
			return
		}
	}
	kind := fmt.Sprintf("%s %s: %q / %q", d.r.op, index.ReplaceAllString(d.field, ""), d.engineAnswer.outcome(), d.judgeAnswer.outcome())
	if c.record.counts[kind]++; c.record.unmatched[kind] == nil {
		c.record.unmatched[kind] = d
	}
}

var index = regexp.MustCompile(`[\[.].*`)

// unsent reports whether the request is one that the judge does not survive.
func (c *court) unsent(r *request) bool {
	for _, e := range entries {
		if e.judge == c.judge && e.kills != nil && slices.ContainsFunc(append([]*request{r}, r.parts...), e.kills) {
			c.record.matched[e.title()]++
			return true
		}
	}
	return false
}
