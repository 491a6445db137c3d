package store

import (
	"context"
	"time"
)

// Presigner makes links by which somebody without rights of his own reads a range of an object. A link reaches what it names and nothing else: the object, and of
// it the range, which is part of the signature.
type Presigner interface {
	// PresignGet makes a link to bytes [off, off+n), n from 1, that ends after lifetime (whole seconds from 1; MaxLinkLifetime), or before it with the credentials
	// that sign it. Nothing is asked of the service, so whether the object is there shows when the link is used, and then a link whose object is gone answers 404.
	PresignGet(ctx context.Context, name string, off, n int64, lifetime time.Duration) (Link, error)
}

// MaxLinkLifetime is the longest that a link may live.
const MaxLinkLifetime = 5 * time.Minute

// Link is a GET that needs no other authorization.
type Link struct {
	URL     string
	Range   string    // value of the Range header that must be sent with it, exactly: it is signed
	Expires time.Time // the latest moment at which it works
}
