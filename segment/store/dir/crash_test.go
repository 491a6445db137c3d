package dir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/storetest"
)

// TestModelDisk shows that the model is a disk as far as this package can tell.
func TestModelDisk(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		s, err := open("/log/objects", env.System(), newTree())
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

const root = "/log/objects"

// job is one call of a process: a put, of parts if the name says so, or with no body a delete.
type job struct {
	name string
	body []byte
}

func (j job) parts() bool { return strings.Contains(j.name, "archive") }

// alone is what one process does, in order; racing is what two do at once.
var (
	alone = [][]job{{
		{"keep/intake/0a/one", []byte("first object")},
		{"keep/intake/0a/two", []byte("second object")},
		{"keep/intake/0b/three", []byte("")},
		{"keep/intake/0a/one", []byte("first object")},
		{"keep/intake/0a/one", []byte("other bytes!")},
		{"varve.json", []byte("{}")},
		{"keep/intake/0a/two", nil},
		{"keep/archive/t/four", []byte("fourth object")},
		{"keep/archive/t/four", []byte("other bytes!!")},
		{"keep/intake/0b/three", nil},
		{"never", nil},
	}}
	racing = [][]job{
		{{"a/b/x", []byte("same bytes")}, {"a/b/y", []byte("from the one")}, {"a/b/x", nil}, {"a/b/v", []byte("the one's")}, {"a/b/archive", []byte("one")}},
		{{"a/b/x", []byte("same bytes")}, {"a/b/z", []byte("from the two")}, {"a/b/x", nil}, {"a/b/v", []byte("the two's")}, {"a/b/archive", []byte("two")}},
	}
)

// trace is what processes did to one disk, with a step of the one and a step of the other in an order drawn by
// chance.
func trace(processes [][]job, seed uint64, lies func(kind string) bool) ([]step, error) {
	disk, turns := newTree(), newTurns(seed, len(processes))
	var log []step
	errs := make([]error, len(processes))
	var wg sync.WaitGroup
	for i, jobs := range processes {
		r := &recorder{tree: disk, log: &log, lies: lies, turn: func() { turns.wait(i) }}
		wg.Go(func() {
			defer turns.leave(i)
			errs[i] = r.run(jobs, uint64(i))
		})
	}
	wg.Wait()
	return log, errors.Join(errs...)
}

func (r *recorder) run(jobs []job, seed uint64) error {
	e := env.System()
	e.Rand = env.NewRand(seed)
	s, err := open(root, e, r)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if j.body == nil {
			err = s.Delete(context.Background(), j.name)
		} else if j.parts() {
			left := [][]byte{j.body}
			_, err = s.PutParts(context.Background(), j.name, func() ([]byte, error) {
				if len(left) == 0 {
					return nil, io.EOF
				}
				left = nil
				return j.body, nil
			})
		} else {
			err = s.Put(context.Background(), j.name, j.body)
		}
		switch {
		case err == nil:
			r.turn()
			*r.log = append(*r.log, step{kind: "ack", to: j.name, put: j.body != nil})
		case !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrUnavailable):
			return err // the two that may happen: other bytes, and gone between link and comparison
		}
	}
	return nil
}

func honest(string) bool { return false }

func TestCrashOfOneProcess(t *testing.T) {
	log, err := trace(alone, 1, honest)
	if err != nil {
		t.Fatal(err)
	}
	states, err := crashes(log, alone, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d steps, %d states of the disk", len(log), states)
}

func TestCrashOfTwoProcesses(t *testing.T) {
	total := 0
	for seed := range uint64(120 / raceShare) {
		log, err := trace(racing, seed, honest)
		if err != nil {
			t.Fatal(err)
		}
		states, err := crashes(log, racing, seed)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		total += states
	}
	t.Logf("%d states of the disk", total)
}

// TestCrashIsNoticed is the negative control: with syncs that do nothing, something must be found missing.
func TestCrashIsNoticed(t *testing.T) {
	for _, kind := range []string{"sync", "syncdir"} {
		log, err := trace(alone, 1, func(k string) bool { return k == kind })
		if err != nil {
			t.Fatal(err)
		}
		states, err := crashes(log, alone, 1)
		if err == nil {
			t.Errorf("without %s nothing was found missing in %d states", kind, states)
		}
		t.Logf("without %s: %v", kind, err)
	}
}

// crashes stops the disk after every prefix of the steps, in four ways: with everything lost that was not
// synced, and three times with a part of it lost. It returns the first thing wrong with what is left.
func crashes(log []step, processes [][]job, seed uint64) (states int, err error) {
	bodies := map[string][][]byte{}
	for _, j := range slices.Concat(processes...) {
		if j.body != nil {
			bodies[j.name] = append(bodies[j.name], j.body)
		}
	}
	for n := range len(log) + 1 {
		for variant := range 4 {
			chance := rand.New(rand.NewPCG(seed, uint64(n*4+variant)))
			keep := func() bool { return variant > 0 && chance.IntN(2) == 0 }
			if err := check(replay(log[:n]).crash(keep, chance), log[:n], bodies); err != nil {
				return states, fmt.Errorf("after step %d of %d (%s %s %s), variant %d: %w", n, len(log), log[n-1].kind, log[n-1].path, log[n-1].to, variant, err)
			}
			states++
		}
	}
	return states, nil
}

// check opens what is left as the next process would, and compares it with what had been answered.
func check(left *tree, log []step, bodies map[string][][]byte) error {
	s, err := open(root, env.System(), left)
	if err != nil {
		return err
	}
	ctx := context.Background()
	page, err := s.List(ctx, "", "", 0)
	if err != nil || page.More {
		return fmt.Errorf("list: %v, %v", page, err)
	}
	listed := map[string]bool{}
	for _, o := range page.Objects {
		listed[o.Name] = true
		got, err := s.Get(ctx, o.Name, 0, -1, nil)
		if err != nil || !slices.ContainsFunc(bodies[o.Name], func(b []byte) bool { return bytes.Equal(b, got) }) {
			return fmt.Errorf("%s is torn: %q, %v", o.Name, got, err)
		}
	}
	for name, body := range bodies {
		there, gone := promised(log, name)
		if there && !listed[name] || gone && listed[name] {
			return fmt.Errorf("%s: acknowledged as put %v, as deleted %v; after the crash it is there: %v", name, there, gone, listed[name])
		}
		if err := s.Put(ctx, name, body[0]); err != nil && !errors.Is(err, store.ErrExists) {
			return fmt.Errorf("put after the crash: %w", err)
		}
	}
	return nil
}

// promised tells what somebody was told about the object since it last came or went.
func promised(log []step, name string) (there, gone bool) {
	path := filepath.Join(root, name)
	exists := false
	for _, s := range log {
		switch {
		case s.kind == "link" && s.to == path:
			exists, there, gone = true, false, false
		case s.kind == "remove" && s.path == path:
			exists, there, gone = false, false, false
		case s.kind == "ack" && s.to == name && s.put == exists:
			there, gone = exists, !exists
		}
	}
	return there, gone
}
