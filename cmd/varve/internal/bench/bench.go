// Package bench measures a log against the limit of what it stands on. The two are measured in turns within one run, so that what else the
// machine does falls on both alike: "raw" is the very store of the log, its objects put or got by 1, 4 or 16 callers who do nothing else, as
// large as varve's segments are and as durable; "varve" is a Producer or a Reader as anybody would use it.
//
// What a run writes is its own: a topic of a fresh name, and objects named like segments under fresh ids in a class that expires after a day.
// It removes all of it in the end; of what a killed run leaves, objects are orphans as a crashed producer leaves them, which no index names.
package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// Config says what is measured. The caller has checked it.
type Config struct {
	// Open opens the log anew, as another process would. It is called several times.
	Open func(context.Context, ...sdk.Hook) (*sdk.Log, error)
	Env  env.Env
	// Progress is told what is being done, for somebody who watches.
	Progress func(string)

	Settings
	Folder  string        // of the log's objects, if Cold
	Recycle bool          // the reader uses its memory again
	Rate    float64       // records per second at a trickle
	Idle    time.Duration // before a record that comes after a pause
}

// Settings are what the figures of a result depend on.
type Settings struct {
	Log          string        `json:"log"`           // its URL
	RecordSize   int           `json:"record_size"`   // bytes of key and value, MinRecord to MaxRecord
	SegmentBytes int           `json:"segment_bytes"` // at which the producer cuts
	Partitions   int           `json:"partitions"`
	Compression  string        `json:"compression"` // one of Codecs
	Payload      string        `json:"payload"`     // Random or Text
	Turns        int           `json:"turns"`
	TurnBytes    int64         `json:"turn_bytes"` // a turn ends after so many bytes of records,
	TurnTime     time.Duration `json:"-"`          // or after this time
	Cold         bool          `json:"cold"`       // no turn that reads finds any of the objects in the system's page cache
}

// Payloads: random bytes do not compress, letters do.
const (
	Random = "random"
	Text   = "text"
)

// Codecs are the compressions by name.
var Codecs = map[string]segment.Codec{}

func init() {
	for _, c := range []segment.Codec{segment.None, segment.Gzip, segment.Snappy, segment.LZ4, segment.Zstd} {
		Codecs[c.String()] = c
	}
}

// retention of the topic: should a run be killed, a bucket's lifecycle rule removes what it left.
const retention = 24 * time.Hour

// cleanupTime is how long a run that was interrupted may take for removing what it wrote.
const cleanupTime = time.Minute

// run is one measurement.
type run struct {
	Config
	log     *sdk.Log
	meter   *meter
	store   store.Store
	topic   string
	payload *payload
	arena   []byte   // of bodies that are put
	buffers [][]byte // of each stream, into which objects are got

	mu      sync.Mutex
	written []string // raw objects that are there, or may be
}

// on opens the log, makes the topic, measures and cleans up.
func (c Config) on(ctx context.Context, measure func(context.Context, *run) error) (err error) {
	r := &run{Config: c, meter: &meter{}, topic: fmt.Sprintf("varve-bench-%016x", c.Env.Uint64())}
	if r.log, err = c.Open(ctx, r.meter); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.log.Close()) }()
	r.store = r.log.Backend().Store
	r.payload = newPayload(c.Settings, c.Env)
	_, err = r.log.Admin().CreateTopic(ctx, sdk.NewTopic{Name: r.topic, Partitions: c.Partitions, Config: map[string]string{
		"retention.ms":      fmt.Sprint(retention.Milliseconds()),
		"max.message.bytes": fmt.Sprint(2 * MaxRecord),
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.cleanUp(ctx)) }()
	return measure(ctx, r)
}

// producer is the run's producer. All that is not asked for is as by default.
func (r *run) producer() (*sdk.Producer, error) {
	return r.log.NewProducer(sdk.WithSegmentBytes(r.SegmentBytes), sdk.WithCompression(Codecs[r.Compression]))
}

// cleanUp removes the topic and the objects. The index goes before what it names; that the run was interrupted does not matter. The objects are
// nobody else's: the topic's only producer is closed, and its segments hold no other topic's records.
func (r *run) cleanUp(ctx context.Context) error {
	ctx, cancel := r.Env.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	r.Progress("cleaning up")
	r.written = append(r.written, names(stored(r.meter.put()))...)
	admin := r.log.Admin()
	if err := admin.DeleteTopic(ctx, r.topic); err != nil && !errors.Is(err, sdk.ErrUnknownTopic) {
		return fmt.Errorf("bench: topic %s is left, and its segments: %w", r.topic, err)
	}
	_, err := admin.CleanTopics(ctx)
	return errors.Join(err, r.remove(ctx))
}

// remove deletes the objects that were written, or names those that are left.
func (r *run) remove(ctx context.Context) error {
	for len(r.written) > 0 {
		n := min(len(r.written), store.MaxPage)
		if err := r.store.Delete(ctx, r.written[:n]...); err != nil {
			return fmt.Errorf("bench: objects that may be left in the store: %s: %w", list(r.written), err)
		}
		r.written = r.written[n:]
	}
	return nil
}

// list names the first objects and counts the others.
func list(names []string) string {
	const most = 20
	s := strings.Join(names[:min(most, len(names))], " ")
	if more := len(names) - most; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

// object is one that is there, or is to be put; or a range of one.
type object struct {
	name string
	off  int64
	size int
}

func names(objects []object) []string {
	list := make([]string, len(objects))
	for i, o := range objects {
		list[i] = o.name
	}
	return list
}
