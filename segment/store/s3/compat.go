package s3

import (
	"fmt"
	"strings"

	"github.com/varvelog/varve/segment/store"
)

// Compat is a set of things that a look-alike of S3 needs done differently. The zero value suits S3 itself.
type Compat uint8

const (
	// NoChecksum sends no x-amz-checksum-crc32c. Damage on the way is then found only by whoever reads.
	NoChecksum Compat = 1 << iota
	// NoConditionalPut looks for the object and then puts it without a condition. Two Puts of one name with
	// different bytes at the same moment may then both succeed; ids that are never reused keep that from
	// happening to segments. The same holds of PutParts where a service passes over the condition on the
	// completion of an upload only, which Open does not look for.
	NoConditionalPut
	// PathStyle puts the bucket into the path of every URL. It is the default unless the endpoint is Amazon's.
	PathStyle
	// VirtualHost puts the bucket into the host of every URL.
	VirtualHost
)

// compatNames are the names in the order of the bits.
var compatNames = []string{"no-checksum", "no-conditional-put", "path-style", "virtual-host"}

// String is the names of what is set, joined by commas: what ParseCompat reads.
func (c Compat) String() string {
	var names []string
	for i, name := range compatNames {
		if c&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// ParseCompat reads names joined by commas, as in the s3_compat parameter of a log URL. "" is none.
func ParseCompat(s string) (Compat, error) {
	var c Compat
	if s == "" {
		return 0, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		bit := -1
		for i, name := range compatNames {
			if part == name {
				bit = i
			}
		}
		if bit < 0 {
			return 0, fmt.Errorf("%w: compatibility setting %q, valid are %s", store.ErrConfig, part, strings.Join(compatNames, ", "))
		}
		c |= 1 << bit
	}
	return c, c.validate()
}

func (c Compat) validate() error {
	if c&PathStyle != 0 && c&VirtualHost != 0 {
		return fmt.Errorf("%w: compatibility settings path-style and virtual-host exclude each other", store.ErrConfig)
	}
	return nil
}

// CompatError says that the service works only with further compatibility settings.
type CompatError struct {
	Need Compat // to be added to Config.Compat
	Err  error  // what the service said without them
}

func (e *CompatError) Error() string {
	return fmt.Sprintf("%v: it needs the compatibility setting %q (Config.Compat, or s3_compat in a log URL): %v", store.ErrConfig, e.Need, e.Err)
}

func (e *CompatError) Unwrap() []error { return []error{store.ErrConfig, e.Err} }
