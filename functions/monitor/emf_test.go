package monitor

import (
	"bytes"
	"fmt"
	"testing"
	"time"
)

// A line holds no more metrics than the format allows; what is more goes on the next.
func TestLinesAreBounded(t *testing.T) {
	var values []value
	for i := range 2*MaxMetrics + 1 {
		values = append(values, value{fmt.Sprint("m", i), "Count", 1})
	}
	var out bytes.Buffer
	if err := writeLine(&out, time.UnixMilli(1), nil, values...); err != nil || bytes.Count(out.Bytes(), []byte("\n")) != 3 {
		t.Errorf("%v: %s", err, out.Bytes())
	}
	if err := writeLine(&out, time.UnixMilli(1), make([]dimension, MaxDimensions+1), values...); err == nil {
		t.Error("too many dimensions were written")
	}
}
