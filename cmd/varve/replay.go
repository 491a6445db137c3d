package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/sdk"
)

type replayOptions struct {
	checkpoint   string
	key          string
	keyed        bool
	parallel     int
	buffer       int
	follow, json bool
}

func (a *app) replayCommand() *cobra.Command {
	var o replayOptions
	c := &cobra.Command{
		Use: "replay TOPIC", Short: "Print a topic's history as fast as the store gives it", Args: exactly("TOPIC"), ValidArgsFunction: a.completeTopics,
		Long: `Print all records of a topic, from the log start to the end as it is now: values, one per line, or with --json whole records.

Several partitions are read at once, so records of one partition come in order, those of different ones in any.

With --checkpoint a file says how far the replay is; it is written now and then, and when the replay ends or is interrupted. The same command then goes on from
there, up to the end that the first one found. Records printed after the last time that it was written come again; if it was killed, what it has printed may end within a line.`,
		Example: "  varve replay flights --checkpoint flights.checkpoint --json >> flights.jsonl\n  varve replay flights --key SEA",
		RunE: func(c *cobra.Command, args []string) error {
			o.keyed = c.Flags().Changed("key")
			return a.replay(c.Context(), args[0], o)
		},
	}
	c.Flags().StringVar(&o.checkpoint, "checkpoint", "", "file that says how far the replay is")
	c.Flags().StringVar(&o.key, "key", "", "only records with this key")
	c.Flags().IntVar(&o.parallel, "parallel", 4, "partitions read at once")
	c.Flags().IntVar(&o.buffer, "buffer", 64<<20, "bytes fetched ahead, at most")
	c.Flags().BoolVar(&o.follow, "follow", false, "go on with records as they are appended, until interrupted")
	c.Flags().BoolVar(&o.json, "json", false, "print whole records as JSON")
	return c
}

func (a *app) replay(ctx context.Context, topic string, o replayOptions) error {
	if o.follow && (o.checkpoint != "" || o.keyed) {
		return usagef("--follow goes with neither --checkpoint nor --key")
	}
	opts := []sdk.ReplayOption{sdk.ReplayRecycle(), sdk.ReplayParallel(o.parallel), sdk.ReplayBuffer(o.buffer)}
	if o.keyed {
		opts = append(opts, sdk.ReplayFilter(func(r *sdk.Record) bool { return r.Key != nil && string(r.Key) == o.key }))
	}
	resumed, err := readCheckpoint(o.checkpoint)
	if err != nil {
		return err
	}
	if resumed != nil {
		opts = append(opts, sdk.ReplayResume(*resumed))
	}
	return a.withLog(ctx, func(log *sdk.Log) error {
		r, err := log.NewReplay(ctx, topic, opts...)
		if err != nil {
			return err
		}
		p := &replaying{app: a, replay: r, o: o, out: bufio.NewWriter(a.out), shown: a.count("replayed")}
		p.shown.silent = p.shown.silent || a.outTerminal
		p.saved = a.env.Mono()
		if err := p.save(); err != nil { // before anything is printed that could not be gone on from
			return err
		}
		err = r.Run(ctx, p.handle)
		p.shown.clear()
		if err := errors.Join(err, p.save()); err != nil {
			return err
		}
		g := r.Progress()
		a.progress("%s, %.1f MiB in %.1f s", plural(int(g.Records), "record", "records"), float64(g.Bytes)/(1<<20), g.Elapsed.Seconds())
		if !o.follow {
			return nil
		}
		follower, err := r.Follow(ctx, sdk.RecycleRecords())
		if err != nil {
			return err
		}
		return errors.Join(a.print(ctx, follower, consumeOptions{follow: true, json: o.json}), follower.Close())
	})
}

// replaying is a replay that is being printed.
type replaying struct {
	app    *app
	replay *sdk.Replay
	o      replayOptions

	mu    sync.Mutex // guards what follows: partitions are handled at once
	out   *bufio.Writer
	shown *counter
	saved time.Duration // when the checkpoint was last written
}

// saveEvery is how often the checkpoint is written.
const saveEvery = 2 * time.Second

func (p *replaying) handle(_ context.Context, f sdk.Fetch) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range f.Records {
		if err := printRecord(p.out, &f.Records[i], p.o.json); err != nil {
			return err
		}
	}
	p.show()
	if now := p.app.env.Mono(); now-p.saved >= saveEvery {
		p.saved = now
		return p.write()
	}
	return nil
}

// show shows how far the replay is.
func (p *replaying) show() {
	c, now := p.shown, p.app.env.Mono()
	if c.silent || now-c.shown < progressEvery {
		return
	}
	c.shown = now
	g := p.replay.Progress()
	c.show(fmt.Sprintf("%d of %d offsets, %s, %.1f MiB, %.0f/s, %s left", g.Done, g.Offsets, plural(int(g.Records), "record", "records"), float64(g.Bytes)/(1<<20),
		float64(g.Records)/max(g.Elapsed.Seconds(), 1e-3), g.Left.Round(time.Second)))
}

func (p *replaying) save() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.write()
}

// write writes out what was printed, and then the checkpoint, which may not be ahead of it. mu is held.
func (p *replaying) write() error {
	if err := p.out.Flush(); err != nil {
		return err
	}
	if p.o.checkpoint == "" {
		return nil
	}
	body, err := json.MarshalIndent(p.replay.Checkpoint(), "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(p.o.checkpoint, append(body, '\n'))
}

// replaceFile puts a file in the place of another in one step, so that a crash leaves the one or the other.
func replaceFile(name string, body []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(body)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// readCheckpoint reads a checkpoint; nil if there is none yet.
func readCheckpoint(name string) (*sdk.ReplayCheckpoint, error) {
	if name == "" {
		return nil, nil
	}
	body, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c := new(sdk.ReplayCheckpoint)
	err = json.Unmarshal(body, c)
	if err == nil && c.Topic == "" {
		err = errors.New("it names no topic")
	}
	if err != nil {
		return nil, usagef("%s is not a checkpoint of 'varve replay' (%v); remove it to begin anew", name, err)
	}
	return c, nil
}
