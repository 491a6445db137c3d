//go:build !linux

package minio

import "os/exec"

// tie does nothing: only Linux can tie a process to its parent. A parent that is killed leaves the server running.
func tie(*exec.Cmd) {}
