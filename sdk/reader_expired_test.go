package sdk_test

import (
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// hourly is a log kept for 7 days, of a record every hour from the beginning of virtual time on, where nobody moves log starts, but the rules of classes delete: it
// is now age hours after the first.
func hourly(t *testing.T, records, age int) *bench {
	b := newBench(t)
	b.create("t", 1, 64)
	for i := range records {
		b.write("t", one(0, numbers(i, 1)))
		time.Sleep(time.Hour)
	}
	time.Sleep(time.Duration(age-records) * time.Hour)
	b.rules()
	return b
}

// rules deletes what the rules of classes may have deleted by now.
func (b *bench) rules() (deleted int) {
	b.t.Helper()
	page, err := b.raw.List(b.ctx, "r7d/", "", 0)
	check(b.t, err)
	for _, o := range page.Objects {
		name, err := segment.ParseName(o.Name)
		check(b.t, err)
		if !time.Now().Before(metadata.RuleDue(name.ID.Time(), name.ID.Class())) {
			check(b.t, b.raw.Delete(b.ctx, o.Name))
			deleted++
		}
	}
	return deleted
}

// What a rule has deleted before the log start had moved is expired, with the valid range, and not damage. The first extent that has not expired is where that
// begins, though later ones, which have, may still be there.
func TestBR17_ARuleIsFasterThanTheLogStart(t *testing.T) {
	const records, age = 100, 9*24 + 9 // the first 57 have expired, the one of an age of exactly 7 days has not; the first 25 were deleted
	const start = 57
	for _, c := range []struct {
		policy sdk.ResetPolicy
		want   []int64
	}{{sdk.ResetEarliest, []int64{start, records}}, {sdk.ResetLatest, nil}, {sdk.ResetFail, nil}} {
		synctest.Test(t, func(t *testing.T) {
			b := hourly(t, records, age)
			r := b.reader("t", sdk.From(sdk.AtOffset(3)), sdk.OnExpired(c.policy), sdk.WithWait(time.Second))
			var got []int64
			for {
				fetches, err := r.Poll(t.Context())
				var outside *sdk.RangeError
				if c.policy == sdk.ResetFail && errors.As(err, &outside) {
					if *outside != (sdk.RangeError{Topic: "t", Offset: 3, Start: start, End: records, Err: sdk.ErrExpired}) {
						t.Errorf("%+v", outside)
					}
					break
				}
				check(t, err)
				if len(fetches) == 0 {
					break
				}
				for _, f := range fetches {
					for _, r := range f.Records {
						got = append(got, r.Offset)
					}
				}
			}
			if c.want != nil && (len(got) == 0 || span(t, got) != [2]int64{c.want[0], c.want[1] - 1}) {
				t.Errorf("policy %d: read %v", c.policy, got)
			}
			position := map[sdk.ResetPolicy]int64{sdk.ResetEarliest: start, sdk.ResetLatest: records, sdk.ResetFail: 3}[c.policy]
			if want := []sdk.ResetEvent{{Topic: "t", From: 3, To: start, Position: position}}; !reflect.DeepEqual(b.counts.resets, want) {
				t.Errorf("policy %d: reported %+v, want %+v", c.policy, b.counts.resets, want)
			}
		})
	}
}

// A reader in the middle of what has expired reads on while the objects are there.
func TestExpiredIsReadWhileItIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := hourly(t, 100, 9*24+9)
		r := b.reader("t", sdk.From(sdk.AtOffset(30)), sdk.To(sdk.Latest))
		if got := len(b.values(r)[0]); got == 0 {
			t.Error("nothing")
		}
	})
}

func TestAllOfItHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := hourly(t, 20, 30*24)
		r := b.reader("t", sdk.OnExpired(sdk.ResetEarliest), sdk.WithWait(time.Second))
		if fetches, err := r.Poll(t.Context()); err != nil || len(fetches) != 0 {
			t.Errorf("%v, %v", fetches, err)
		}
		b.write("t", one(0, numbers(20, 1)))
		if got, err := firstOffset(t, r); got != 20 || err != nil {
			t.Errorf("%d, %v", got, err)
		}
		if want := []sdk.ResetEvent{{Topic: "t", To: 20, Position: 20}}; !reflect.DeepEqual(b.counts.resets, want) {
			t.Errorf("reported %+v", b.counts.resets)
		}
	})
}

// An object that is missing before its time is damage, whatever has expired before it; and so is one of a topic whose retention is longer by now and holds.
func TestMissingBeforeItsTimeIsDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := hourly(t, 100, 9*24+9)
		page, err := b.raw.List(b.ctx, "r7d/", "", 0)
		check(t, err)
		check(t, b.raw.Delete(b.ctx, page.Objects[len(page.Objects)-40].Name)) // record 60, of an age of 165 hours
		r := b.reader("t", sdk.From(sdk.AtOffset(60)), sdk.OnExpired(sdk.ResetEarliest))
		var damage *sdk.DataError
		if _, err := firstOffset(t, r); !errors.As(err, &damage) || damage.From != 60 || errors.Is(err, sdk.ErrExpired) {
			t.Errorf("%v", err)
		}
	})
}

func TestTimeLookupPassesWhatHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := hourly(t, 100, 9*24+9)
		if got, err := b.log.Admin().OffsetForTime(b.ctx, "t", 0, time.UnixMilli(0)); err != nil || got != 57 {
			t.Errorf("%d, %v", got, err)
		}
	})
}
