package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/sdk"
)

// kind says what a line of a history tells.
type kind string

const (
	born      kind = "born"      // a process has begun
	ended     kind = "ended"     // it has ended well, with nothing under way
	append_   kind = "append"    // the record Value is about to be appended; with others of the same Call, if it is not 0
	accepted  kind = "accepted"  // the call for it has returned
	told      kind = "told"      // what became of it: Offset, or Failure
	begins    kind = "begins"    // a reader goes on at Offset
	read      kind = "read"      // a reader was given the record at Offset
	assigned  kind = "assigned"  // a member of Group was told that the partition is its own
	lost      kind = "lost"      // and that it is not any more
	given     kind = "given"     // it was given the record at Offset
	finished  kind = "finished"  // it is done with it
	committed kind = "committed" // its commit of Offset, asked for at Asked, has succeeded
	sampled   kind = "sampled"   // what the group has committed was asked for at Asked, and is Offset
	identity  kind = "identity"  // Value is the producer id of this client from now on
	trouble   kind = "trouble"   // an error that may be
	wrong     kind = "wrong"     // something that must not be
)

// line is one line of the history that a process writes.
type line struct {
	At        int64    `json:"at"` // by the machine's clock, in nanoseconds since 1970
	Kind      kind     `json:"kind"`
	Topic     string   `json:"topic,omitempty"`
	Partition int      `json:"partition,omitempty"`
	Offset    int64    `json:"offset,omitempty"`
	Key       string   `json:"key,omitempty"`
	Value     string   `json:"value,omitempty"`
	Group     string   `json:"group,omitempty"`
	Call      int64    `json:"call,omitempty"`
	Loose     bool     `json:"loose,omitempty"` // the call keeps no order with others of its process
	From      *source  `json:"from,omitempty"`
	Asked     int64    `json:"asked,omitempty"`
	Failure   *failure `json:"failure,omitempty"`
	Text      string   `json:"text,omitempty"`

	By string `json:"by,omitempty"` // the process; lines of workers say it once, when they are born
}

// source is the record that a result was made from.
type source struct {
	Group     string `json:"group"`
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Offset    int64  `json:"offset"`
}

// failure is why a record was not acknowledged. Records of a batch that failed as one share a number.
type failure struct {
	Number  int    `json:"number"`
	Unknown bool   `json:"unknown,omitempty"`
	Prior   bool   `json:"prior,omitempty"`   // an earlier one failed
	Refused bool   `json:"refused,omitempty"` // by the call itself
	Text    string `json:"text"`
}

// journal writes a history. Each call is one write to the file, which a kill -9 of the process does not take back. It is safe for concurrent use.
type journal struct {
	env env.Env

	mu       sync.Mutex
	file     *os.File
	failures map[error]int
	last     int64
}

// openJournal opens the history of a process and goes on with it. by is this life of the process.
func openJournal(path, by string, e env.Env) (*journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	if err != nil {
		return nil, err
	}
	j := &journal{env: e, file: f, failures: map[error]int{}}
	if _, err := f.WriteString("\n"); err != nil { // behind a line that was cut short
		return nil, err
	}
	j.write(line{Kind: born, By: by})
	return j, nil
}

// write writes lines that happen now. Without a history a process cannot go on.
func (j *journal) write(lines ...line) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last = max(j.last+1, j.env.Now().UnixNano()) // two things of one process never happen at one moment
	for _, l := range lines {
		l.At = j.last
		if err := enc.Encode(l); err != nil {
			panic(err)
		}
	}
	if _, err := j.file.Write(b.Bytes()); err != nil {
		panic(fmt.Sprintf("history: %v", err))
	}
}

// now is for lines whose request is about to be sent.
func (j *journal) now() int64 { return j.env.Now().UnixNano() }

// failed is an error of an append as a history has it.
func (j *journal) failed(err error) *failure {
	if err == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failures[err] == 0 {
		j.failures[err] = len(j.failures) + 1
	}
	var delivery *sdk.DeliveryError
	var condition *sdk.ConditionError
	return &failure{Number: j.failures[err], Unknown: sdk.OutcomeOf(err) == sdk.Unknown, Prior: errors.Is(err, sdk.ErrPriorFailed),
		Refused: !errors.As(err, &delivery) && !errors.As(err, &condition), Text: err.Error()}
}

// readJournal reads a history that a process has written, up to a line that was cut short, and again from the next life on.
func readJournal(path string) (lines []line, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	by, r := "", bufio.NewReader(f)
	for {
		text, err := r.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return nil, err
		}
		var l line
		if json.Unmarshal(text, &l) == nil && l.Kind != "" {
			if l.By != "" {
				by = l.By
			}
			l.By = by
			lines = append(lines, l)
		}
		if err == io.EOF {
			return lines, nil
		}
	}
}

const journalSuffix = ".history"

// readJournals reads all histories in the directory, in the order in which things happened.
func readJournals(dir string) (all []line, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"+journalSuffix))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		lines, err := readJournal(f)
		if err != nil {
			return nil, err
		}
		all = append(all, lines...)
	}
	slices.SortStableFunc(all, func(a, b line) int { return int(a.At - b.At) })
	return all, nil
}

// valueOf is what tells a record from all others: its value without what fills it up.
func valueOf(r *sdk.Record) string {
	name, _, _ := strings.Cut(string(r.Value), " ")
	return name
}
