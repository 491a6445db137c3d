package value

import (
	"bytes"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/varvelog/varve/localdev/dynamodb/wire"
)

// randomNumber has up to digits digits around an exponent up to exp.
func randomNumber(digits, exp int) string {
	var b strings.Builder
	if rand.IntN(2) == 0 {
		b.WriteByte('-')
	}
	for range 1 + rand.IntN(digits) {
		b.WriteByte('0' + byte(rand.IntN(10)))
	}
	text := b.String() + "E"
	if rand.IntN(2) == 0 {
		text += "-"
	}
	return text + big.NewInt(rand.Int64N(int64(exp)+1)).String()
}

// exact is the number as a fraction.
func exact(t *testing.T, text string) *big.Rat {
	t.Helper()
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		t.Fatal(text)
	}
	return r
}

// TestNumbersAgainstFractions: text, order, sum and key encoding agree with exact fractions.
func TestNumbersAgainstFractions(t *testing.T) {
	for range 20_000 / raceShare {
		a, b := randomNumber(38, 60), randomNumber(20, 20)
		if rand.IntN(4) == 0 {
			b = a
		}
		x, errX := ParseNumber(a)
		y, errY := ParseNumber(b)
		if errX != nil || errY != nil {
			t.Fatal(a, errX, b, errY)
		}
		if exact(t, x.String()).Cmp(exact(t, a)) != 0 {
			t.Fatalf("%s prints as %s", a, x)
		}
		want := exact(t, a).Cmp(exact(t, b))
		if got := sign(x.Compare(y)); got != want || (want == 0) != (x == y) {
			t.Fatalf("%s and %s: %d, want %d", a, b, got, want)
		}
		if got := strings.Compare(x.encode(), y.encode()); got != want {
			t.Fatalf("keys of %s and %s: %d, want %d", a, b, got, want)
		}
		sum, err := x.Add(y)
		exactSum := new(big.Rat).Add(exact(t, a), exact(t, b))
		if err == nil && exact(t, sum.String()).Cmp(exactSum) != 0 {
			t.Fatalf("%s + %s = %s, want %s", a, b, sum, exactSum)
		}
		if err == ErrNumberPrecision && fits(t, exactSum) {
			t.Fatalf("%s + %s refused, though %s fits", a, b, exactSum)
		}
		if err != nil && err != ErrNumberPrecision {
			t.Fatal(a, b, err)
		}
	}
}

func sign(i int) int {
	switch {
	case i < 0:
		return -1
	case i > 0:
		return 1
	}
	return 0
}

// fits reports whether a decimal fraction has at most 38 significant digits.
func fits(t *testing.T, r *big.Rat) bool {
	t.Helper()
	digits := strings.TrimLeft(strings.Trim(strings.Replace(r.FloatString(130), ".", "", 1), "-"), "0")
	return len(strings.TrimRight(digits, "0")) <= 38
}

// TestIntegerFastPath: sums of machine integers are those of the general way, also where they end.
func TestIntegerFastPath(t *testing.T) {
	for _, row := range [][3]string{
		{"999999999999999999", "1", "1000000000000000000"}, {"999999999999999999", "999999999999999999", "1999999999999999998"},
		{"-999999999999999999", "-999999999999999999", "-1999999999999999998"}, {"1000000000000000000", "1", "1000000000000000001"},
		{"5", "-5", "0"}, {"100", "-1", "99"}, {"0", "0", "0"}, {"1E17", "1", "100000000000000001"}, {"1E18", "-1", "999999999999999999"}, {"0.5", "0.5", "1"},
	} {
		a, _ := ParseNumber(row[0])
		b, _ := ParseNumber(row[1])
		if sum, err := a.Add(b); err != nil || sum.String() != row[2] {
			t.Errorf("%s + %s = %s, want %s (%v)", row[0], row[1], sum, row[2], err)
		}
	}
}

// TestEveryNumberKeyInOrder goes through the numbers at the ends and in the middle.
func TestEveryNumberKeyInOrder(t *testing.T) {
	nines := strings.Repeat("9", 38)
	ascending := []string{"-" + nines + "E88", "-1E125", "-2", "-1.5", "-1", "-0.99", "-1E-130", "0", "1E-130", "1.1E-130", "0.99", "1", "1.5", "2", "10", "1E125", nines + "E88"}
	var keys []string
	for _, text := range ascending {
		n, err := ParseNumber(text)
		if err != nil {
			t.Fatal(text, err)
		}
		keys = append(keys, n.encode())
	}
	if !slices.IsSorted(keys) || len(slices.Compact(slices.Clone(keys))) != len(keys) {
		t.Errorf("%q", keys)
	}
}

// FuzzJSON: what is read is written so that it reads back the same, and its JSON is one for equal values.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"S":"a\u0041\n\ud83d\ude00"}`, `{"N":"-12.50e3"}`, `{"B":"AAE="}`, `{"BOOL":true}`, `{"NULL":false}`, `{"SS":["b","a"]}`, `{"NS":["2","1"]}`, `{"BS":["AA=="]}`,
		`{"L":[{"M":{"a":{"L":[]}}}]}`, `{}`, `{"S":null,"N":"1"}`, `{"S":"a","N":"1"}`, `{"N":"1e99999"}`, `[`, `{"S":"\ud800"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := Read(wire.NewReader(data))
		if err != nil {
			return
		}
		text := AppendJSON(nil, v)
		again, err := Read(wire.NewReader(text))
		if err != nil || !Equal(v, again) || !bytes.Equal(AppendJSON(nil, again), text) {
			t.Fatalf("%s: %v, %v", text, again, err)
		}
		if Size(v) > 4*len(data)+3 {
			t.Fatalf("%s is %d bytes of JSON and counts %d", text, len(data), Size(v))
		}
	})
}
