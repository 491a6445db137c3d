package minio

import (
	"syscall"
	"testing"

	"github.com/varvelog/varve/internal/env"
)

// What the terminal sends to the group of whoever started the server does not come to the server.
func TestServerIsNotInterrupted(t *testing.T) {
	program, dir := pretending(t, "serve well")
	s, err := Start(t.Context(), env.System(), program, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	group, err := syscall.Getpgid(s.process.command.Process.Pid)
	if err != nil || group == syscall.Getpgrp() {
		t.Errorf("its group is %d, ours %d, %v", group, syscall.Getpgrp(), err)
	}
}
