package walk

import (
	"container/list"
	"sync"

	"github.com/varvelog/varve/metadata"
)

// maxChunks is how many chunks a Walker remembers: the upper levels of a search, and what is being read. One takes a few KB, 20 at most.
const maxChunks = 512

type chunkKey struct {
	lane  metadata.LaneID
	first int64
}

// chunkCache keeps the chunks used last. A chunk never changes, so what is in it is right even after the chunk was deleted; but a table that is put back to an earlier
// moment may have others at the same orders after that. The zero value is ready.
type chunkCache struct {
	mu     sync.Mutex
	recent list.List // of *view, the one used last in front
	at     map[chunkKey]*list.Element
}

func (c *chunkCache) get(lane metadata.LaneID, first int64) *view {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.at[chunkKey{lane, first}]
	if e == nil {
		return nil
	}
	c.recent.MoveToFront(e)
	return e.Value.(*view)
}

func (c *chunkCache) put(v *view) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := chunkKey{v.lane, v.first}
	if c.at[key] != nil {
		return
	}
	if c.at == nil {
		c.at = make(map[chunkKey]*list.Element)
	}
	c.at[key] = c.recent.PushFront(v)
	if c.recent.Len() > maxChunks {
		oldest := c.recent.Remove(c.recent.Back()).(*view)
		delete(c.at, chunkKey{oldest.lane, oldest.first})
	}
}

// forget drops what is known of a lane.
func (c *chunkCache) forget(lane metadata.LaneID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, e := range c.at {
		if key.lane == lane {
			c.recent.Remove(e)
			delete(c.at, key)
		}
	}
}
