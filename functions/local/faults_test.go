package local_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/varvelog/varve/functions/local"
	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/sdk"
)

// Each request to table and store that a read takes fails, once or for good: the answer is the right one, or says that it is to be asked again. It is never one of
// nothing where there is something.
func TestFetchFaults(t *testing.T) {
	for _, target := range []string{"/v1/topics/t/partitions/0/records?offset=3", "/v1/topics/t/records?from=0:3", "/v1/topics/t/offsets", "/v1/groups/g/offsets?topic=t",
		"/v1/topics/t/partitions/0/offsets?time=0", "/v1/topics/t"} {
		for _, times := range []int{1, 1000} {
			for n := 0; ; n += raceShare {
				reached := false
				synctest.Test(t, func(t *testing.T) {
					s := newSite(t)
					for i := range 20 {
						s.produce("t", 0, fmt.Sprint(i))
					}
					s.want(s.do("POST", "/v1/groups/g/offsets", `{"topic":"t","offsets":[{"partition":0,"offset":7}]}`, asJSON), 200, nil)
					right := s.do("GET", target, "")
					s.want(right, 200, nil)
					again := newServices(s)
					hit := s.world.FailAt(n, times, false)
					x := again.do("GET", target, "")
					if reached = hit(); x.status == 200 {
						if !same(x, right) {
							t.Errorf("request %d: %s, should be %s", n, x.answered, right.answered)
						}
					} else if e := again.fails(x, 503, wire.Unavailable); !e.Retriable {
						t.Error(e)
					}
				})
				if !reached {
					break
				}
			}
		}
	}
}

// same tells whether the answer is the right one, or the beginning of it with where to go on.
func same(x, right *exchange) bool {
	type fetched struct {
		Records []json.RawMessage
		Next    int64 `json:"next_offset"`
	}
	var got, want fetched
	switch {
	case bytes.Equal(x.answered, right.answered):
		return true
	case strings.Contains(x.target, "/records?from="):
		return len(x.answered) > 0 && bytes.HasPrefix(right.answered, x.answered)
	case json.Unmarshal(x.answered, &got) != nil || json.Unmarshal(right.answered, &want) != nil:
		return false
	}
	n := len(got.Records)
	return n > 0 && n <= len(want.Records) && got.Next == int64(3+n) && bytes.Equal(got.Records[n-1], want.Records[n-1])
}

// newServices are those of a process that knows nothing yet, on the same log.
func newServices(s *site) *site {
	again := &site{t: s.t, world: s.world, log: s.world.Open()}
	again.serve(local.Options{})
	return again
}

// Each request that a commit takes fails, or is applied and not heard of: the offsets of a lane are committed all or none, and the same request again commits them.
func TestCommitFaults(t *testing.T) {
	const body = `{"topic":"w","offsets":[{"partition":0,"offset":1},{"partition":1,"offset":2,"expected":null},{"partition":2,"offset":3,"metadata":"m"}]}`
	for _, applied := range []bool{false, true} {
		for n := 0; ; n++ {
			reached := false
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				s.world.Create(s.log, sdk.NewTopic{Name: "w", Partitions: 3, LaneWidth: 2})
				for p := range 3 {
					s.produce("w", p, "a", "b", "c")
				}
				hit := s.world.FailAt(n, 1, applied)
				x := s.do("POST", "/v1/groups/g/offsets", body, asJSON)
				if reached = hit(); x.status != 200 && x.status != 503 && x.status != 409 {
					t.Errorf("request %d: %d: %s", n, x.status, x.answered)
				}
				if x.status != 200 {
					s.want(s.do("POST", "/v1/groups/g/offsets", body, asJSON), 200, nil)
				}
				var g wire.GroupOffsets
				s.want(s.do("GET", "/v1/groups/g/offsets?topic=w", ""), 200, &g)
				if len(g.Offsets) != 3 || g.Offsets[0].Offset != 1 || g.Offsets[1].Offset != 2 || g.Offsets[2].Offset != 3 || g.Offsets[2].Metadata != "m" {
					t.Errorf("request %d: %+v", n, g)
				}
			})
			if !reached {
				break
			}
		}
	}
}
