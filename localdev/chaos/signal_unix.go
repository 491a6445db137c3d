//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

const (
	freeze = syscall.SIGSTOP
	thaw   = syscall.SIGCONT
)

// alone puts the command into a process group of its own: an interrupt of the terminal is this process's to deal with.
func alone(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signal sends a signal to the command's process group.
func signalGroup(c *exec.Cmd, s syscall.Signal) error { return syscall.Kill(-c.Process.Pid, s) }
