package sdk

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvelog/varve/metadata/group"
)

// Close commits what is finished, if commits are automatic, gives up the partitions, which others may then claim at once, and leaves the group. A
// static member keeps its place, for it is expected back. A Poll under way returns ErrClosed. When the table does not answer, or a callback does not
// return, before ctx is done, Close does, with an error; then the others take over after the session time-out. A second Close does nothing.
func (c *Consumer) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.final == ErrClosed {
		c.mu.Unlock()
		return nil
	}
	fenced := errors.Is(c.final, ErrFenced)
	c.final = ErrClosed
	if c.hurry != nil {
		c.hurry()
	}
	c.wake()
	c.mu.Unlock()
	c.stop()
	<-c.done
	if !c.lastTurn(ctx) {
		return fmt.Errorf("group %q: %w, and a callback of Poll has not returned", c.group, context.Cause(ctx))
	}
	defer c.endTurn()
	defer c.closeReaders()
	if fenced {
		return nil
	}
	return c.giveUp(ctx)
}

// lastTurn waits for a Poll under way; if that takes too long, the Poll clears up.
func (c *Consumer) lastTurn(ctx context.Context) bool {
	select {
	case c.turn <- struct{}{}:
		return true
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case c.turn <- struct{}{}: // it ended just now
		return true
	default:
		c.deserted = true
		return false
	}
}

func (c *Consumer) giveUp(ctx context.Context) error {
	var told []group.Partition
	c.mu.Lock()
	for p, o := range c.owned {
		if c.member.Holds(p, o.lease) {
			told = append(told, p)
		}
	}
	c.mu.Unlock()
	call(ctx, c.config.onRevoked, told)
	var err error
	if c.config.autoCommit > 0 {
		err = c.commitFinished(ctx)
	}
	if c.config.instance != "" { // what is held, and the place, stay for its next life
		c.member.Pause(ctx) // helps others only
		return err
	}
	return errors.Join(err, c.member.Leave(ctx))
}
