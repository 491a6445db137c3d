package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// tiny is a run that takes no time. What it measures is not looked at.
var tiny = []string{"--record-size", "500B", "--segment-bytes", "64KiB", "--bytes", "256KiB", "--partitions", "2", "--turns", "1"}

func TestBench(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"bench", "produce"}, []string{"produce on mem://\nrecords of 500B in segments of 64KiB, 2 partitions", "raw, 1 stream ", "raw, 4 streams", "raw, 16 streams", "\nvarve ", "of the raw limit", "of one processor", "list prices of 2026-11"}},
		{[]string{"bench", "read", "--recycle", "--compression", "zstd", "--payload", "text"}, []string{"read on mem://\nrecords of 500B", "compression zstd, text payload", "raw, 16 streams", "of the raw limit"}},
		{[]string{"bench", "replay", "--recycle"}, []string{"replay on mem://\nrecords of 500B", "raw, 16 streams", "raw and checksum, 4 streams", "\nvarve ", "of the raw limit"}},
		{[]string{"bench", "e2e", "--rate", "500", "--idle", "1ms"}, []string{"\nfull load ", "\n500 records/s ", "\nafter 1ms idle ", "RATIO_P50", "list prices of 2026-11"}},
	} {
		out := must(t, "mem://", "", append(c.args, tiny...)...)
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%q: %q is not in\n%s", c.args, want, out)
			}
		}
	}
}

func TestBenchJSON(t *testing.T) {
	for _, name := range []string{"produce", "read", "replay", "e2e"} {
		args := append([]string{"bench", name, "--json"}, tiny...)
		if name == "e2e" {
			args = append(args, "--rate", "500", "--idle", "1ms")
		}
		var got struct {
			Bench      string
			RecordSize int    `json:"record_size"`
			PriceDate  string `json:"price_date"`
			Ratio      map[string]float64
			Raw        []map[string]any
			Varve      map[string]any
			Scenes     []map[string]any
		}
		if err := json.Unmarshal([]byte(must(t, "mem://", "", args...)), &got); err != nil {
			t.Fatal(err)
		}
		if got.Bench != name || got.RecordSize != 500 || got.PriceDate == "" || len(got.Raw)+len(got.Scenes) != 3 {
			t.Errorf("%s: %+v", name, got)
		}
		if name != "e2e" && (got.Ratio["best"] <= 0 || got.Varve["dollars_per_gib"] == nil || got.Varve["records_per_second"] == nil) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A run on a directory leaves no object behind, and somebody who watches sees how far it is.
func TestBenchProgress(t *testing.T) {
	url := newURL(t)
	must(t, url, "", "topic", "create", "t")
	shown := onTerminal(t, url, "", time.Millisecond, false, append([]string{"bench", "produce"}, tiny...)...)
	for _, want := range []string{"warming up: varve", "turn 1 of 1: raw 16 streams, ", " MiB/s", "cleaning up"} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not in %q", want, shown)
		}
	}
	if left := strings.TrimSpace(screen(shown)); left != "" {
		t.Errorf("on the screen is left %q", left)
	}
	if topics := must(t, url, "", "topic", "list"); strings.Contains(topics, "bench") {
		t.Error(topics)
	}
}

func TestBenchRefusals(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"produce --record-size 31", "--record-size 31B is not 32B to 1MiB"},
		{"produce --record-size 2MiB", "--record-size 2MiB is not 32B to 1MiB"},
		{"produce --record-size lots", "want a number of bytes, such as 100, 64KiB or 8MiB"},
		{"produce --record-size -5", "want a number of bytes"},
		{"produce --segment-bytes 1KiB", "--segment-bytes 1KiB is not 64KiB to 256MiB"},
		{"produce --partitions 0", "--partitions 0 is not 1 or more"},
		{"produce --partitions 5000", "1 to 3136"},
		{"produce --compression zip", `--compression "zip" is not gzip, lz4, none, snappy or zstd`},
		{"produce --payload zeros", `--payload "zeros" is not random or text`},
		{"produce --bytes 100", "--bytes 100B is not even one record (--record-size 1KiB)"},
		{"produce --duration 0s", "--duration 0s is not more than 0"},
		{"produce --turns 0", "--turns 0 is not 1 or more"},
		{"produce --recycle", "unknown flag: --recycle"},
		{"read --cold", "--cold is for a log in a directory (file://), and --log is mem://"},
		{"e2e --rate 0", "--rate 0 is not more than 0"},
		{"e2e --rate NaN", "--rate NaN is not more than 0"},
		{"e2e --idle -1s", "--idle -1s is not 0 or more"},
		{"read flights", "takes no arguments, 1 given"},
		{"", "'varve bench' needs a command"},
	} {
		_, errs, code := varve(t, "mem://", "", append([]string{"bench"}, strings.Fields(c.args)...)...)
		if code != exitUsage || !strings.Contains(errs, c.want) {
			t.Errorf("bench %s: exit %d, want %q in\n%s", c.args, code, c.want, errs)
		}
	}
	_, errs, code := varve(t, newURL(t), "", "bench", "produce")
	if code != exitFailed || !strings.Contains(errs, "Is --log the log you mean?") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestByteSize(t *testing.T) {
	for s, want := range map[string]string{"0": "0B", "100": "100B", "100B": "100B", "1024": "1KiB", "1025B": "1025B", "8MiB": "8MiB", "3072MiB": "3GiB"} {
		var b byteSize
		if err := b.Set(s); err != nil || b.String() != want {
			t.Errorf("%s: %s, %v", s, b, err)
		}
		var again byteSize
		if err := again.Set(b.String()); err != nil || again != b {
			t.Errorf("%s: %d is not %d, %v", b, again, b, err)
		}
	}
	for _, s := range []string{"", "B", "KiB", "-1", "1.5MiB", "1 MiB", "8mb", "99999999999GiB"} {
		var b byteSize
		if b.Set(s) == nil {
			t.Errorf("%q is taken for %s", s, b)
		}
	}
}
