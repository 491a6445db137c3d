package minio

import (
	"os/exec"
	"syscall"
)

// tie has the kernel kill the process when its parent dies, however it dies. What the terminal interrupts is the parent alone, which may have requests to finish.
func tie(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
