//go:build !linux

package bench

import "errors"

// CanForget says whether this system can be asked to forget what it caches of a file.
const CanForget = false

func forget(string) error { return errors.ErrUnsupported }
