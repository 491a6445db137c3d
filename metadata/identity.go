package metadata

import (
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/varvelog/varve/segment"
)

// identityJSON is varve.json.
type identityJSON struct {
	Log     string `json:"log"` // 32 hexadecimal digits
	Version int    `json:"version"`
	Bucket  string `json:"bucket"`
	Prefix  string `json:"prefix"`
}

// EncodeIdentity is the content of varve.json.
func EncodeIdentity(id Identity) ([]byte, error) {
	return json.Marshal(identityJSON{hex.EncodeToString(id.Log[:]), id.Version, id.Bucket, id.Prefix})
}

// DecodeIdentity reads what EncodeIdentity wrote, or is ErrCorrupt.
func DecodeIdentity(b []byte) (id Identity, err error) {
	var j identityJSON
	if err = json.Unmarshal(b, &j); err != nil {
		return id, fmt.Errorf("%w: %s: %w", ErrCorrupt, segment.IdentityName, err)
	}
	log, err := hex.DecodeString(j.Log)
	if err != nil || len(log) != len(id.Log) {
		return id, fmt.Errorf("%w: %s: log %q is not %d hexadecimal digits", ErrCorrupt, segment.IdentityName, clip(j.Log), 2*len(id.Log))
	}
	copy(id.Log[:], log)
	id.Version, id.Bucket, id.Prefix = j.Version, j.Bucket, j.Prefix
	return id, nil
}
