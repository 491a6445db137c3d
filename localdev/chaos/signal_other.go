//go:build !unix

package main

import (
	"errors"
	"os/exec"
	"syscall"
)

const (
	freeze = syscall.Signal(-1)
	thaw   = syscall.Signal(-2)
)

func alone(*exec.Cmd) {}

// signalGroup fails: nothing freezes a process here.
func signalGroup(*exec.Cmd, syscall.Signal) error {
	return errors.New("chaos needs a Unix system")
}
