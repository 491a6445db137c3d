package repair_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/functions/sweep"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store/fault"
)

func (w *world) sweep() error {
	_, err := sweep.Run(context.Background(), w.shortcut(), w.objects, sweep.Options{Env: w.env})
	return err
}

// A sweep that nobody has kept from a table that was put back deletes none of what the repair is to bring back: before it, and when it was cut off.
func TestSweepBeforeTheRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("t", 2, 2)
		a := w.writer()
		a.minutes("t", 15)
		check(t, w.sweep())
		o, old := w.copied()
		a.minutes("t", 12)
		w.putBack(old)
		a.minutes("t", 10) // they do not know
		time.Sleep(70 * minute)
		var much *sweep.TooMuchError
		if err := w.sweep(); !errors.As(err, &much) || much.InARow < 12 {
			t.Fatalf("before the repair: %v", err)
		}
		begun := false
		w.onStore = func(c fault.Call) fault.Fault {
			begun = begun || c.Op == "put" && strings.HasPrefix(c.Name, segment.EraPrefix)
			return fault.Fault{}
		}
		w.onTable = func(dynamodb.Call) dynamodb.Fault {
			if begun {
				return dynamodb.Dropped()
			}
			return dynamodb.Fault{}
		}
		if _, err := w.repair(o); err == nil {
			t.Fatal("the repair was to be cut off")
		}
		w.onTable, w.onStore = nil, nil
		var unrepaired *sweep.UnrepairedError
		if err := w.sweep(); !errors.As(err, &unrepaired) {
			t.Fatalf("when the repair was cut off: %v", err)
		}
		w.mustRepair(o)
		check(t, w.sweep())
		kept, moved := w.sound("t")
		t.Logf("%d records at their offsets, %d offsets rewritten", kept, moved)
		time.Sleep(30 * time.Hour)
		check(t, w.sweep())
		w.sound("t")
		w.whole()
	})
}
