package s3

import (
	"fmt"
	"strconv"
	"strings"
)

// contentRange is a Content-Range header: bytes first to last, of total or, if that is not known, -1.
type contentRange struct{ first, last, total int64 }

// parseContentRange reads "bytes 0-4/100" or "bytes 0-4/*". Anything else is errBroken.
func parseContentRange(s string) (contentRange, error) {
	rest, isBytes := strings.CutPrefix(s, "bytes ")
	span, total, hasTotal := strings.Cut(rest, "/")
	first, last, hasLast := strings.Cut(span, "-")
	r := contentRange{total: -1}
	var err1, err2, err3 error
	r.first, err1 = parseDigits(first)
	r.last, err2 = parseDigits(last)
	if total != "*" {
		r.total, err3 = parseDigits(total)
	}
	ok := isBytes && hasTotal && hasLast && err1 == nil && err2 == nil && err3 == nil
	if !ok || r.last < r.first || r.total >= 0 && r.last >= r.total {
		return contentRange{}, fmt.Errorf("%w: Content-Range %q", errBroken, s)
	}
	return r, nil
}

func parseDigits(s string) (int64, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err
}
