package api

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/varvelog/varve/internal/wire"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

// Catalog serves what both services do: what is served here, and the topics.
type Catalog struct {
	Log        *sdk.Log
	Service    string
	ProduceURL string

	mu sync.Mutex
	id string // of the log, once it was read
}

// Routes are its operations.
func (c *Catalog) Routes() []Route {
	return []Route{
		{http.MethodGet, "/v1", c.service},
		{http.MethodGet, "/v1/topics", c.topics},
		{http.MethodGet, "/v1/topics/{topic}", c.topic},
	}
}

func (c *Catalog) service(call *Call) error {
	if err := call.Plain(); err != nil {
		return err
	}
	id, err := c.logID(call.R.Context())
	if err != nil {
		return err
	}
	return call.JSON(http.StatusOK, wire.Service{Service: c.Service, LogID: id, Version: wire.Version, ProduceURL: c.ProduceURL})
}

func (c *Catalog) logID(ctx context.Context) (string, error) {
	c.mu.Lock()
	id := c.id
	c.mu.Unlock()
	if id != "" {
		return id, nil
	}
	identity, ok, err := c.Log.Backend().Table.Identity(ctx)
	if err == nil && !ok {
		err = errors.New("the log's table has no identity")
	}
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id = hex.EncodeToString(identity.Log[:])
	return c.id, nil
}

func (c *Catalog) topics(call *Call) error {
	after, err := call.After("topic")
	if err != nil {
		return err
	}
	list, more, err := c.Log.Backend().Table.Topics(call.R.Context(), after, wire.MaxListed)
	if err != nil {
		return err
	}
	answer := wire.Topics{Topics: []wire.TopicName{}, More: more}
	for _, t := range list {
		answer.Topics = append(answer.Topics, wire.TopicName{Name: t.Name, ID: string(t.ID), Partitions: t.Partitions})
	}
	return call.JSON(http.StatusOK, answer)
}

func (c *Catalog) topic(call *Call) error {
	if err := call.Plain(); err != nil {
		return err
	}
	t, err := TopicRow(call.R.Context(), c.Log, call.Name("topic"))
	if err != nil {
		return err
	}
	answer := wire.Topic{Name: t.Name, ID: string(t.ID), Version: t.Version, Config: t.Config.Map(), Partitioner: t.Partitioner, Keyed: t.Keyed, Partitions: []wire.PartitionLane{}}
	for _, g := range t.History {
		if g.Partitions < t.Partitions {
			answer.Before = append(answer.Before, g.Partitions)
		}
	}
	for p := range t.Partitions {
		answer.Partitions = append(answer.Partitions, wire.PartitionLane{Partition: p, Lane: string(t.Place(p).Lane)})
	}
	return call.JSON(http.StatusOK, answer)
}

// TopicRow reads the row of a topic.
func TopicRow(ctx context.Context, log *sdk.Log, name string) (*metadata.Topic, error) {
	if err := metadata.ValidateName("topic", name); err != nil {
		return nil, err
	}
	t, err := log.Backend().Table.Topic(ctx, name)
	if errors.Is(err, metadata.ErrUnknownTopic) {
		return nil, fmt.Errorf("%w %q: GET /v1/topics lists those that there are", sdk.ErrUnknownTopic, name)
	}
	return t, err
}

// Plain refuses a body and parameters, for requests that have none.
func (c *Call) Plain() error {
	if _, err := c.Query(); err != nil {
		return err
	}
	return c.NoBody()
}

// After reads, for a request without a body, the parameter after: the name, of a topic or a group, behind which a list is to go on; "" for a list from its beginning.
func (c *Call) After(kind string) (string, error) {
	q, err := c.Query("after")
	if err != nil {
		return "", err
	}
	if q.Has("after") {
		if err := metadata.ValidateName(kind, q.Get("after")); err != nil {
			return "", err
		}
	}
	return q.Get("after"), c.NoBody()
}
