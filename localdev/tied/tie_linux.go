package tied

import (
	"os/exec"
	"syscall"
)

// tie has the kernel kill the process when the thread that starts it ends. What the terminal interrupts is the parent alone, which may have something to finish.
func tie(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
