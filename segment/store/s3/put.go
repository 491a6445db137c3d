package s3

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"

	"github.com/minio/minio-go/v7"

	"github.com/varvelog/varve/segment/store"
)

const checksumHeader = "x-amz-checksum-crc32c"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (s *Store) Put(ctx context.Context, name string, body []byte) error {
	return s.PutPieces(ctx, name, [][]byte{body})
}

// PutPieces is Put, as one request all the same.
func (s *Store) PutPieces(ctx context.Context, name string, pieces [][]byte) error {
	if err := store.Begin(ctx, store.OpPut, name); err != nil {
		return err
	}
	p := s.newPut(name, pieces)
	return s.do(ctx, call{op: store.OpPut, name: name, size: p.size, try: p.once})
}

// put creates one object, by as many attempts as it takes.
type put struct {
	s    *Store
	name string
	body [][]byte
	size int64
	opts minio.PutObjectOptions
}

func (s *Store) newPut(name string, body [][]byte) *put {
	p := &put{s: s, name: name, body: body, size: int64(store.SizeOf(body))}
	if s.cfg.Compat&NoConditionalPut == 0 {
		p.opts.SetMatchETagExcept("*")
	}
	p.opts.DisableContentSha256 = true // no chunked signing; over TLS and over HTTP the payload goes as it is
	if s.cfg.Compat&NoChecksum == 0 {
		p.opts.UserMetadata = map[string]string{checksumHeader: checksum(body...)}
	}
	return p
}

// checksum is the value of checksumHeader for the pieces one after another.
func checksum(pieces ...[]byte) string {
	sum := uint32(0)
	for _, piece := range pieces {
		sum = crc32.Update(sum, castagnoli, piece)
	}
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

// once makes one attempt. If the object exists, an earlier attempt whose answer was lost may have made it.
func (p *put) once(ctx context.Context, c *client) error {
	exists, err := p.send(ctx, c)
	if exists {
		return p.compare(ctx, c)
	}
	return err
}

// send puts the object unless there is one of that name.
func (p *put) send(ctx context.Context, c *client) (exists bool, err error) {
	bucket, key := p.s.cfg.Bucket, p.s.prefix+p.name
	if p.s.cfg.Compat&NoConditionalPut != 0 {
		_, err := c.StatObject(ctx, bucket, key, minio.StatObjectOptions{})
		if status(err) != http.StatusNotFound {
			return err == nil, err
		}
	}
	readers := make([]io.Reader, len(p.body))
	for i, piece := range p.body {
		readers[i] = bytes.NewReader(piece)
	}
	_, err = c.PutObject(ctx, bucket, key, io.MultiReader(readers...), p.size, "", "", p.opts)
	if status(err) == http.StatusPreconditionFailed {
		return true, nil
	}
	return false, err
}

// compare is nil if the object is there with these bytes. It compares bytes, not checksums: that is exact, and
// works whatever a look-alike keeps of checksums and entity tags.
func (p *put) compare(ctx context.Context, c *client) error {
	info, err := c.StatObject(ctx, p.s.cfg.Bucket, p.s.prefix+p.name, minio.StatObjectOptions{})
	switch {
	case status(err) == http.StatusNotFound:
		return fmt.Errorf("%w: the object is said to exist, and then is not there", errBroken)
	case err != nil:
		return err
	case info.Size != p.size:
		return fmt.Errorf("%w: it has %d bytes, not %d", store.ErrExists, info.Size, p.size)
	}
	g := get{s: p.s, name: p.name, n: -1}
	if err := g.once(ctx, c); err != nil {
		return err
	}
	if !store.EqualPieces(g.got, p.body) {
		return fmt.Errorf("%w: it has as many bytes, but others", store.ErrExists)
	}
	return nil
}
