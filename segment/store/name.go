package store

import (
	"context"
	"fmt"
	"strings"
)

// MaxName is the length of the longest valid name, in bytes: what one file name may have on every common disk.
const MaxName = 255

// CheckName reports ErrBadName unless name can be an object's: parts of a-z, 0-9, '-', '_' and '.', none
// empty or starting with '.', joined by single slashes, at most MaxName bytes in all.
//
// The set is that small so that names map one-to-one everywhere: no capitals, which some disks fold; nothing
// outside ASCII, which some normalise; no part that a disk or a URL gives a meaning to. Parts that start with
// '.' are the adapters' own.
func CheckName(op Op, name string) error {
	if len(name) == 0 || len(name) > MaxName {
		return badName(op, name, "has %d bytes, 1 to %d are valid", len(name), MaxName)
	}
	start := true // of a part
	for i := range len(name) {
		c := name[i]
		switch {
		case start && c == '/':
			return badName(op, name, "has an empty part at byte %d", i)
		case start && c == '.':
			return badName(op, name, "has a part that starts with '.' at byte %d", i)
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_', c == '.', c == '/':
		default:
			return badName(op, name, "has byte %#02x at %d, valid are a-z 0-9 - _ . /", c, i)
		}
		start = c == '/'
	}
	if start {
		return badName(op, name, "has an empty part at its end")
	}
	return nil
}

// CheckPrefix reports ErrBadName unless some valid name starts with prefix.
func CheckPrefix(prefix string) error {
	if prefix == "" || CheckName(OpList, prefix) == nil {
		return nil
	}
	if err := CheckName(OpList, prefix+"x"); err != nil {
		err.(*Error).Name = prefix
		return err
	}
	return nil
}

// Begin is what every method does first, before any I/O: it refuses bad names, then a context that is done.
func Begin(ctx context.Context, op Op, names ...string) error {
	first := ""
	for i, name := range names {
		if err := CheckName(op, name); err != nil {
			return err
		}
		if i == 0 {
			first = name
		}
	}
	return Fail(op, first, ctx.Err())
}

// BeginList is Begin for a List.
func BeginList(ctx context.Context, prefix string) error {
	if err := CheckPrefix(prefix); err != nil {
		return err
	}
	return Fail(OpList, prefix, ctx.Err())
}

func badName(op Op, name, format string, args ...any) error {
	return &Error{Op: op, Name: name, Err: fmt.Errorf("%w: it "+format, append([]any{ErrBadName}, args...)...)}
}

func clip(s string) string {
	if len(s) > MaxName {
		return strings.ToValidUTF8(s[:MaxName], "") + "…"
	}
	return s
}
