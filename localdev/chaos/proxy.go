package main

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/env"
)

// proxy stands between workers and a service, at an address that stays while the service moves, and does to connections what networks do. It is safe for
// concurrent use.
type proxy struct {
	env      env.Env
	listener net.Listener
	serving  sync.WaitGroup

	mu     sync.Mutex
	target string // empty: nobody listens
	delay  time.Duration
	open   map[*connection]bool
	closed bool
}

// connection is one of a worker, and the proxy's own to the service.
type connection struct {
	near, far *net.TCPConn
	gone      context.Context
	end       context.CancelFunc
}

// reset ends both as a machine would that has lost all memory of them.
func (c *connection) reset() {
	c.end()
	for _, side := range []*net.TCPConn{c.near, c.far} {
		side.SetLinger(0)
		side.Close()
	}
}

func newProxy(e env.Env) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{env: e, listener: l, open: map[*connection]bool{}}
	p.serving.Go(p.accept)
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// lead leads new connections to that address.
func (p *proxy) lead(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = to
}

func (p *proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.serving.Go(func() { p.connect(near.(*net.TCPConn)) })
	}
}

func (p *proxy) connect(near *net.TCPConn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	far, err := net.Dial("tcp", target)
	if err != nil {
		near.SetLinger(0)
		near.Close()
		return
	}
	c := &connection{near: near, far: far.(*net.TCPConn)}
	c.gone, c.end = context.WithCancel(context.Background())
	p.mu.Lock()
	closed := p.closed
	p.open[c] = true
	p.mu.Unlock()
	if closed {
		c.reset()
	}
	var both sync.WaitGroup
	both.Go(func() { p.copy(c, c.far, c.near) })
	both.Go(func() { p.copy(c, c.near, c.far) })
	both.Wait()
	c.end()
	near.Close()
	far.Close()
	p.mu.Lock()
	delete(p.open, c)
	p.mu.Unlock()
}

// copy passes on what comes, late if it is to be late, and then that nothing comes any more.
func (p *proxy) copy(c *connection, to, from *net.TCPConn) {
	b := make([]byte, 16<<10)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		delay := p.delay
		p.mu.Unlock()
		if delay > 0 && p.env.Sleep(c.gone, p.env.Jitter(delay)) != nil {
			return
		}
		if _, failed := to.Write(b[:n]); failed != nil || err != nil && !errors.Is(err, io.EOF) {
			c.reset()
			return
		}
		if err != nil {
			to.CloseWrite()
			return
		}
	}
}

// each does something to every connection, and tells to how many.
func (p *proxy) each(do func(*connection)) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		do(c)
	}
	return len(p.open)
}

// cut breaks all connections off.
func (p *proxy) cut() int { return p.each((*connection).reset) }

// halve closes one direction of all connections: requests still arrive, and their answers do not.
func (p *proxy) halve() int {
	return p.each(func(c *connection) { c.near.CloseWrite() })
}

// late delays whatever is passed on, in pieces, by up to d; 0 ends that. It tells how many connections there are.
func (p *proxy) late(d time.Duration) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
	return len(p.open)
}

// close ends the proxy and everything that goes through it.
func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cut()
	p.serving.Wait()
}
