package sdk

import (
	"context"
	"fmt"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment/store"
)

// Open opens the log that the URL names:
//
//	aws://BUCKET/PREFIX?table=TABLE&region=REGION   S3 and DynamoDB, credentials by AWS's default chain
//	file:///DIR, file://./DIR, mem://               with the driver of localdev/embedded
//	https://HOST[/STAGE]                            through the functions produce and fetch, or http://localhost:PORT through the local server
//
// Further parameters of aws:// are s3_endpoint, dynamodb_endpoint, s3_profile, dynamodb_profile, path_style (true or
// false) and s3_compat (for look-alikes; an error of Open says when it is needed). A key never stands in a URL.
//
// Requests to functions are signed with credentials by AWS's default chain (profile=) for the region that a function URL's host name says, or region=.
// Where there is neither, the token in the environment's VARVE_TOKEN is sent. produce= is the URL of the function that appends, unless the other one says
// it. Such a log produces, reads, alone and in groups, and answers for topics, offsets and what groups have committed; what creates, alters or deletes, Step and
// Prepare are an *UnsupportedError.
//
// What does not exist is ErrNoLog, unless WithCreateTable lets Open create it. The first Open of an empty prefix and an empty table makes them one log; after that, a prefix and a table that do not belong together are refused
// with ErrWrongLog before anything is written.
func Open(ctx context.Context, rawURL string, opts ...Option) (*Log, error) {
	c := defaultOpenConfig()
	for _, o := range opts {
		o(&c)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	u, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "https" || u.Scheme == "http" {
		log, err := openRemote(ctx, u, &c)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", rawURL, err)
		}
		return log, nil
	}
	d, err := c.driver(u.Scheme)
	if err != nil {
		return nil, err
	}
	b, err := d.Open(ctx, u, DriverOptions{Env: c.env, OnTable: c.hooks.onTable, OnStore: c.hooks.onStore, CreateTable: c.createTable})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", rawURL, reachable(err))
	}
	closeBackend := b.closeOnce()
	before := c.env.Now()
	identity, err := identify(ctx, b, c.env, c.lostTable)
	if err != nil {
		closeBackend()
		return nil, fmt.Errorf("open %s: %w", rawURL, reachable(err))
	}
	log := newLog(b, c.env, c.hooks, identity, closeBackend)
	if at, ok := b.Table.ServiceTime(); ok {
		log.ahead = before.Sub(at)
	}
	return log, nil
}

func (hs hooks) onTable(c metadata.Call) {
	e := RequestEvent{Service: "table", Op: c.Op, Lane: string(c.Lane), Requests: 1, ReadUnits: c.ReadUnits, WriteUnits: c.WriteUnits, Duration: c.Duration, Err: c.Err}
	fire(hs, func(h RequestHook) { h.OnRequest(e) })
}

func (hs hooks) onStore(c store.Call) {
	e := RequestEvent{Service: "store", Op: c.Op, Requests: c.Requests, Bytes: c.Bytes, Duration: c.Duration, Err: c.Err}
	fire(hs, func(h RequestHook) { h.OnRequest(e) })
}
