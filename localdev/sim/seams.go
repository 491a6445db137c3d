package sim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/varvelog/varve/internal/env"
	engine "github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
)

// The seams are where a process meets its world: requests to the table, requests to the store, pause points. What happens there is drawn from the seed,
// the process, what is asked for and how often the process has asked for it, and takes a time of its own, to the nanosecond.

var errDead = errors.New("process is dead")

type processKey struct{}

// line is the table as one process reaches it: the HTTP client of its SDK.
type line struct{ p *Process }

// Do implements the SDK's HTTPClient.
func (l line) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if wire := l.p.world.scenario.Without.Wire; wire != nil && !l.p.life.Safe {
		body = wire(l.p, r.Header.Get("X-Amz-Target"), body)
		r.ContentLength = int64(len(body))
	}
	op := digest(r.Header.Get("X-Amz-Target"), body)
	if !l.p.fate(op) {
		return nil, errDead
	}
	r = r.WithContext(context.WithValue(r.Context(), processKey{}, l.p))
	r.Body = io.NopCloser(bytes.NewReader(body))
	resp, err := l.p.world.engine.Load().Do(r)
	attempted(r.Context(), r.Header.Get("X-Amz-Target"), resp, err)
	if !l.p.fate("after " + op) {
		return nil, errDead
	}
	return resp, err
}

// digest tells requests apart by what is in them, whatever the order in which it stands there: that of a JSON object is not the same in every run. Nor
// is what a transaction is made of, its token for one; a process sends one at a time.
func digest(op string, body []byte) string {
	sum := uint64(0)
	for _, b := range body {
		sum += uint64(b) * uint64(b) * uint64(b)
	}
	if strings.HasSuffix(op, "TransactWriteItems") {
		return op
	}
	return op + strconv.FormatUint(sum, 16)
}

// fate decides here whether the process dies or freezes, and tells whether it goes on.
func (p *Process) fate(where string) bool {
	c, f := p.Chance("fate "+where), p.world.scenario.Faults
	p.world.Sleep(c.Within(1, 100*time.Microsecond))
	if !p.stand() {
		return false
	}
	p.befall(c, f.Kill, where)
	return p.stand()
}

// reached is called at the process's pause points.
func (p *Process) reached(at env.Point) {
	c, f := p.Chance(string(at)), p.world.scenario.Faults
	p.world.Sleep(c.Within(1, 100*time.Microsecond))
	if !p.life.Safe && !p.world.quiet.Load() && c.OneIn(f.FreezeArchive*overtaken[at]) {
		p.world.Count("frozen " + string(at))
		d := c.Within(2*time.Hour, 3*time.Hour)
		if at == env.BeforePublish && c.OneIn(2) { // not too long for it to be sent
			d = c.Within(10*time.Minute, metadata.MaxArchiveAge)
		}
		p.Freeze(d, c.OneIn(2))
	}
	spilling := at == env.BeforeChunk || at == env.AfterChunk || at == env.AfterTrim
	if spilling {
		f.Kill = f.KillSpilling
	}
	if p.befall(c, f.Kill, string(at)) && spilling {
		p.world.Count("killed while spilling")
	}
	p.stand()
}

// overtaken are the pause points at which who stands still for hours is overtaken by others who rewrite and delete, and how much less often that happens at those
// that are more often reached.
var overtaken = map[env.Point]int{env.BeforePublish: 1, env.AfterPublish: 1, env.BeforeDelete: 1, env.AfterUpload: 10, env.BeforeCommit: 10}

// befall may kill or freeze the process, and tells whether it has killed it.
func (p *Process) befall(c Chance, kill int, where string) (killed bool) {
	if p.life.Safe || p.world.quiet.Load() {
		return false
	}
	if c.OneIn(kill * p.life.Seldom) {
		p.Kill(where)
		return true
	}
	if c.OneIn(p.world.scenario.Faults.Freeze * p.life.Seldom) {
		d := c.Within(10*time.Second, 2*time.Minute)
		if c.OneIn(6) {
			d += metadata.MaxSegmentAge
		}
		p.Freeze(d, c.OneIn(2))
	}
	return false
}

// onTable befalls a request to the table on its way.
func (w *World) onTable(ctx context.Context, call engine.Call) engine.Fault {
	p, _ := ctx.Value(processKey{}).(*Process)
	if p == nil {
		return engine.Fault{} // the world itself
	}
	c := p.Chance(digest(call.Op, call.Body))
	w.pause(ctx, c.Within(time.Millisecond, 6*time.Millisecond))
	if p.life.Safe || w.quiet.Load() {
		return engine.Fault{}
	}
	item := ""
	if len(call.Keys) > 0 {
		item = call.Keys[0].Partition + " " + call.Keys[0].Sort
	}
	m := p.lucky(c, w.scenario.Faults.Table.pick(c))
	w.Count("table: requests")
	if call.Op == "PutItem" && strings.HasPrefix(item, "C#") && w.inOutage() {
		m = failed
	}
	wait := m.wait(c)
	f := m.atTable(c, w.late(wait))
	if p.cutOff(c) {
		m, f = lost, engine.Fault{Skip: true, Reply: engine.ErrNoAnswer}
	}
	if m != nothing {
		w.Count("table: " + mishaps[m])
		p.Note("%s %s: %v", call.Op, item, m.after(wait))
	}
	if !call.Consistent && w.scenario.Faults.Stale > 0 {
		f.Stale = c.Within(0, w.scenario.Faults.Stale)
	}
	if call.Op == "TransactWriteItems" { // long enough for others to meet it
		held := c.Within(0, 5*time.Millisecond)
		f.Prepared = func(ctx context.Context) { w.pause(ctx, held) }
	}
	return f
}

// lucky is what befalls a request of the process, if it were to be this.
func (p *Process) lucky(c Chance, m mishap) mishap {
	if p.life.Luck > 1 && !c.OneIn(p.life.Luck) {
		return nothing
	}
	return m
}

// inOutage tells whether it is the while in which no chunk can be written.
func (w *World) inOutage() bool {
	now := w.Now()
	return now > w.outage[0] && now < w.outage[1]
}

// onStore befalls a request to the store on its way.
func (p *Process) onStore(call fault.Call) fault.Fault {
	c := p.Chance(string(call.Op) + " " + call.Name)
	delay := c.Within(5*time.Millisecond, 60*time.Millisecond)
	if p.life.Safe || p.world.quiet.Load() {
		return fault.Fault{Delay: delay}
	}
	m := p.lucky(c, p.world.scenario.Faults.odds(call.Op).pick(c))
	wait := m.wait(c)
	f := m.atStore(wait)
	if p.cutOff(c) {
		m, f = lost, fault.Fault{Kind: fault.LostBefore, Delay: c.Within(time.Second, 5*time.Second)}
	}
	f.Delay += delay
	if f.Kind == fault.Late {
		arrived := make(chan struct{})
		p.world.later.Go(func() {
			defer close(arrived)
			p.world.late(wait)(context.Background())
		})
		f.LateOn = arrived
	}
	if m != nothing {
		p.world.Count("store: " + mishaps[m])
		p.Note("%s %s: %v", call.Op, call.Name, m.after(wait))
	}
	return f
}

// cutOff tells whether the process is without network; now and then it begins to be, for longer than its deadlines allow. Other requests of the moment
// at which that begins still get through, whichever of them comes first.
func (p *Process) cutOff(c Chance) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.world.clock()
	if c.OneIn(p.world.scenario.Faults.CutOff * p.life.Seldom) {
		if now.After(p.cutUntil) {
			p.cutFrom = now
		}
		if until := now.Add(c.Within(5*time.Second, 30*time.Second)); until.After(p.cutUntil) {
			p.cutUntil = until
		}
		p.world.Count("cut off")
		return true
	}
	return now.After(p.cutFrom) && now.Before(p.cutUntil)
}

// bucket is the store as a process calls it.
type bucket struct {
	store.Store
	p *Process
}

func (b bucket) Put(ctx context.Context, name string, body []byte) error {
	if !b.p.fate("put " + name) {
		return store.Fail(store.OpPut, name, errDead)
	}
	if b.p.putAgain(name, body) {
		b.p.world.Count("minted anew")
	}
	err := b.Store.Put(ctx, name, body)
	if !b.p.fate("after put " + name) {
		return store.Fail(store.OpPut, name, errDead)
	}
	return err
}

// putAgain tells whether the process had put these bytes before, under another name. Whether it was told that they are there says nothing.
func (p *Process) putAgain(name string, body []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.bodies[string(body)]
	if first == "" {
		p.bodies[string(body)] = name
	}
	again := first != "" && first != name
	if again {
		p.world.puttingAgain(body)
	}
	return again
}

func (b bucket) PutParts(ctx context.Context, name string, next func() ([]byte, error)) (size int64, err error) {
	if !b.p.fate("put " + name) {
		return 0, store.Fail(store.OpPut, name, errDead)
	}
	size, err = b.Store.PutParts(ctx, name, next)
	if !b.p.fate("after put " + name) {
		return 0, store.Fail(store.OpPut, name, errDead)
	}
	return size, err
}

func (b bucket) Stat(ctx context.Context, name string) (store.Info, error) {
	if !b.p.fate("stat " + name) {
		return store.Info{}, store.Fail(store.OpStat, name, errDead)
	}
	return b.Store.Stat(ctx, name)
}

func (b bucket) List(ctx context.Context, prefix, after string, most int) (store.Page, error) {
	if !b.p.fate("list " + prefix + after) {
		return store.Page{}, store.Fail(store.OpList, prefix, errDead)
	}
	return b.Store.List(ctx, prefix, after, most)
}

func (b bucket) Delete(ctx context.Context, names ...string) error {
	what := "delete " + strings.Join(names, " ")
	if !b.p.fate(what) {
		return store.Fail(store.OpDelete, names[0], errDead)
	}
	err := b.Store.Delete(ctx, names...)
	if !b.p.fate("after " + what) {
		return store.Fail(store.OpDelete, names[0], errDead)
	}
	return err
}

func (b bucket) Get(ctx context.Context, name string, off, n int64, dst []byte) ([]byte, error) {
	if !b.p.fate("get " + name) {
		return nil, store.Fail(store.OpGet, name, errDead)
	}
	got, err := b.Store.Get(ctx, name, off, n, dst)
	if !b.p.fate("after get " + name) {
		return nil, store.Fail(store.OpGet, name, errDead)
	}
	return got, err
}
