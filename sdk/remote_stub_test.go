package sdk_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// stub serves a log, until functions/produce and functions/fetch do.
type stub struct {
	log *sdk.Log
	p   *sdk.Producer
	b   *sdk.BatchReader

	mu   sync.Mutex
	next int64
	seen map[string]map[int64][]byte // by producer and lane: answers by sequence
}

func newStub(log *sdk.Log) http.Handler {
	p, err := log.NewProducer(sdk.WithPartitioner(sdk.ExplicitPartitioner()), sdk.WithLinger(0, 0))
	if err != nil {
		panic(err)
	}
	s := &stub{log: log, p: p, b: log.NewBatchReader(), seen: map[string]map[int64][]byte{}}
	m := http.NewServeMux()
	m.HandleFunc("GET /v1", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, map[string]any{"service": "local", "log_id": "x", "version": 1}) })
	m.HandleFunc("POST /v1/producers", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.next++
		answer(w, 201, map[string]any{"producer_id": fmt.Sprint(s.next)})
	})
	m.HandleFunc("POST /v1/topics/{topic}/records", s.produce)
	m.HandleFunc("GET /v1/topics", func(w http.ResponseWriter, r *http.Request) {
		all, err := log.Admin().ListTopics(r.Context())
		if fails(w, err) {
			return
		}
		list := []map[string]any{}
		for _, t := range all {
			list = append(list, map[string]any{"name": t.Name, "partitions": t.Partitions})
		}
		answer(w, 200, map[string]any{"topics": list})
	})
	m.HandleFunc("GET /v1/topics/{topic}", func(w http.ResponseWriter, r *http.Request) {
		t, err := log.Admin().Topic(r.Context(), r.PathValue("topic"))
		if fails(w, err) {
			return
		}
		parts := []map[string]any{}
		for p := range t.Partitions {
			parts = append(parts, map[string]any{"partition": p, "lane": s.lane(t, p)})
		}
		answer(w, 200, map[string]any{"name": t.Name, "topic_id": t.ID, "version": t.Version, "partitions": parts, "config": t.Config, "partitioner": "murmur2"})
	})
	m.HandleFunc("GET /v1/topics/{topic}/offsets", func(w http.ResponseWriter, r *http.Request) {
		o, err := log.Admin().Offsets(r.Context(), r.PathValue("topic"))
		if !fails(w, err) {
			answer(w, 200, map[string]any{"partitions": o})
		}
	})
	m.HandleFunc("GET /v1/topics/{topic}/partitions/{p}/offsets", func(w http.ResponseWriter, r *http.Request) {
		p, _ := strconv.Atoi(r.PathValue("p"))
		at, _ := time.Parse(time.RFC3339Nano, r.URL.Query().Get("time"))
		o, err := log.Admin().OffsetForTime(r.Context(), r.PathValue("topic"), p, at)
		if errors.Is(err, sdk.ErrNoOffset) {
			answer(w, 200, map[string]any{"offset": nil})
		} else if !fails(w, err) {
			answer(w, 200, map[string]any{"offset": o})
		}
	})
	m.HandleFunc("GET /v1/topics/{topic}/records", s.fetch)
	return m
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

func (s *stub) fetch(w http.ResponseWriter, r *http.Request) {
	var from []sdk.ReadFrom
	for x := range strings.SplitSeq(r.URL.Query().Get("from"), ",") {
		var f sdk.ReadFrom
		fmt.Sscanf(x, "%d:%d", &f.Partition, &f.Offset)
		from = append(from, f)
	}
	n, _ := strconv.Atoi(r.URL.Query().Get("max_bytes"))
	wait, _ := time.ParseDuration(r.URL.Query().Get("wait"))
	got, err := s.b.Read(r.Context(), r.PathValue("topic"), from, n, wait)
	if fails(w, err) {
		return
	}
	var body []byte
	var positions []string
	for _, g := range got {
		for _, b := range g.Batches {
			body = binary.BigEndian.AppendUint32(body, uint32(g.Partition))
			body = binary.BigEndian.AppendUint32(body, uint32(len(b)))
			body = append(body, b...)
		}
		positions = append(positions, fmt.Sprintf("%d:%d:%d:%d", g.Partition, g.Next, g.Start, g.End))
	}
	w.Header().Set("Varve-Positions", strings.Join(positions, ","))
	w.Write(body)
}
