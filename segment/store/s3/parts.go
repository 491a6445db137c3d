package s3

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/varvelog/varve/segment/store"
)

const (
	// markName is the metadata by which an object says which upload made it.
	markName        = "varve-upload"
	algorithmHeader = "x-amz-checksum-algorithm"
	abortTime       = 10 * time.Second // the caller waits for it with an error in hand; what is not aborted, a lifecycle rule ends
)

// PutParts is a multipart upload whose completion carries If-None-Match: *. A single part goes as an ordinary Put.
//
// The commit point is the completion: before it nobody sees anything, and a crash leaves an open upload, which is for the
// bucket's AbortIncompleteMultipartUpload rule to end. A completion whose answer was lost is repeated; where it is then told
// that the object exists, or that there is no such upload any more, the mark in the object's metadata tells whose it is.
func (s *Store) PutParts(ctx context.Context, name string, next func() ([]byte, error)) (int64, error) {
	if err := store.Begin(ctx, store.OpPut, name); err != nil {
		return 0, err
	}
	parts := store.NewParts(name, next)
	first, err := parts.Next(ctx)
	if err != nil && err != io.EOF {
		return 0, err
	}
	second, err := parts.Next(ctx)
	switch {
	case err == io.EOF:
		err = s.Put(ctx, name, first)
	case err == nil:
		err = s.newUpload(name).run(ctx, parts, first, second)
	}
	if err != nil {
		return 0, err
	}
	return parts.Size, nil
}

// upload creates one object from several parts.
type upload struct {
	s    *Store
	name string
	mark string // ours in the object's metadata
	id   string // the service's name for it

	held chan struct{} // has an element for each part that is held

	mu    sync.Mutex
	parts []minio.CompletePart
	err   error // the first of any part
}

func (s *Store) newUpload(name string) *upload {
	return &upload{s: s, name: name, mark: fmt.Sprintf("%016x", s.cfg.Env.Uint64()), held: make(chan struct{}, store.PartsInFlight)}
}

func (u *upload) run(ctx context.Context, parts *store.Parts, begun ...[]byte) error {
	if err := u.s.do(ctx, call{op: store.OpPut, name: u.name, try: u.begin}); err != nil {
		return err
	}
	err := u.sendAll(ctx, parts, begun)
	if err == nil {
		err = u.s.do(ctx, call{op: store.OpPut, name: u.name, size: parts.Size, try: u.complete})
	}
	if err != nil {
		u.abort(ctx)
	}
	return err
}

func (u *upload) begin(ctx context.Context, c *client) (err error) {
	opts := minio.PutObjectOptions{UserMetadata: map[string]string{markName: u.mark}}
	if u.s.cfg.Compat&NoChecksum == 0 {
		opts.UserMetadata[algorithmHeader] = "CRC32C"
	}
	u.id, err = c.NewMultipartUpload(ctx, u.s.cfg.Bucket, u.s.prefix+u.name, opts)
	if err == nil && u.id == "" {
		err = fmt.Errorf("%w: the upload has no id", errBroken)
	}
	return err
}

// sendAll sends the parts that were read already and those that follow, several at a time. When it returns none is under way.
func (u *upload) sendAll(ctx context.Context, parts *store.Parts, begun [][]byte) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed := func(err error) {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.err == nil {
			u.err = err
		}
		stop()
	}
	var sending sync.WaitGroup
	for n := 1; ; n++ {
		part, err := u.next(ctx, parts, &begun)
		if err == io.EOF {
			break
		}
		if err != nil {
			failed(err)
			break
		}
		sending.Go(func() {
			defer func() { <-u.held }()
			if err := u.send(ctx, n, part); err != nil {
				failed(err)
			}
		})
	}
	sending.Wait()
	return u.err
}

// next waits until one more part may be held, and returns it.
func (u *upload) next(ctx context.Context, parts *store.Parts, begun *[][]byte) ([]byte, error) {
	select {
	case u.held <- struct{}{}:
	case <-ctx.Done():
		return nil, store.Fail(store.OpPut, u.name, ctx.Err())
	}
	if len(*begun) == 0 {
		return parts.Next(ctx)
	}
	part := (*begun)[0]
	(*begun)[0], *begun = nil, (*begun)[1:]
	return part, nil
}

// send uploads one part. To upload it again does no harm: the later one takes the place of the earlier.
func (u *upload) send(ctx context.Context, n int, body []byte) error {
	done := minio.CompletePart{PartNumber: n}
	opts := minio.PutObjectPartOptions{DisableContentSha256: true}
	if u.s.cfg.Compat&NoChecksum == 0 {
		done.ChecksumCRC32C = checksum(body)
		opts.CustomHeader = http.Header{}
		opts.CustomHeader.Set(checksumHeader, done.ChecksumCRC32C)
	}
	err := u.s.do(ctx, call{op: store.OpPut, name: u.name, size: int64(len(body)), try: func(ctx context.Context, c *client) error {
		part, err := c.PutObjectPart(ctx, u.s.cfg.Bucket, u.s.prefix+u.name, u.id, n, bytes.NewReader(body), int64(len(body)), opts)
		done.ETag = part.ETag
		return err
	}})
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.parts = append(u.parts, done)
	return nil
}

// complete makes one attempt at the completion.
func (u *upload) complete(ctx context.Context, c *client) error {
	slices.SortFunc(u.parts, func(a, b minio.CompletePart) int { return a.PartNumber - b.PartNumber })
	var opts minio.PutObjectOptions
	if u.s.cfg.Compat&NoConditionalPut == 0 {
		opts.SetMatchETagExcept("*")
	} else if there, err := u.look(ctx, c); there || err != nil {
		return err
	}
	_, err := c.CompleteMultipartUpload(ctx, u.s.cfg.Bucket, u.s.prefix+u.name, u.id, u.parts, opts)
	if code := minio.ToErrorResponse(err).Code; err == nil || code != minio.PreconditionFailed && code != minio.NoSuchUpload && status(err) != http.StatusPreconditionFailed {
		return err
	}
	if there, lookErr := u.look(ctx, c); there || lookErr != nil {
		return lookErr
	}
	return fmt.Errorf("%w: the upload cannot be completed, and there is no object: %v", errBroken, err)
}

// look tells whether the object is there and ours. One that is another's is ErrExists.
func (u *upload) look(ctx context.Context, c *client) (there bool, err error) {
	info, err := c.StatObject(ctx, u.s.cfg.Bucket, u.s.prefix+u.name, minio.StatObjectOptions{})
	switch {
	case status(err) == http.StatusNotFound:
		return false, nil
	case err != nil:
		return false, err
	case info.Metadata.Get("x-amz-meta-"+markName) != u.mark:
		return false, store.ErrExists
	}
	return true, nil
}

// abort lets the service forget the parts, also when the caller's time is up.
func (u *upload) abort(ctx context.Context) {
	ctx, cancel := u.s.cfg.Env.WithTimeout(context.WithoutCancel(ctx), abortTime)
	defer cancel()
	u.s.do(ctx, call{op: store.OpPut, name: u.name, try: func(ctx context.Context, c *client) error {
		return c.AbortMultipartUpload(ctx, u.s.cfg.Bucket, u.s.prefix+u.name, u.id)
	}})
}
