package lane

import (
	"context"
	"sync"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// head is what this process knows of a lane's head, with what it does to it besides committing: settling and spilling.
type head struct {
	lane    metadata.LaneID
	table   Table
	env     env.Env
	writer  int // fence epoch
	onImage func(*metadata.Head)
	hooks   Hooks

	viewMu sync.Mutex // guards what follows
	view   view
	// lastMaxima are the running maximum timestamps up to order lastSpilled, which this process spilled.
	lastSpilled int64
	lastMaxima  metadata.Offsets
}

// view is the most that any image has shown of the head. All of it only grows in the table, so images may be
// taken in in any order, and a part that is behind makes a commit be refused, never applied wrongly. Only when the table is put back
// to an earlier moment it does not. That shows by an image that is behind what was known before it was asked for, and after the repair by epochs that it has raised.
type view struct {
	known      bool
	epoch      int64 // the writer's
	next       int64
	first      int64
	floor      segment.ID
	version    int64 // config version, and the class that came with it
	class      segment.Class
	minVersion int

	// doubt: an attempt under this epoch ended unknown before it was fenced. It could still be applied behind
	// what is sent later for the same slots, so nothing is sent before the epoch has been raised.
	doubt bool
}

// take takes in an image, which was asked for when the lane had reached an order, and tells whether what was known before is of a time that the table has forgotten.
func (v *view) take(h *metadata.Head, writer int, reached int64) (forgotten bool) {
	switch ahead := h.Epochs[writer] - v.epoch; {
	case v.known && ahead <= -metadata.FenceStep:
		return false
	case v.known && ahead >= metadata.FenceStep, h.Next < reached:
		v.next, v.first, forgotten = 0, 0, true
	}
	v.known = true
	if h.Epochs[writer] > v.epoch {
		v.epoch, v.doubt = h.Epochs[writer], false
	}
	v.next, v.first = max(v.next, h.Next), max(v.first, h.First)
	if v.floor.Less(h.Floor) {
		v.floor = h.Floor
	}
	if h.ConfigVersion >= v.version {
		v.version, v.class = h.ConfigVersion, h.Class
	}
	v.minVersion = max(v.minVersion, h.MinVersion)
	return forgotten
}

func (h *head) observe(image *metadata.Head, reached int64) {
	h.viewMu.Lock()
	defer h.viewMu.Unlock()
	if h.view.take(image, h.writer, reached) {
		h.lastSpilled = 0
	}
}

// see takes in an image and shows it to the owner. reached is an order that the lane was known to have reached when the image was asked for.
func (h *head) see(image *metadata.Head, reached int64) {
	h.observe(image, reached)
	if h.onImage != nil {
		h.onImage(image)
	}
}

func (h *head) seen() view {
	h.viewMu.Lock()
	defer h.viewMu.Unlock()
	return h.view
}

// doubt keeps anything from being sent before the epoch has been raised.
func (h *head) doubt() {
	h.viewMu.Lock()
	defer h.viewMu.Unlock()
	h.view.doubt = true
}

// look makes the view fit to commit by: an image has been seen, nothing is in doubt, and the format is
// understood. In the steady state it sends nothing.
func (h *head) look(ctx context.Context) (view, error) {
	v := h.seen()
	var image *metadata.Head
	var err error
	switch {
	case v.doubt:
		image, err = h.table.RaiseEpoch(ctx, h.lane, h.writer, v.epoch)
	case !v.known:
		image, err = h.table.Head(ctx, h.lane, metadata.Strong)
	}
	if err != nil {
		return v, err
	}
	if image != nil {
		h.see(image, v.next)
		v = h.seen()
	}
	if v.minVersion > metadata.FormatVersion {
		return v, errFormat(h.lane, v.minVersion)
	}
	return v, nil
}
