//go:build !linux

package lambda

import "os/exec"

// tie does nothing: only Linux can tie a process to its parent. A parent that is killed leaves its processes running.
func tie(*exec.Cmd) {}
