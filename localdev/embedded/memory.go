package embedded

import (
	"context"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/mem"
)

// Memory is one log in memory, and the driver that opens it at mem://. Every Open of it is another view of the same log, as another process would
// have it; it lives until Memory is closed. Tests use it to let several processes, each with a clock of its own, meet in one log, and to
// inject faults. Its own clock is the system's, which testing/synctest replaces.
type Memory struct {
	objects store.Store
	engine  *dynamodb.Engine
}

// MemoryOptions change what lies under a Memory.
type MemoryOptions struct {
	// Engine configures the DynamoDB engine, its faults above all. File must be empty.
	Engine dynamodb.Options
	// Objects holds the objects; nil is a store in memory.
	Objects store.Store
}

// NewMemory makes an empty log.
func NewMemory(o MemoryOptions) (*Memory, error) {
	if o.Engine.File != "" {
		return nil, &sdk.FieldError{Field: "engine file of a log in memory", Value: o.Engine.File, Valid: "none"}
	}
	engine, err := dynamodb.New(o.Engine)
	if err != nil {
		return nil, err
	}
	m := &Memory{objects: o.Objects, engine: engine}
	if m.objects == nil {
		m.objects = mem.New()
	}
	return m, nil
}

// Schemes implements sdk.Driver.
func (m *Memory) Schemes() []string { return []string{"mem"} }

// Open implements sdk.Driver.
func (m *Memory) Open(ctx context.Context, u *url.URL, o sdk.DriverOptions) (sdk.Backend, error) {
	if u.Host != "" || u.Path != "" || u.RawQuery != "" {
		return sdk.Backend{}, &sdk.FieldError{Field: "log URL", Value: u.String(), Valid: "mem://, without a name: a log in memory cannot be shared by name"}
	}
	return assemble(ctx, m.engine, m.objects, o)
}

// AWS configures DynamoDB clients of the application's own, on the service that has the log's table: for tables of its own, and transactions with
// what sdk.Producer.Prepare and sdk.Consumer.PrepareCommit give it.
func (m *Memory) AWS() aws.Config { return clientOf(m.engine) }

// Close ends the log. Logs that were opened on it fail from then on.
func (m *Memory) Close() error { return m.engine.Close() }
