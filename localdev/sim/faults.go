package sim

import (
	"context"
	"math"
	"time"

	engine "github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
)

// Faults is the fault table: what goes wrong, and how often. The zero table is a world without trouble.
type Faults struct {
	Table, Put, Get Odds
	Stale           time.Duration // eventual reads are up to this old
	Outage          time.Duration // for up to this long, beginning in the first seconds, no chunk can be written
	CutOff          int           // one request in so many is the first of 5 to 30 s in which the process has no network; 0: none is
	Kill            int           // one seam in so many is where the process dies; a seam is before and after each request, and each pause point
	KillSpilling    int           // the same at the pause points of spilling
	FreezeArchive   int           // one pause point before or after a publication, or before a deletion, in so many freezes the process for two to three hours (before a publication half of the time for less than one), and of those before a commit one in ten times as many
	Freeze          int           // one seam in so many freezes the process, for 10 s to 2 min or, seldom, beyond what a segment may age
}

// Odds is, of a hundred requests, how many meet what. The rest pass.
type Odds struct {
	Lost        int // not applied, no answer
	AnswerLost  int // applied, no answer
	Late        int // no answer, and applied after up to lateMost
	Throttled   int
	Error       int // 500, not applied
	ErrorThough int // 500, though applied
	Slow        int // applied, after up to slowMost
	Short       int // the body breaks off
}

// Trouble is the usual fault table: a fifth of all requests go wrong. A reader that has a fifth of its reads fail for good falls behind and never sees
// the end of the log, so of its reads fewer do.
func Trouble() Faults {
	return Faults{
		Table: Odds{Lost: 4, AnswerLost: 4, Late: 4, Throttled: 4, Error: 2, ErrorThough: 2},
		Put:   Odds{Lost: 5, AnswerLost: 5, Late: 5, Throttled: 5},
		Get:   Odds{Lost: 2, Throttled: 1, Short: 1, Slow: 1},
		Stale: 6 * time.Second, Outage: 8 * time.Second, CutOff: 300, Kill: 600, KillSpilling: 50, Freeze: 1000,
	}
}

const (
	lateMost = 40 * time.Second
	slowMost = 2 * time.Second // less than a deadline of either service
	skewMost = 10 * time.Minute
)

// mishap is what one request meets.
type mishap int

const (
	nothing mishap = iota
	lost
	answerLost
	late
	throttled
	failed
	failedThough
	slow
	short
)

var mishaps = [...]string{"", "lost", "answer lost", "late", "throttled", "500", "500 though applied", "slow", "short"}

// after is its name, with the time that it takes where it takes some.
func (m mishap) after(wait time.Duration) string {
	if m == late || m == slow {
		return mishaps[m] + " by " + wait.String()
	}
	return mishaps[m]
}

func (o Odds) pick(c Chance) mishap {
	n := c.Below(100)
	for m, share := range [...]int{lost: o.Lost, answerLost: o.AnswerLost, late: o.Late, throttled: o.Throttled, failed: o.Error,
		failedThough: o.ErrorThough, slow: o.Slow, short: o.Short} {
		if n < share {
			return mishap(m)
		}
		n -= share
	}
	return nothing
}

// atTable is the mishap as it befalls a call of the table. What takes time waits for arrives.
func (m mishap) atTable(c Chance, arrives func(context.Context)) engine.Fault {
	answer := engine.ErrNoAnswer
	if c.OneIn(2) {
		answer = engine.ErrConnectionLost
	}
	switch m {
	case lost:
		return engine.Fault{Skip: true, Reply: answer}
	case answerLost:
		return engine.Fault{Reply: answer}
	case late:
		return engine.Fault{Reply: answer, Late: arrives}
	case throttled:
		return engine.Throttle()
	case failed:
		return engine.ServerError()
	case failedThough:
		return engine.Fault{Reply: engine.InternalServerError()}
	case slow:
		return engine.Fault{Hold: arrives}
	}
	return engine.Fault{}
}

// atStore is the mishap as it befalls a call of the store. What is late is so until somebody says when it arrives.
func (m mishap) atStore(wait time.Duration) fault.Fault {
	switch m {
	case lost, failed:
		return fault.Fault{Kind: fault.LostBefore}
	case answerLost, failedThough:
		return fault.Fault{Kind: fault.LostAfter}
	case late:
		return fault.Fault{Kind: fault.Late}
	case throttled:
		return fault.Fault{Kind: fault.Throttled}
	case short:
		return fault.Fault{Kind: fault.Short}
	case slow:
		return fault.Fault{Delay: wait}
	}
	return fault.Fault{}
}

// wait is how long the mishap takes: what is late is mostly so by little, sometimes by much.
func (m mishap) wait(c Chance) time.Duration {
	if m == slow {
		return c.Within(100*time.Millisecond, slowMost)
	}
	const least = 10 * time.Millisecond
	return time.Duration(float64(least) * math.Pow(float64(lateMost/least), c.Float64()))
}

// odds is the column of the table for an operation of the store.
func (f Faults) odds(op store.Op) Odds {
	switch op {
	case store.OpPut, fault.OpComplete, store.OpDelete:
		return f.Put
	}
	return f.Get
}
