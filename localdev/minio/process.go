package minio

import (
	"fmt"
	"os"
	"os/exec"
	"sync"

	"github.com/varvelog/varve/localdev/tied"
)

// process is a running program.
type process struct {
	command *exec.Cmd
	said    tail
	ended   <-chan struct{} // closed when it is gone and waited for
}

// startProcess starts the program, which holds the lock too.
func startProcess(program string, args, environment []string, lock *os.File) (*process, error) {
	p := &process{command: exec.Command(program, args...)}
	p.command.Env = environment
	p.command.Stdout, p.command.Stderr = &p.said, &p.said
	hold(p.command, lock)
	var err error
	p.ended, err = tied.Start(p.command)
	return p, err
}

// kill kills the process and waits until it is gone.
func (p *process) kill() {
	p.command.Process.Kill()
	<-p.ended
}

// end is how it ended.
func (p *process) end() error { return fmt.Errorf("%w: %v", errEnded, p.command.ProcessState) }

// tail keeps the last of what is written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

const maxTail = 2048

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b...)
	t.kept = t.kept[max(0, len(t.kept)-maxTail):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}
