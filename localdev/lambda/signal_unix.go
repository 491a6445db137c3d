//go:build unix

package lambda

import "syscall"

const canFreeze = true

// freeze stops the process, thaw lets it go on.
func (p *process) freeze() error { return p.command.Process.Signal(syscall.SIGSTOP) }
func (p *process) thaw() error {
	if !p.host.f.Freeze {
		return nil
	}
	return p.command.Process.Signal(syscall.SIGCONT)
}
