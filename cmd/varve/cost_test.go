package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// example is a command in a document and what it is said to print: all of it, or the last line.
var example = regexp.MustCompile(`(?m)^\$ varve (cost[^|\n]*?)( \| tail -n 1)?\n((?:(?:[^$\x60]|\$\d).*\n|\n)*)`)

// The documents' commands print what the documents say.
func TestCostsInDocuments(t *testing.T) {
	for _, name := range []string{"cost.md", "choosing.md"} {
		path := filepath.Join("..", "..", "docs", name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		examples := example.FindAllSubmatchIndex(text, -1)
		if len(examples) < 3 {
			t.Errorf("%s has %d examples", name, len(examples))
		}
		var out []byte
		var dollars []string
		at := 0
		for _, m := range examples {
			got := must(t, "mem://", "", strings.Fields(string(text[m[2]:m[3]]))...)
			if m[4] >= 0 {
				got = got[strings.LastIndexByte(strings.TrimSuffix(got, "\n"), '\n')+1:]
			}
			dollars = append(dollars, strings.Fields(got)[0])
			out, at = append(append(out, text[at:m[6]]...), got...), m[7]
			if said := string(text[m[6]:m[7]]); said != got && !*update {
				t.Errorf("%s: varve %s prints\n%snot\n%s", name, text[m[2]:m[3]], got, said)
			}
		}
		if row := regexp.MustCompile(`(?m)^\| \*\*varve\*\*.*$`).FindString(string(text)); row != "" {
			for _, d := range dollars[:4] {
				month, _ := strconv.ParseFloat(d[1:], 64)
				if n := fmt.Sprintf("%.0f", month); !strings.Contains(strings.ReplaceAll(row, ",", ""), "| "+n+" |") {
					t.Errorf("%s: $%s a month is not in the table: %s", name, n, row)
				}
			}
		}
		if out = append(out, text[at:]...); *update {
			if err := os.WriteFile(path, out, 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// docs/cost.md works out an example by the formulas; its figures are those of --json.
func TestCostWorkedExample(t *testing.T) {
	var e struct{ Flow map[string]float64 }
	if err := json.Unmarshal([]byte(must(t, "mem://", "", "cost", "--rate", "1MiB", "--partitions", "64", "--producers", "8", "--json")), &e); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "cost.md"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, m := range regexp.MustCompile("(?m)^\\|.*`([a-zA-Z]+)`.*\\| ([0-9.]+) \\|$").FindAllStringSubmatch(string(text), -1) {
		_, decimals, _ := strings.Cut(m[2], ".")
		if got := strconv.FormatFloat(e.Flow[m[1]], 'f', len(decimals), 64); got != m[2] {
			t.Errorf("%s is %s, docs/cost.md says %s", m[1], got, m[2])
		}
		seen++
	}
	if seen < 8 {
		t.Errorf("%d figures found", seen)
	}
}

func TestCostUsage(t *testing.T) {
	for args, want := range map[string]string{
		"--rate 0":                          "--rate 0B is not above 0, at most 1 TiB/s",
		"--rate 1MB":                        "such as 100, 64KiB or 8MiB",
		"--partitions 0":                    "--partitions 0 is not 1 to 3136",
		"--linger 1ms":                      "--linger 1ms is not at least the floor, 5ms",
		"--retention 7x":                    "such as 10m, 36h or 7d",
		"--compact-every 1s":                "--compact-every 1s is not 0 (never), or 1m to 31 days",
		"--request-size 1KiB --producers 3": "--producers has no meaning with --request-size",
		"--request-size 100":                "--request-size 100B is not 0 (the SDK produces) or one record",
		"now":                               "takes no arguments",
		"--compression 7":                   "--compression 7 is not 0.01 to 1.2",
	} {
		out, errs, code := varve(t, "mem://", "", append([]string{"cost"}, strings.Fields(args)...)...)
		if code != exitUsage || !strings.Contains(errs, want) || out != "" {
			t.Errorf("varve cost %s: exit %d: %s%s, want %q", args, code, out, errs, want)
		}
	}
}

// Every input is printed so that it can be given again.
func TestCostPrintsItsInputs(t *testing.T) {
	first := must(t, "mem://", "", "cost", "--rate", "3MiB", "--group", "--age", "36h", "--retain-every", "90m", "--sweep-every", "0")
	var args []string
	for _, line := range strings.Split(first, "\n") {
		if strings.HasPrefix(line, "prices") {
			break
		}
		args = append(args, strings.Fields(strings.TrimPrefix(line, "inputs"))...)
	}
	if again := must(t, "mem://", "", append([]string{"cost"}, args[:min(4, len(args))]...)...); again == first {
		t.Error("inputs change nothing")
	}
	again := must(t, "mem://", "", append([]string{"cost"}, withoutFunction(args)...)...)
	if again != first {
		t.Errorf("with the inputs %v printed\n%snot\n%s", args, again, first)
	}
	if !strings.Contains(first, fmt.Sprintf("--age=%s", "36h")) {
		t.Errorf("age is missing: %s", first)
	}
}

// withoutFunction leaves out what has no meaning where no functions produce.
func withoutFunction(args []string) (left []string) {
	for _, a := range args {
		if !strings.HasPrefix(a, "--request-size") {
			left = append(left, a)
		}
	}
	return left
}
