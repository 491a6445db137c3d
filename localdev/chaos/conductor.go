package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/localdev/minio"
	"github.com/varvelog/varve/sdk"
)

// options say what is to be played.
type options struct {
	playFor time.Duration
	seed    uint64
	minio   string       // its program; empty: the log is a directory
	cast    map[role]int // how many processes there are of each role
	timeout time.Duration
	gap     time.Duration // between the beginnings of two faults, on average
	pace    time.Duration // between two bursts of a producer, at most
	disk    int64         // bytes of the log's file system; 0: it is not limited
	out     io.Writer
}

// conductor plays a run.
type conductor struct {
	options
	env     env.Env // chance by the seed
	dir     string  // of histories, and the log
	url     string  // of the log, by the proxies
	proxies map[string]*proxy
	tally   *tally

	minio     *minio.Server
	minioBusy sync.Mutex
	disk      *disk
	diskBusy  sync.Mutex

	processes []*process
	stop      context.CancelCauseFunc // ends the play
}

// The services behind proxies.
const (
	tableService = "table"
	storeService = "store"
	httpService  = "http"
)

// bucket and table of a log on MinIO.
const (
	bucket = "varve"
	table  = "varve"
)

// play plays a run, prints what it came to, and returns that. An error is a run that could not be played.
func play(ctx context.Context, o options) (v *verdict, err error) {
	c := &conductor{options: o, env: env.System(), proxies: map[string]*proxy{}}
	c.env.Rand = env.NewRand(o.seed)
	if c.dir, err = os.MkdirTemp("", "varve-chaos-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close(v == nil || v.ok())) }()
	c.say("seed %d, on %s, for %v: %s", o.seed, c.kindOfStore(), o.playFor, c.dir)
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c.stop = stop
	if err := c.build(running); err != nil {
		return nil, err
	}
	if err := c.start(); err != nil {
		return nil, err
	}
	v = c.run(running)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c.report(v)
	return v, nil
}

// run is the play, its end, and the judgement.
func (c *conductor) run(ctx context.Context) *verdict {
	began := c.env.Mono()
	if err := c.perform(ctx); err != nil {
		return broken(err)
	}
	c.say("%v: nothing fails any more, and what is under way settles", (c.env.Mono() - began).Round(time.Second))
	log, err := c.settle(ctx)
	if err != nil {
		return broken(err)
	}
	defer log.Close()
	c.say("%v: all have ended, and what they have seen is held against the log", (c.env.Mono() - began).Round(time.Second))
	return c.judge(ctx, log)
}

// report prints what befell whom, and what came of it.
func (c *conductor) report(v *verdict) {
	c.tally.print(c.out)
	fmt.Fprint(c.out, v.counts)
	for i, violation := range v.violations {
		if i == shown {
			c.say("and %d more", len(v.violations)-shown)
			break
		}
		c.say("VIOLATION (seed %d): %s", c.seed, violation)
	}
	if v.ok() {
		c.say("no violation")
	} else {
		c.say("%d violations; everything is in %s", len(v.violations), c.dir)
	}
}

func (c *conductor) say(format string, args ...any) { fmt.Fprintf(c.out, format+"\n", args...) }

func (c *conductor) kindOfStore() string {
	if c.options.minio != "" {
		return "MinIO and the DynamoDB engine"
	}
	return "a directory"
}

func (c *conductor) below(n int) int { return int(c.env.Int64N(int64(n))) }

func (c *conductor) within(least, most time.Duration) time.Duration {
	return least + time.Duration(c.env.Int64N(int64(most-least)+1))
}

// wait waits for d, or until the play is over.
func (c *conductor) wait(ctx context.Context, d time.Duration) { _ = c.env.Sleep(ctx, d) }

// build makes what processes need: services, proxies, the log and its topics.
func (c *conductor) build(ctx context.Context) (err error) {
	names := []string{httpService}
	if c.options.minio != "" {
		names = append(names, tableService, storeService)
	}
	for _, name := range names {
		if c.proxies[name], err = newProxy(c.env); err != nil {
			return err
		}
	}
	if c.options.minio != "" {
		err = c.buildMinIO(ctx)
	} else {
		err = c.buildDirectory()
	}
	if err != nil {
		return err
	}
	log, err := sdk.Open(ctx, c.url, sdk.WithDriver(embedded.Driver()), sdk.WithCreateTable())
	if err != nil {
		return err
	}
	defer log.Close()
	for _, t := range topics {
		if _, err := log.Admin().CreateTopic(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// buildMinIO starts MinIO and the engine. From then on the credentials are this process's, and so those of all that it starts.
func (c *conductor) buildMinIO(ctx context.Context) (err error) {
	if c.minio, err = minio.Start(ctx, env.System(), c.options.minio, filepath.Join(c.dir, "minio")); err != nil {
		return err
	}
	if err := c.minio.MakeBucket(ctx, bucket); err != nil {
		return err
	}
	c.proxies[storeService].lead(strings.TrimPrefix(c.minio.Endpoint(), "http://"))
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
			os.Unsetenv(name)
		}
	}
	access, secret := c.minio.Credentials()
	os.Setenv("AWS_ACCESS_KEY_ID", access)
	os.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	q := url.Values{"table": {table}, "region": {minio.Region}, "s3_endpoint": {"http://" + c.proxies[storeService].address()},
		"dynamodb_endpoint": {"http://" + c.proxies[tableService].address()}}
	c.url = "aws://" + bucket + "/log?" + q.Encode()
	return c.add(engine, 1)
}

func (c *conductor) buildDirectory() (err error) {
	path := filepath.Join(c.dir, "log")
	if c.options.disk > 0 {
		if c.disk, err = newDisk(path, c.options.disk); err != nil {
			c.say("THE DISK WILL NOT BE FULL in this run, which takes root: %v", err)
		}
	}
	c.url = "file://" + path
	return nil
}

// add starts so many processes of a role.
func (c *conductor) add(r role, n int) error {
	for i := range n {
		p := &process{environment: os.Environ(), unexpected: c.unexpected, spec: spec{
			Role: r, Name: fmt.Sprintf("%s-%d", r, i+1), Seed: c.env.Uint64(), Dir: c.dir, Log: c.url, Timeout: c.timeout, Pace: c.pace,
			Web: "http://" + c.proxies[httpService].address(),
		}}
		switch r {
		case engine:
			p.lead = c.proxies[tableService].lead
		case server:
			p.lead = c.proxies[httpService].lead
		}
		c.processes = append(c.processes, p)
		if err := p.start(); err != nil {
			return err
		}
	}
	return nil
}

// order is that in which processes start.
var order = []role{engine, server, producer, client, reader, member, stepper, keeper, watcher}

func (c *conductor) start() error {
	for _, r := range order {
		if r != engine {
			if err := c.add(r, c.cast[r]); err != nil {
				return err
			}
		}
	}
	return nil
}

// roles are those that are played, in order.
func (c *conductor) roles() (list []role) {
	for _, r := range order {
		if len(c.of(r)) > 0 {
			list = append(list, r)
		}
	}
	return list
}

// of is the processes of a role.
func (c *conductor) of(r role) (list []*process) {
	for _, p := range c.processes {
		if p.Role == r {
			list = append(list, p)
		}
	}
	return list
}

// unexpected ends the run for a process that ended by itself.
func (c *conductor) unexpected(how string) { c.stop(errors.New(how)) }

// perform plays faults, each of the deck once before any comes again, until the time is over; then it mends all.
func (c *conductor) perform(ctx context.Context) error {
	playing, over := c.env.WithTimeout(ctx, c.playFor)
	defer over()
	deck := c.deck()
	c.tally = newTally(deck)
	var under sync.WaitGroup
	began := c.env.Mono()
	said := began
	for rest := []fault(nil); playing.Err() == nil; {
		if len(rest) == 0 {
			rest = c.shuffled(deck)
		}
		f := rest[0]
		rest = rest[1:]
		under.Go(func() {
			befell, err := f.play(playing)
			if err != nil {
				c.stop(fmt.Errorf("%s of %s: %w", f.kind, f.whom, err))
			} else if befell {
				c.tally.add(f)
			}
		})
		c.wait(playing, c.within(0, 2*c.gap))
		if now := c.env.Mono(); now-said > sayEvery {
			said = now
			c.say("%v of %v: %d faults, %d MB of history", (now - began).Round(time.Second), c.playFor, c.tally.total(), c.historyBytes()>>20)
		}
	}
	under.Wait()
	return context.Cause(ctx)
}

// sayEvery is how often a run says how far it is.
const sayEvery = 10 * time.Second

func (c *conductor) shuffled(deck []fault) []fault {
	all := slices.Clone(deck)
	for i := range all {
		j := i + c.below(len(all)-i)
		all[i], all[j] = all[j], all[i]
	}
	return all
}

func (c *conductor) historyBytes() (n int64) {
	files, _ := filepath.Glob(filepath.Join(c.dir, "*"+journalSuffix))
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			n += info.Size()
		}
	}
	return n
}

// soon is within what everybody must have ended a part of what is left to do when nothing fails any more.
const soon = 2 * time.Minute

// settle lets everybody end, those first for whom others wait, and returns the log.
func (c *conductor) settle(ctx context.Context) (log *sdk.Log, err error) {
	if err := c.end(ctx, producer, client); err != nil {
		return nil, err
	}
	if log, err = sdk.Open(ctx, c.url, sdk.WithDriver(embedded.Driver())); err != nil {
		return nil, err
	}
	err = c.drained(ctx, log)
	if err == nil {
		err = c.end(ctx, member, stepper)
	}
	if err == nil {
		err = c.tellEnds(ctx, log)
	}
	if err == nil {
		err = c.ended(ctx, reader)
	}
	if err == nil {
		err = c.end(ctx, keeper, watcher, server)
	}
	if err != nil {
		log.Close()
	}
	return log, err
}

// end tells all processes of these roles to end, and waits for them.
func (c *conductor) end(ctx context.Context, roles ...role) error {
	for _, r := range roles {
		for _, p := range c.of(r) {
			p.mayEnd()
			if err := p.signal(syscall.SIGTERM); err != nil {
				return fmt.Errorf("%s: %w", p.by(), err)
			}
		}
	}
	return c.ended(ctx, roles...)
}

// ended waits for processes that end by themselves.
func (c *conductor) ended(ctx context.Context, roles ...role) error {
	ctx, cancel := c.env.WithTimeout(ctx, soon)
	defer cancel()
	for _, r := range roles {
		for _, p := range c.of(r) {
			select {
			case <-p.ended:
			case <-ctx.Done():
				return c.stuck(ctx, p)
			}
			if !p.command.ProcessState.Success() {
				return fmt.Errorf("%s: %v: %s", p.by(), p.command.ProcessState, p.said())
			}
		}
	}
	return nil
}

// stuck is the error of a process that does not end, with what its goroutines are at.
func (c *conductor) stuck(ctx context.Context, p *process) error {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return context.Cause(ctx)
	}
	p.signal(syscall.SIGQUIT)
	<-p.ended
	return fmt.Errorf("%s has not ended in %v, though nothing fails any more; where it was stands in %s", p.by(), soon, p.saysTo())
}

// drained waits until both groups have committed everything. It may take as long as there is something to do, and they do something.
func (c *conductor) drained(ctx context.Context, log *sdk.Log) error {
	for _, group := range []string{working, stepping} {
		least, since := int64(math.MaxInt64), c.env.Mono()
		for least > 0 {
			behind, err := c.behind(ctx, log, group)
			if err == nil && behind < least {
				least, since = behind, c.env.Mono()
			}
			if c.env.Mono()-since > soon {
				return fmt.Errorf("group %s is %d records behind and has committed nothing for %v, though nothing fails any more (%v)", group, least, soon, err)
			}
			if err := c.env.Sleep(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *conductor) behind(ctx context.Context, log *sdk.Log, group string) (records int64, err error) {
	all, err := log.Admin().Offsets(ctx, orders)
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		records += p.End
	}
	done, err := sample(ctx, log, group, 0)
	if errors.Is(err, sdk.ErrUnknownGroup) {
		err = nil
	}
	for _, l := range done {
		records -= l.Offset
	}
	return records, err
}

// tellEnds writes down where all partitions end.
func (c *conductor) tellEnds(ctx context.Context, log *sdk.Log) error {
	for _, p := range c.of(reader) {
		p.mayEnd()
	}
	all := ends{}
	for _, t := range topics {
		offsets, err := log.Admin().Offsets(ctx, t.Name)
		if err != nil {
			return err
		}
		for _, p := range offsets {
			all[t.Name] = append(all[t.Name], p.End)
		}
	}
	b, err := json.Marshal(all)
	if err != nil {
		return err
	}
	path := filepath.Join(c.dir, endsFile)
	if err := os.WriteFile(path+".new", b, 0o666); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// close ends everything that was started, and removes the directory if nobody needs it.
func (c *conductor) close(remove bool) (err error) {
	for _, p := range c.processes {
		p.kill()
	}
	for _, p := range c.proxies {
		p.close()
	}
	if c.minio != nil {
		err = errors.Join(err, c.minio.Close())
	}
	if c.disk != nil && remove {
		err = errors.Join(err, c.disk.close())
	}
	if remove {
		return errors.Join(err, os.RemoveAll(c.dir))
	}
	return err
}
