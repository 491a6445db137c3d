package lambda

import (
	"os/exec"
	"syscall"
)

// tie has the kernel kill the process when its parent dies, however it dies.
func tie(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
