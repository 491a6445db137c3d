package minio

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
)

// process is a running program.
type process struct {
	command *exec.Cmd
	said    tail
	ended   chan struct{} // closed when it is gone and waited for
}

// startProcess starts the program, which holds the lock too. One thread starts it, stays, and waits for it: where the system can tie a process to its parent, it ties it
// to the parent's thread.
func startProcess(program string, args, environment []string, lock *os.File) (*process, error) {
	p := &process{command: exec.Command(program, args...), ended: make(chan struct{})}
	p.command.Env = environment
	p.command.Stdout, p.command.Stderr = &p.said, &p.said
	hold(p.command, lock)
	tie(p.command)
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		err := p.command.Start()
		started <- err
		if err == nil {
			p.command.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
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
