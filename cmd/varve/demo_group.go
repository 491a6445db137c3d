package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/varvelog/varve/localdev/sample"
	"github.com/varvelog/varve/sdk"
)

const (
	demoTimeout = 2 * time.Second // of the members' sessions: short, for the demo not to take long
	demoKill    = 2000            // flights that the first member has printed when it is killed
	demoLimit   = time.Minute     // for the members to do it all
)

// demoShared is what sharing the topic came to.
type demoShared struct {
	Group    string  `json:"group"`
	Timeout  float64 `json:"session_timeout_seconds"`
	Printed  [2]int  `json:"printed"`          // by each member; the first one was killed
	Takeover float64 `json:"takeover_seconds"` // from the kill to the first flight of a partition that the first had
	Flights  int     `json:"flights"`          // each counted once
	Again    int     `json:"again"`            // that came more than once
}

func (s *demoShared) print(w io.Writer) error {
	if s == nil {
		_, err := fmt.Fprintf(w, "\nnot shown: a group whose members are processes of their own, because a log in memory belongs to one process\n")
		return err
	}
	_, err := fmt.Fprintf(w, `
two processes shared the topic as members of group %s, half of its partitions each. One was killed (SIGKILL) after it had printed %d flights;
%.1f s later, with a session time-out of %.0f s, the other had taken over and gone on. It printed %d.
at least once: %d flights, totals per origin equal to the input, and %d that came again because they were printed and not yet committed
`, s.Group, s.Printed[0], s.Takeover, s.Timeout, s.Printed[1], s.Flights, s.Again)
	return err
}

// sharing is the demo's second part under way.
type sharing struct {
	*demo
	demoShared
	members [2]*demoMember
	printed chan printedBy
	// listeners are who send to printed.
	listeners sync.WaitGroup
	flights   [][]sample.Flight // by partition and offset; without a Line it has not come yet
	missing   int
	had       [demoPartitions]bool // partitions of which the first member has printed something
	killed    time.Duration        // when, by the monotonic clock; 0 before
}

// demoMember is this program again, as 'varve consume --group'.
type demoMember struct {
	command *exec.Cmd
	errs    bytes.Buffer
}

// printedBy is a record that a member has printed, or its end.
type printedBy struct {
	member int
	record sdk.Record
	err    error
}

// share has two members share the topic, kills one, and checks that all flights came.
func (d *demo) share(ctx context.Context) (*demoShared, error) {
	ctx, cancel := d.env.WithTimeout(ctx, demoLimit)
	defer cancel()
	s := &sharing{demo: d, demoShared: demoShared{Group: demoGroup, Timeout: demoTimeout.Seconds()}, printed: make(chan printedBy)}
	for _, end := range d.next {
		s.flights = append(s.flights, make([]sample.Flight, end))
		s.missing += int(end)
	}
	admin := d.log.Admin()
	if err := admin.DeleteGroup(ctx, demoGroup, true); err != nil && !errors.Is(err, sdk.ErrUnknownGroup) {
		return nil, err
	}
	err := s.start(ctx)
	if err == nil {
		err = s.balanced(ctx)
	}
	if err == nil { // they have begun at the end: now that both are there, they go back and read
		_, err = admin.ResetGroup(ctx, sdk.GroupReset{Group: demoGroup, To: sdk.ResetTo{Position: sdk.Earliest}, Force: true})
	}
	if err == nil {
		err = s.read(ctx)
	}
	if err = errors.Join(err, s.end(err == nil)); err != nil {
		return nil, err
	}
	return &s.demoShared, s.check(ctx)
}

// start starts the members. What they print is to be taken from s.printed.
func (s *sharing) start(ctx context.Context) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	for i := range s.members {
		m := &demoMember{command: exec.CommandContext(ctx, program, "consume", demoTopic, "--log", s.url, "--group", demoGroup,
			"--from", "latest", "--follow", "--json", "--session-timeout", demoTimeout.String())}
		m.command.Stderr = &m.errs
		out, err := m.command.StdoutPipe()
		if err == nil {
			err = m.command.Start()
		}
		if err != nil {
			return err
		}
		s.members[i] = m
		s.listeners.Go(func() { s.listen(ctx, i, out) })
	}
	return nil
}

// listen reads what a member prints. A line that was cut short by its end was not printed.
func (s *sharing) listen(ctx context.Context, member int, out io.Reader) {
	lines := bufio.NewReader(out)
	for {
		p := printedBy{member: member}
		var line []byte
		if line, p.err = lines.ReadBytes('\n'); p.err == nil {
			p.err = p.record.UnmarshalJSON(line)
		}
		select {
		case s.printed <- p:
		case <-ctx.Done():
			return
		}
		if p.err != nil {
			return
		}
	}
}

// balanced waits until each member has half of the partitions and has begun them.
func (s *sharing) balanced(ctx context.Context) error {
	for {
		d, err := s.log.Admin().DescribeGroup(ctx, demoGroup, sdk.Latest)
		if err != nil && !errors.Is(err, sdk.ErrUnknownGroup) {
			return err
		}
		held := map[string]int{}
		for i := 0; err == nil && i < len(d.Partitions); i++ {
			if p := &d.Partitions[i]; p.Committed >= 0 && p.Owner != "" {
				held[p.Owner]++
			}
		}
		balanced := len(held) == len(s.members)
		for _, n := range held {
			balanced = balanced && n == demoPartitions/len(s.members)
		}
		if balanced {
			return nil
		}
		select {
		case p := <-s.printed:
			return s.ended(p)
		default:
		}
		if err := s.env.Sleep(ctx, demoTimeout/40); err != nil {
			return err
		}
	}
}

// ended is the error of a member that was not to end or print just then.
func (s *sharing) ended(p printedBy) error {
	if p.err == nil {
		return fmt.Errorf("member %d has printed %s/%d@%d too early", p.member, p.record.Topic, p.record.Partition, p.record.Offset)
	}
	if p.err == io.EOF {
		s.members[p.member].command.Wait() // for all that it has to say
	}
	return fmt.Errorf("member %d has ended: %w: %s", p.member, p.err, bytes.TrimSpace(s.members[p.member].errs.Bytes()))
}

// read takes what the members print until every flight has come, and kills the first on the way.
func (s *sharing) read(ctx context.Context) error {
	shown := s.count("read by two members")
	defer shown.clear()
	for s.missing > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s have not come: %w", plural(s.missing, "flight", "flights"), context.Cause(ctx))
		case p := <-s.printed:
			switch {
			case p.err != nil && p.member == 0 && s.killed > 0:
				continue
			case p.err != nil:
				return s.ended(p)
			}
			if err := s.take(p); err != nil {
				return err
			}
			shown.add(1)
		}
		if s.Printed[0] == demoKill && s.killed == 0 {
			if err := s.members[0].command.Process.Kill(); err != nil {
				return err
			}
			s.killed = s.env.Mono()
		}
	}
	if s.killed == 0 {
		return fmt.Errorf("all has come before member 0 had printed %d flights, so it was not killed", demoKill)
	}
	return nil
}

// take takes in one record that a member has printed.
func (s *sharing) take(p printedBy) error {
	r := &p.record
	if r.Partition >= len(s.flights) || r.Offset >= int64(len(s.flights[r.Partition])) {
		return fmt.Errorf("member %d has printed partition %d, offset %d, which was never produced", p.member, r.Partition, r.Offset)
	}
	f, err := flightOf(r)
	if err != nil {
		return fmt.Errorf("member %d, partition %d, offset %d: %w", p.member, r.Partition, r.Offset, err)
	}
	s.Printed[p.member]++
	if p.member == 0 {
		s.had[r.Partition] = true
	} else if s.killed > 0 && s.Takeover == 0 && s.had[r.Partition] {
		s.Takeover = (s.env.Mono() - s.killed).Seconds()
	}
	if s.flights[r.Partition][r.Offset].Line != nil {
		s.Again++
		return nil
	}
	s.flights[r.Partition][r.Offset] = f
	s.missing--
	return nil
}

// end ends the members, the second in good order if all went well, so that it commits what it has read.
func (s *sharing) end(well bool) (failed error) {
	for i, m := range s.members {
		switch {
		case m == nil:
		case well && i > 0:
			failed = m.command.Process.Signal(os.Interrupt)
		default:
			m.command.Process.Kill() // it may have ended
		}
	}
	go func() {
		s.listeners.Wait()
		close(s.printed)
	}()
	for range s.printed { // what they print while they end
	}
	for i, m := range s.members {
		if m == nil {
			continue
		}
		if err := m.command.Wait(); err != nil && well && i > 0 {
			failed = errors.Join(failed, fmt.Errorf("member %d: %w: %s", i, err, bytes.TrimSpace(m.errs.Bytes())))
		}
	}
	return failed
}

// check compares the flights, each counted once, with the input, and what the group has committed with the ends.
func (s *sharing) check(ctx context.Context) error {
	var got totals
	for _, partition := range s.flights {
		for _, f := range partition {
			got.add(f)
		}
	}
	if err := got.equal(&s.sent); err != nil {
		return err
	}
	s.Flights = got.flights
	d, err := s.log.Admin().DescribeGroup(ctx, demoGroup, sdk.Earliest)
	if err != nil {
		return err
	}
	if left := sum(d.Partitions); left.Lag != 0 || left.NoCommit != 0 || left.Partitions != demoPartitions {
		return fmt.Errorf("all is read, and yet the group has %v", left)
	}
	return got.check()
}
