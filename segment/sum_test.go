package segment

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func sumOf(records []Record) (sum Sum) {
	var s Summer
	for i := range records {
		sum = sum.Plus(s.Sum(&records[i]))
	}
	return sum
}

// someBytes are few enough values for equal ones to come, null and empty among them.
var someBytes = rapid.SampledFrom([][]byte{nil, {}, {0}, {1}, []byte("a"), []byte("ab"), []byte("b")})

func drawFew(t *rapid.T) (records []Record) {
	offset := rapid.SampledFrom([]int64{0, 1, 1000, 1 << 44, maxOffset - 1000}).Draw(t, "base")
	for range rapid.IntRange(0, 12).Draw(t, "records") {
		r := Record{Offset: offset, Timestamp: rapid.Int64Range(0, 2).Draw(t, "time"), Key: someBytes.Draw(t, "key"), Value: someBytes.Draw(t, "value")}
		for range rapid.IntRange(0, 2).Draw(t, "headers") {
			r.Headers = append(r.Headers, Header{Key: string(someBytes.Draw(t, "name")), Value: someBytes.Draw(t, "header")})
		}
		records = append(records, r)
		offset += rapid.Int64Range(1, 3).Draw(t, "gap")
	}
	return records
}

// Sums add up over any parts, put together in any order; what any removal takes out and what it leaves is all that there was; and higher offsets are a shift.
func TestSumsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := drawFew(t)
		all := sumOf(records)
		var parts []Sum
		for rest := records; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "part")
			parts, rest = append(parts, sumOf(rest[:n])), rest[n:]
		}
		rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0)).Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		var merged Sum
		for _, p := range parts {
			merged = merged.Plus(p)
		}
		var kept, gone []Record
		for _, r := range records {
			if rapid.Bool().Draw(t, "keep") {
				kept = append(kept, r)
			} else {
				gone = append(gone, r)
			}
		}
		by := rapid.Int64Range(0, 1<<45).Draw(t, "shift")
		shifted := slices.Clone(records)
		for i := range shifted {
			shifted[i].Offset += by
		}
		if merged != all || sumOf(kept).Plus(sumOf(gone)) != all || all.Minus(sumOf(gone)) != sumOf(kept) || sumOf(shifted) != all.Shifted(by) {
			t.Fatalf("%v: merged %v, kept %v, gone %v, shifted by %d %v", all, merged, sumOf(kept), sumOf(gone), by, sumOf(shifted))
		}
	})
}

// Two lists of records have the same sum only if they are the same list.
func TestSumsTellApart(t *testing.T) {
	seen := map[Sum]string{}
	rapid.Check(t, func(t *rapid.T) {
		records := drawFew(t)
		text := fmt.Sprintf("%#v", records)
		sum := sumOf(records)
		if other, ok := seen[sum]; ok && other != text {
			t.Fatalf("%v is the sum of\n%s and of\n%s", sum, text, other)
		}
		seen[sum] = text
	})
}

// Every change of a record, and every two that change places, show.
func TestSumsTellOfEveryChange(t *testing.T) {
	record := func() Record {
		return Record{Offset: 7, Timestamp: 5, Key: []byte("k"), Value: []byte("value"), Headers: []Header{{"a", []byte("1")}, {"b", nil}}}
	}
	other := Record{Offset: 9, Timestamp: 5, Value: []byte("other")}
	was := sumOf([]Record{record(), other})
	for name, change := range map[string]func(r *Record){
		"offset":            func(r *Record) { r.Offset++ },
		"timestamp":         func(r *Record) { r.Timestamp++ },
		"key null":          func(r *Record) { r.Key = nil },
		"key empty":         func(r *Record) { r.Key = []byte{} },
		"value null":        func(r *Record) { r.Value = nil },
		"value empty":       func(r *Record) { r.Value = []byte{} },
		"byte moved":        func(r *Record) { r.Key, r.Value = []byte("kv"), []byte("alue") },
		"byte changed":      func(r *Record) { r.Value[0] ^= 1 },
		"header lost":       func(r *Record) { r.Headers = r.Headers[:1] },
		"headers exchanged": func(r *Record) { slices.Reverse(r.Headers) },
		"header empty":      func(r *Record) { r.Headers[1].Value = []byte{} },
		"header renamed":    func(r *Record) { r.Headers[0] = Header{"a1", []byte{}} },
	} {
		r := record()
		change(&r)
		if got := sumOf([]Record{r, other}); got == was || got.Plain == was.Plain != (name == "offset") {
			t.Errorf("%s: %v, was %v", name, got, was)
		}
	}
	a, b := record(), other
	a.Offset, b.Offset = b.Offset, a.Offset
	if got := sumOf([]Record{a, b}); got.Plain != was.Plain || got.Weighted == was.Weighted {
		t.Errorf("exchanged: %v, was %v", got, was)
	}
}

// Sums are kept in tables, objects and files: they stay what they are.
func TestSumIsForEver(t *testing.T) {
	for want, records := range map[string][]Record{
		"0-0000000000000000-0000000000000000": nil,
		"1-6992ce3f48c82aaa-0000000000000000": {{}},
		"1-54e28bd0017f29a2-fea7a370047d7ce6": {{Offset: 3, Timestamp: -1, Key: []byte{}, Value: []byte("v"), Headers: []Header{{"h", []byte("x")}, {"", nil}}}},
		"2-122be13e00a9efd0-bac4f43cb88bb4f6": {{Offset: 1}, {Offset: 2, Key: []byte("k"), Value: make([]byte, 1000)}},
	} {
		if got := sumOf(records).String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestParseSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Sum{rapid.Int64Min(0).Draw(t, "n"), rapid.Uint64().Draw(t, "plain"), rapid.Uint64().Draw(t, "weighted")}
		if got, err := ParseSum(s.String()); got != s || err != nil {
			t.Fatal(got, err)
		}
	})
	for _, text := range []string{"", "1", "1-2-3", "-1-0000000000000000-0000000000000000", "01-0000000000000000-0000000000000000", "1-0000000000000000-000000000000000g", "1-0000000000000000-0000000000000000 ",
		"1-000000000000000A-0000000000000000", "9223372036854775808-0000000000000000-0000000000000000"} {
		if s, err := ParseSum(text); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%q: %v, %v", text, s, err)
		}
	}
}

func BenchmarkSum(b *testing.B) {
	for _, size := range benchSizes[:2] {
		b.Run(size.name, func(b *testing.B) {
			records := benchRecords(size.payload, size.batch)
			b.SetBytes(int64(len(records) * size.payload))
			for b.Loop() {
				sumOf(records)
			}
		})
	}
}
