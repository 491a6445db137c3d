package sim

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/varvelog/varve/functions/repair"
	engine "github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/dynamo"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// Restorer puts the table back to an earlier moment when all else is over and judged, and things fail once more: while writers go on, who are not told. In between there was
// compacted, swept, and the first of its topics was grown and came under other classes. Then it repairs, in as many processes as that takes. In the end every record that was
// acknowledged is in the log once; whoever asks for the offset at which it was acknowledged gets it, or is told that history was rewritten; and what was in the
// log before is where it was.
type Restorer struct {
	Name   string
	Writes []string // topics that are written to; nothing of them expires
	Keys   int
	OneIn  int // seeds in which it does so
}

// Play implements Actor.
func (x *Restorer) Play(*World) {}

// Prove implements Actor.
func (x *Restorer) Prove(*World) {}

// Sequel implements Sequel.
func (x *Restorer) Sequel(w *World) {
	if !w.Chance(x.Name, "plays").OneIn(x.OneIn) {
		return
	}
	r := &restoring{Restorer: x, World: w, c: w.Chance(x.Name), from: len(w.Ops)}
	r.safe = w.Start(x.Name+" itself", Life{Safe: true})
	if r.log = r.safe.Open(); r.log == nil {
		return
	}
	r.before = r.values()
	r.once(Verify)
	w.trouble()
	for i := range 2 {
		r.writing.Go(func() { r.write(fmt.Sprintf("%s.w%d", x.Name, i)) })
	}
	r.some(2)
	back := w.clock()
	w.Sleep(r.c.Within(time.Millisecond, time.Second))
	old := r.snapshot()
	r.some(3 + r.c.Below(4))
	w.must(w.engine.Swap(old).Close())
	w.note(About{By: x.Name}, "the table is put back to %v", back.Sub(w.began))
	w.Count("table put back")
	w.Sleep(r.c.Within(0, 40*time.Minute))
	if r.c.OneIn(3) {
		r.grow()
	}
	if young := r.repair(back); young > 0 {
		w.Count("repaired again for what was young")
		w.Sleep(repair.Settled + time.Minute)
		if young = r.repair(back); young > 0 {
			r.bad("%d segments are too young again", young)
		}
	}
	w.Sleep(r.c.Within(0, 10*time.Minute))
	r.done.Store(true)
	w.calm()
	r.writing.Wait()
	for _, do := range []func(*Process, sdk.Backend) error{Compact, SweepAll, Verify} {
		r.once(do)
	}
	r.judge()
}

// restoring is one time that a Restorer plays.
type restoring struct {
	*Restorer
	*World
	c       Chance
	safe    *Process
	log     *sdk.Log // of safe
	writing sync.WaitGroup
	done    atomic.Bool      // writers may end
	n       int              // names given
	from    int              // in Ops
	before  map[string]Place // what was in the log
}

func (r *restoring) bad(format string, args ...any) {
	r.Bad(About{By: r.Name}, format, args...)
}

// next is a name that no other process has.
func (r *restoring) next(what string) string {
	r.n++
	return fmt.Sprintf("%s.%s%d", r.Name, what, r.n)
}

// write is a writer, in one process after another.
func (r *restoring) write(part string) {
	for n := 0; !r.done.Load(); n++ {
		p := r.start(part+"."+strconv.Itoa(n), part, Life{Bucket: true})
		p.Run(func() {
			a := p.appender(r.Writes[0])
			for a != nil && !r.done.Load() && p.Rest(p.Chance("writes").Within(10*time.Second, 15*time.Minute)) {
				a.bursts(&Producer{Also: r.Writes[1:], Keys: r.Keys}, 1)
			}
		})
		r.Sleep(p.Chance("is replaced").Within(0, 3*time.Second))
	}
}

// some lets time go by, and so many of the things happen that happen to a log.
func (r *restoring) some(things int) {
	for range things {
		r.Sleep(r.c.Within(5*time.Minute, 30*time.Minute))
		switch r.c.Below(5) {
		case 0, 1:
			r.job(Compact)
		case 2:
			r.job(Sweep)
		case 3:
			r.grow()
		case 4:
			r.change(sdk.Alteration{Config: map[string]string{metadata.RetentionMs: []string{"-1", "2592000000", "5184000000"}[r.c.Below(3)]}})
		}
	}
}

func (r *restoring) job(do func(*Process, sdk.Backend) error) {
	j := &Job{Name: r.next("job"), Skew: SweepSkew, Luck: 10, Do: do}
	j.run(r.World, r.start(j.Name, "", j.life()))
}

// once does it when nothing fails.
func (r *restoring) once(do func(*Process, sdk.Backend) error) {
	(&Job{Name: r.next("in peace"), Do: do}).once(r.World)
}

// grow grows the first topic beyond what it has now, which may be less than it once had.
func (r *restoring) grow() {
	row, err := r.table().Topic(context.Background(), r.Writes[0])
	r.must(err)
	r.change(sdk.Alteration{Partitions: row.Partitions + 1 + r.c.Below(3), MoveKeys: true})
}

func (r *restoring) change(a sdk.Alteration) { (&Keeper{Topic: r.Writes[0]}).change(r.safe, r.log, a) }

// snapshot is a copy of the table.
func (r *restoring) snapshot() *engine.Engine {
	copied := r.newEngine()
	from, to := dynamodb.NewFromConfig(r.aws(r.engine.Load())), dynamodb.NewFromConfig(r.aws(copied))
	table, err := dynamo.Open(dynamo.Config{AWS: r.aws(copied), TableName: tableName, Env: r.env})
	r.must(err)
	r.must(table.EnsureTable(context.Background()))
	scan := &dynamodb.ScanInput{TableName: aws.String(tableName), ConsistentRead: aws.Bool(true)}
	for {
		page, err := from.Scan(context.Background(), scan)
		r.must(err)
		for _, it := range page.Items {
			_, err := to.PutItem(context.Background(), &dynamodb.PutItemInput{TableName: aws.String(tableName), Item: it})
			r.must(err)
		}
		if scan.ExclusiveStartKey = page.LastEvaluatedKey; scan.ExclusiveStartKey == nil {
			return copied
		}
	}
}

// repairs is how many processes may be cut off in a repair.
const repairs = 10

// repair repairs in as many processes as it takes, and tells how many segments are too young.
func (r *restoring) repair(back time.Time) (young int) {
	for n := range repairs + 1 {
		life := Life{Seldom: 4, Luck: 6}
		if n == repairs {
			life.Safe = true
		}
		p := r.start(r.next("repair"), "repair", life)
		var report *repair.Report
		var err error
		finished := false
		p.Run(func() {
			b := p.Backend()
			report, err = repair.Run(p.ctx, b.Table, b.Store, repair.Options{Back: back, Env: p.Env()})
			finished = p.Rest(1)
		})
		if finished {
			r.add("grown by a repair", len(report.Grown))
		}
		switch {
		case !finished:
			r.Count("repair cut off")
		case errors.Is(err, repair.ErrNothing):
			return 0
		case err == nil:
			r.Count("repaired")
			r.repaired(report)
			return report.Young
		case damaged(err) || n == repairs:
			r.bad("%s: %v", p.Name, err)
		default:
			r.Count("repair failed")
			p.Note("failed: %v", err)
		}
		r.Sleep(p.Chance("again").Within(0, time.Minute))
	}
	return 0
}

func (r *restoring) repaired(report *repair.Report) {
	for _, p := range report.Partitions {
		r.add("came back at their offsets", int(p.Returned))
		r.add("appended again", int(p.Appended))
	}
	for _, u := range report.Unreadable {
		if !strings.Contains(u, "not exist") { // swept meanwhile
			r.bad("the repair could not read %s", u)
		}
	}
}

// values are where each value is.
func (r *restoring) values() map[string]Place {
	all := map[string]Place{}
	for _, topic := range r.Writes {
		for at, kept := range r.readAll(r.safe, r.log, topic) {
			for _, k := range kept {
				if other, twice := all[k.Value]; twice && !r.mayComeTwice(k.Value) {
					r.bad("%q is in the log twice, at %d of %v and at %d of %v", k.Value, other.Offset, other.Partition, k.Offset, at)
				}
				all[k.Value] = Place{at, k.Offset}
			}
		}
	}
	return all
}

func (r *restoring) judge() {
	now := r.values()
	for v, place := range r.before {
		if now[v] != place {
			r.bad("%q was at %d of %v before the table was put back, and is at %v", v, place.Offset, place.Partition, now[v])
		}
	}
	told := map[Place]string{}
	for _, o := range r.Ops[r.from:] {
		if o.Outcome() != sdk.Applied {
			continue
		}
		place, there := now[o.Value]
		if !there || place.Partition != o.Partition {
			r.BadOp(o, "%v: acknowledged at %d before or after the table was put back, and not in the log", o, o.Offset)
			continue
		}
		asked := Place{o.Partition, o.Offset}
		answer, known := told[asked]
		if !known {
			answer = r.at(asked)
			told[asked] = answer
		}
		switch answer {
		case o.Value:
			r.Count("kept its offset")
		case rewritten:
			r.Count("lost its offset")
		default:
			r.BadOp(o, "%v: acknowledged at %d, where there is now: %s", o, o.Offset, answer)
		}
	}
}

const rewritten = "history was rewritten"

// at is what who asks for an offset is given, or told.
func (r *restoring) at(asked Place) string {
	reader, err := r.log.NewReader(r.safe.ctx, asked.Topic, sdk.ReadPartitions(asked.Number), sdk.FromOffsets(map[int]int64{asked.Number: asked.Offset}), sdk.To(sdk.Latest))
	if err != nil {
		return err.Error()
	}
	defer reader.Close()
	fetches, err := reader.Poll(r.safe.ctx)
	switch {
	case errors.Is(err, sdk.ErrRewritten):
		return rewritten
	case err != nil:
		return err.Error()
	case fetches[0].Records[0].Offset != asked.Offset:
		return "nothing"
	}
	return valueOf(fetches[0].Records[0].Value, fetches[0].Records[0].Headers)
}

// puttingAgain notes a segment whose bytes are put under another id: where the first one was not committed, a repair cannot tell it from a forgotten commit.
func (w *World) puttingAgain(body []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.putAgain = append(w.putAgain, body)
}

// mayComeTwice tells whether a value is in a segment that was put under several ids.
func (r *restoring) mayComeTwice(value string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	var d segment.Decoder
	for _, body := range r.putAgain {
		f, err := segment.ParseSegment(body)
		r.must(err)
		for _, e := range f.Extents {
			for rest := body[e.Offset : e.Offset+e.Length]; len(rest) > 0; {
				var batch []byte
				batch, rest, err = segment.SplitBatch(rest)
				r.must(err)
				records, err := d.Decode(batch, 0, nil)
				r.must(err)
				for i := range records {
					if valueOf(records[i].Value, records[i].Headers) == value {
						r.Count("came twice")
						return true
					}
				}
			}
		}
	}
	return false
}
