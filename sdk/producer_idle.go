package sdk

import (
	"context"
	"maps"
	"slices"
)

// begin runs f in a goroutine that Close and Idle wait for. mu is held.
func (p *Producer) begin(f func()) {
	p.running++
	p.wg.Go(func() {
		f()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.running--; p.running == 0 && p.idle != nil {
			close(p.idle)
			p.idle = nil
		}
	})
}

// Idle returns when nothing of the producer is under way any more: promises have been called, and what a commit leaves to be done after it, such as spilling, has
// been done; or with ctx's cause when that is done first. It is for processes that may be frozen, or ended, once they have answered. Records that are accepted
// meanwhile, and linger, are waited for too.
func (p *Producer) Idle(ctx context.Context) error {
	for {
		p.mu.Lock()
		if p.running > 0 && p.idle == nil {
			p.idle = make(chan struct{})
		}
		idle := p.idle
		lanes := slices.Collect(maps.Values(p.lanes))
		p.mu.Unlock()
		if idle != nil {
			select {
			case <-idle:
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		for _, w := range lanes {
			if err := w.Idle(ctx); err != nil {
				return err
			}
		}
		p.mu.Lock()
		still := p.running == 0
		p.mu.Unlock()
		if still {
			return nil
		}
	}
}
