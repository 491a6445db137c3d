package sdk_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/varvelog/varve/functions/fetch"
	produceservice "github.com/varvelog/varve/functions/produce"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// stub serves a log, until functions/produce and functions/fetch do.
type stub struct {
	log *sdk.Log
	p   *sdk.Producer

	mu   sync.Mutex
	seen map[string]map[int64][]byte // by producer and lane: answers by sequence
}

func newStub(log *sdk.Log) http.Handler {
	p, err := log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()), sdk.WithLinger(0, 0))
	if err != nil {
		panic(err)
	}
	s := &stub{log: log, p: p, seen: map[string]map[int64][]byte{}}
	all := http.NewServeMux()
	all.HandleFunc("POST /v1/topics/{topic}/records", s.produce)
	all.Handle("POST /v1/producers", produceservice.New(log, produceservice.Options{}).Handler())
	all.Handle("/", fetch.New(log, fetch.Options{}).Handler())
	return all
}

func (s *stub) lane(t *sdk.Topic, p int) string { return fmt.Sprint(t.ID, "-", p/t.LaneWidth) }

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

func fails(w http.ResponseWriter, err error) bool {
	if err == nil {
		return false
	}
	status, e := 500, map[string]any{"code": "internal", "message": err.Error()}
	var r *sdk.RangeError
	switch {
	case errors.As(err, &r):
		status, e["code"], e["partition"], e["start"], e["end"] = 416, "offset_out_of_range", r.Partition, r.Start, r.End
	case errors.Is(err, sdk.ErrUnknownTopic):
		status, e["code"] = 404, "unknown_topic"
	case errors.Is(err, sdk.ErrTopicGone):
		status, e["code"] = 410, "topic_gone"
	case errors.Is(err, sdk.ErrTooLarge):
		status, e["code"] = 413, "too_large"
	case errors.Is(err, sdk.ErrInvalid):
		status, e["code"] = 400, "bad_request"
	}
	answer(w, status, map[string]any{"error": e})
	return true
}

func (s *stub) produce(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	t, err := s.log.Admin().Topic(r.Context(), r.PathValue("topic"))
	if fails(w, err) {
		return
	}
	var records []*sdk.Record
	var d segment.Decoder
	for len(body) > 0 {
		p, n := int(int32(binary.BigEndian.Uint32(body))), binary.BigEndian.Uint32(body[4:])
		got, err := d.Decode(body[8:8+n], 0, nil)
		if fails(w, err) {
			return
		}
		for _, x := range got {
			records = append(records, &sdk.Record{Topic: t.Name, Partition: p, Timestamp: time.UnixMilli(x.Timestamp), Key: x.Key, Value: x.Value, Headers: x.Headers})
		}
		body = body[8+n:]
	}
	seq, _ := strconv.ParseInt(r.Header.Get("Varve-Producer-Sequence"), 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.Header.Get("Varve-Producer-Id") + s.lane(t, records[0].Partition)
	if s.seen[key] == nil {
		s.seen[key] = map[int64][]byte{}
	}
	if b := s.seen[key][seq]; b != nil {
		w.Write(b)
		return
	}
	if last := int64(len(s.seen[key])); seq != last+1 {
		answer(w, 409, map[string]any{"error": map[string]any{"code": "sequence_gap", "message": fmt.Sprint("expected ", last+1, " not ", seq)}})
		return
	}
	results := []map[string]any{}
	for _, x := range s.p.ProduceSync(r.Context(), records...) {
		if fails(w, x.Err) {
			return
		}
		results = append(results, map[string]any{"partition": x.Record.Partition, "offset": x.Record.Offset})
	}
	b, _ := json.Marshal(map[string]any{"results": results})
	s.seen[key][seq] = b
	w.Write(b)
}
