package main

import (
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/env"
)

// Each mutant still has its passage in the code, once, and what it makes of it is Go.
func TestMutantsApply(t *testing.T) {
	t.Chdir("../..")
	seen := map[string]bool{}
	for _, m := range table {
		if seen[m.name] || m.rule == "" {
			t.Errorf("%q is there twice, or says no rule", m.name)
		}
		seen[m.name] = true
		before, err := os.ReadFile(m.file)
		if err != nil {
			t.Error(err)
			continue
		}
		after, err := m.change(before)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), m.file, after, parser.SkipObjectResolution); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
	if len(table) < 25 {
		t.Errorf("%d mutants", len(table))
	}
}

// A mutant that its judge does not notice is reported, one that it does, and one that is no Go.
func TestVerdicts(t *testing.T) {
	t.Chdir("../..")
	harmless := mutant{name: "m", rule: "none", file: "internal/price/price.go", old: "package price", new: "package  price",
		judge: judge{pkg: "./internal/price", test: "."}}
	broken := harmless
	broken.new = "package price {"
	stale := harmless
	stale.old = "package nothing"
	for _, c := range []struct {
		m    mutant
		want outcome
		says string
	}{{harmless, survived, "PASS"}, {broken, unbuilt, "syntax error"}, {stale, unbuilt, "the code has changed"}} {
		if v := c.m.try(t.Context(), env.System()); v.outcome != c.want || !strings.Contains(v.output, c.says) {
			t.Errorf("%v: %s", v, v.output)
		}
	}
}
