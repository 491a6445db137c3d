package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/varvelog/varve/localdev/tied"
)

// process is a worker as the conductor sees it: one life after another.
type process struct {
	spec
	environment []string
	lead        func(address string) // of one that serves: is told where
	unexpected  func(how string)     // called when it has ended by itself

	mu      sync.Mutex
	busy    bool // something befalls it
	command *exec.Cmd
	ended   <-chan struct{}
	ending  bool // it may end
}

// start starts the next life, and returns when it can be told to end, and serves if that is what it does.
func (p *process) start() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	p.Life++
	p.Seed++
	told, err := json.Marshal(p.spec)
	if err != nil {
		return err
	}
	says, err := os.OpenFile(p.saysTo(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	defer says.Close()
	c := exec.Command(program)
	c.Env = append(append([]string{}, p.environment...), specVariable+"="+string(told))
	c.Stderr = says
	alone(c)
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	ended, err := tied.Start(c)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.command, p.ended, p.ending = c, ended, false
	p.mu.Unlock()
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("%s did not start: %w: %s", p.by(), err, p.said())
	}
	if p.lead != nil {
		p.lead(strings.TrimSpace(address))
	}
	go p.watch(c, ended)
	return nil
}

// watch tells of a life that ends and was not to.
func (p *process) watch(c *exec.Cmd, ended <-chan struct{}) {
	<-ended
	p.mu.Lock()
	tell := p.command == c && !p.ending
	p.mu.Unlock()
	if tell {
		p.unexpected(fmt.Sprintf("%s has ended by itself: %v: %s", p.by(), c.ProcessState, p.said()))
	}
}

// mayEnd says that the process ends, or is ended, from now on.
func (p *process) mayEnd() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ending = true
}

// kill kills it as a crash would and waits until it is gone.
func (p *process) kill() {
	p.mayEnd()
	if p.command == nil {
		return
	}
	signalGroup(p.command, syscall.SIGKILL) // it may be gone
	<-p.ended
}

// signal sends a signal.
func (p *process) signal(s syscall.Signal) error { return signalGroup(p.command, s) }

// take makes it this fault's, if nothing befalls it.
func (p *process) take() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := !p.busy
	p.busy = true
	return taken
}

func (p *process) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy = false
}

// saysTo is the file that its standard error goes to.
func (p *process) saysTo() string { return filepath.Join(p.Dir, p.Name+".log") }

// said is the end of what it has said.
func (p *process) said() string {
	b, err := os.ReadFile(p.saysTo())
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(b[max(0, len(b)-maxSaid):]))
}

const maxSaid = 4000
