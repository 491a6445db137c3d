// Package tied starts processes that do not outlive whoever started them.
package tied

import (
	"os/exec"
	"runtime"
)

// Start starts the command. On Linux it is a process group of its own, and the kernel kills it when this process dies, however that dies; elsewhere only the caller
// can. ended is closed when the command has ended and was waited for, which is done here: c.ProcessState then says how it ended.
func Start(c *exec.Cmd) (ended <-chan struct{}, err error) {
	tie(c)
	gone, started := make(chan struct{}), make(chan error)
	go func() {
		// The kernel ties a process to the thread that started it. So this one stays until the process has ended, and, never unlocked, ends with this goroutine.
		runtime.LockOSThread()
		err := c.Start()
		started <- err
		if err == nil {
			c.Wait()
			close(gone)
		}
	}()
	return gone, <-started
}
