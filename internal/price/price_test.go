package price

import (
	"math"
	"testing"
)

func TestDollars(t *testing.T) {
	u := Usage{Puts: 1000, Gets: 1000, ReadUnits: 1e6, WriteUnits: 1e6}
	if want := 0.005 + 0.0004 + 0.125 + 0.625; math.Abs(u.Dollars()-want) > 1e-12 {
		t.Errorf("%v costs %v, want %v", u, u.Dollars(), want)
	}
}
