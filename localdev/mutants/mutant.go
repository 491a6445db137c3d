package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/varvelog/varve/internal/env"
)

// mutant is a change to the code that breaks a rule.
type mutant struct {
	name  string
	rule  string // what is true no more
	file  string // from the module's root
	old   string // a passage that the file has once
	new   string // what stands in its place
	judge judge
}

// judge is tests of a package, one of which has to fail.
type judge struct {
	pkg, test string
	seeds     int // of a simulation, at most; 0: it has none
}

func (j judge) String() string { return j.pkg + " " + strings.TrimSuffix(j.test, "$") }

// patience bounds the judging of one mutant, the build included.
const patience = 20 * time.Minute

// outcome of a trial.
type outcome int

const (
	survived outcome = iota
	caught
	unbuilt
)

// verdict is what became of a mutant.
type verdict struct {
	mutant  mutant
	outcome outcome
	seed    int // that caught it, the first being 1; 0: none did, or the judge has none
	took    time.Duration
	output  string // of the judge, or why it could not be asked
}

func (v verdict) caught() bool { return v.outcome == caught }

func (v verdict) String() string {
	return [...]string{"SURVIVED", "caught", "CANNOT BE BUILT"}[v.outcome]
}

// try builds the mutant and asks its judge.
func (m mutant) try(ctx context.Context, e env.Env) verdict {
	ctx, cancel := e.WithTimeout(ctx, patience)
	defer cancel()
	v, start := verdict{mutant: m, outcome: unbuilt}, e.Mono()
	dir, err := os.MkdirTemp("", "mutant")
	if err == nil {
		defer os.RemoveAll(dir)
		err = m.judged(ctx, dir, &v)
	}
	if err != nil {
		v.output = err.Error()
	}
	v.took = e.Mono() - start
	return v
}

func (m mutant) judged(ctx context.Context, dir string, v *verdict) error {
	overlay, err := m.overlay(dir)
	if err != nil {
		return err
	}
	test := filepath.Join(dir, "judge.test")
	if out, err := command(ctx, ".", "go", "test", "-c", "-overlay", overlay, "-o", test, m.judge.pkg); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	args := []string{"-test.run", m.judge.test, "-test.timeout", patience.String()}
	if m.judge.seeds > 0 {
		args = append(args, "-seeds", strconv.Itoa(m.judge.seeds))
	}
	out, err := command(ctx, m.judge.pkg, test, args...)
	v.output = string(out)
	var exit *exec.ExitError
	switch {
	case err == nil:
		v.outcome = survived
	case !errors.As(err, &exit) || ctx.Err() != nil:
		return err
	default:
		v.outcome, v.seed = caught, seedOf(out)
	}
	return nil
}

// command runs a program in a folder, and returns what it printed.
func command(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	return c.CombinedOutput()
}

var seedPrinted = regexp.MustCompile(`seed (\d+), \d+ steps`)

// seedOf is the seed that a simulation says has failed, 0 if it says nothing of the kind.
func seedOf(output []byte) int {
	if found := seedPrinted.FindSubmatch(output); found != nil {
		n, _ := strconv.Atoi(string(found[1]))
		return n
	}
	return 0
}

// overlay writes the changed file and the go command's description of it, whose name it returns.
func (m mutant) overlay(dir string) (string, error) {
	file, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	before, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	after, err := m.change(before)
	if err != nil {
		return "", err
	}
	changed, described := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	description, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	if err != nil {
		return "", err
	}
	return described, errors.Join(os.WriteFile(changed, after, 0o600), os.WriteFile(described, description, 0o600))
}

// change replaces the passage.
func (m mutant) change(file []byte) ([]byte, error) {
	if n := bytes.Count(file, []byte(m.old)); n != 1 {
		return nil, fmt.Errorf("%s has the passage of %q %d times: the code has changed, and localdev/mutants/table.go has to follow it", m.file, m.name, n)
	}
	return bytes.Replace(file, []byte(m.old), []byte(m.new), 1), nil
}
