package objects

import (
	"context"
	"fmt"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// maxLogObject bounds what is read of an object that says something of the log itself. It has a few hundred bytes.
const maxLogObject = 16 << 10

// Identity reads what the bucket says of which log it holds, by two requests. A bucket that does not say is store.ErrNotExist, anything but an identity
// metadata.ErrCorrupt.
func Identity(ctx context.Context, g store.Getter) (metadata.Identity, error) {
	b, err := logObject(ctx, g, segment.IdentityName)
	if err != nil {
		return metadata.Identity{}, err
	}
	return metadata.DecodeIdentity(b)
}

// Era reads an era's object, by two requests: store.ErrNotExist, metadata.ErrCorrupt. One that speaks of another era than its name is corrupt.
func Era(ctx context.Context, g store.Getter, name string) (metadata.Era, error) {
	b, err := logObject(ctx, g, name)
	if err != nil {
		return metadata.Era{}, err
	}
	e, err := metadata.DecodeEra(b)
	if err == nil && segment.EraName(e.Number) != name {
		err = fmt.Errorf("%w: it is of era %d", metadata.ErrCorrupt, e.Number)
	}
	if err != nil {
		return metadata.Era{}, fmt.Errorf("object %s: %w", name, err)
	}
	return e, nil
}

func logObject(ctx context.Context, g store.Getter, name string) ([]byte, error) {
	info, err := g.Stat(ctx, name)
	if err != nil {
		return nil, err
	}
	if info.Size > maxLogObject {
		return nil, fmt.Errorf("%w: object %s has %d bytes, at most %d are valid", metadata.ErrCorrupt, name, info.Size, maxLogObject)
	}
	return g.Get(ctx, name, 0, info.Size, nil)
}
