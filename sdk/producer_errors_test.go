package sdk

import "testing"

func TestUnsentErrorCounts(t *testing.T) {
	for n, want := range map[int]string{1: "1 record not sent: closed", 2: "2 records not sent: closed"} {
		if got := (&UnsentError{Records: n, Err: ErrClosed}).Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
