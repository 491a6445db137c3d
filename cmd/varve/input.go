package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/varvelog/varve/sdk"
)

// maxLine bounds a line of input: the largest record there can be, in base64 and JSON.
const maxLine = 96 << 20

// readLines yields the lines of r without their newlines; each may be kept. The last one may lack its newline. It ends with an error, or with ctx's when that is
// done: then a goroutine stays behind in the read, because nothing can interrupt a read of stdin; the process is about to end.
func readLines(ctx context.Context, r io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		lines, stop := make(chan []byte), make(chan struct{})
		defer close(stop)
		var failed error // set before lines is closed
		go func() {
			defer close(lines)
			in := bufio.NewScanner(r)
			in.Buffer(make([]byte, 64<<10), maxLine)
			in.Split(scanLine)
			n := 1
			for ; in.Scan(); n++ {
				select {
				case lines <- bytes.Clone(in.Bytes()):
				case <-stop:
					return
				}
			}
			if failed = in.Err(); errors.Is(failed, bufio.ErrTooLong) {
				failed = fmt.Errorf("stdin, line %d: longer than %d bytes, the most that a line may have", n, maxLine)
			}
		}()
		for {
			select {
			case <-ctx.Done():
				yield(nil, context.Cause(ctx))
				return
			case line, ok := <-lines:
				if !ok {
					if failed != nil {
						yield(nil, failed)
					}
					return
				}
				if !yield(line, nil) {
					return
				}
			}
		}
	}
}

// scanLine is bufio.ScanLines, but it leaves a carriage return where it is: it belongs to the value.
func scanLine(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// parseLine makes the line a value, an empty one too.
func parseLine(line []byte) (*sdk.Record, error) { return &sdk.Record{Value: nonNil(line)}, nil }

// parseRecord reads a whole record; the offset it names has no meaning for an append.
func parseRecord(line []byte) (*sdk.Record, error) {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil, nil
	}
	r := new(sdk.Record)
	if err := json.Unmarshal(line, r); err != nil {
		return nil, err
	}
	r.Offset = 0
	return r, nil
}

// jsonParser makes the line the value, as it stands, and takes key and time from its fields, where they are named. A field that is not there, or null, gives a null
// key; a time must be there.
func jsonParser(keyField, timeField string) func(line []byte) (*sdk.Record, error) {
	return func(line []byte) (*sdk.Record, error) {
		if len(bytes.TrimSpace(line)) == 0 {
			return nil, nil
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(line, &fields); err != nil {
			return nil, fmt.Errorf("not a JSON object: %w", err)
		}
		if fields == nil {
			return nil, errors.New("not a JSON object: null")
		}
		r := &sdk.Record{Value: nonNil(line)}
		if key, ok := scalar(fields[keyField]); ok {
			r.Key = []byte(key)
		}
		if timeField == "" {
			return r, nil
		}
		text, ok := scalar(fields[timeField])
		if !ok {
			return nil, fmt.Errorf("no field %q with the record's time", timeField)
		}
		at, err := sdk.ParseTimestamp(text)
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", timeField, err)
		}
		r.Timestamp = at
		return r, nil
	}
}

// scalar is a JSON string's text, or any other value as it is written; ok is false for null and for nothing.
func scalar(v json.RawMessage) (text string, ok bool) {
	if len(v) == 0 || string(v) == "null" {
		return "", false
	}
	if json.Unmarshal(v, &text) == nil {
		return text, true
	}
	return string(v), true
}

func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
