package schedule_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/schedule"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/logtest"
	"github.com/varvelog/varve/sdk"
)

// The jobs of a log within the minute that each has: all is archived, the keys are compacted, what was replaced goes.
func TestJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := logtest.New(t)
		log := w.Open()
		defer log.Close()
		w.Create(log, sdk.NewTopic{Name: "t", Partitions: 1, Config: map[string]string{"cleanup.policy": "compact"}})
		p, err := log.NewProducer()
		w.Must(err)
		for i := range 20 {
			w.Must(p.ProduceSync(t.Context(), &sdk.Record{Topic: "t", Key: []byte("k"), Value: fmt.Append(nil, i)}).Err())
		}
		w.Must(p.Close(t.Context()))
		did := map[string]bool{}
		run := func(job schedule.Job) {
			start := time.Now()
			for _, e := range job(t.Context(), log.Backend(), env.System(), time.Minute) {
				if e.Err != nil || e.Error != "" {
					t.Errorf("%s: %v", e.Job, e.Err)
				}
				did[e.Job] = did[e.Job] || e.Did
			}
			if took := time.Since(start); took > time.Minute {
				t.Errorf("it took %v", took)
			}
		}
		for range 4 {
			time.Sleep(15 * time.Hour)
			for _, job := range []schedule.Job{schedule.Compact, schedule.Retain, schedule.Sweep} {
				run(job)
			}
		}
		for _, job := range []string{"compact", "clean", "sweep"} {
			if !did[job] {
				t.Errorf("%s did nothing in 60 hours", job)
			}
		}
		if got := w.Values(log, "t"); fmt.Sprint(got) != "[[19]]" {
			t.Errorf("left are %v", got)
		}
	})
}
