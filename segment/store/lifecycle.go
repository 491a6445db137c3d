package store

import "context"

// Lifecycle is what a bucket deletes and moves by itself, by rules for the keys with a prefix. It is the whole bucket's: other users of the bucket have rules in it.
type Lifecycle interface {
	// Rules returns the bucket's rules, none if it has no configuration. ErrDenied needs the right to read it (s3:GetLifecycleConfiguration).
	Rules(ctx context.Context) (*Rules, error)
	// SetRules replaces all of the bucket's rules. The service knows no condition, so a change by somebody else since Rules is lost. ErrConfig if it takes
	// a rule not at all; ErrDenied needs s3:PutLifecycleConfiguration.
	SetRules(ctx context.Context, r *Rules) error
}

// Rules is a bucket's lifecycle configuration.
type Rules struct {
	List []Rule
	// Sizes is how the bucket decides which objects are too small to be moved, as the service names it; "" is its default.
	Sizes string
}

// MaxRules is how many rules a bucket can have.
const MaxRules = 1000

// Rule is one lifecycle rule. One that was read is written back as the service had it, also what this build does not know of it; a new one is written by its
// fields.
type Rule struct {
	ID      string `json:"id"`
	Prefix  string `json:"prefix"` // of the keys in the bucket, the log's prefix included
	Enabled bool   `json:"enabled"`
	Days    int    `json:"days,omitempty"`  // objects are deleted that long after their creation; 0: they are not
	Date    string `json:"date,omitempty"`  // or at that date; "" none. New rules have none
	Abort   int    `json:"abort,omitempty"` // days after which the parts of an upload that was not completed are deleted; 0: they are not
	Moves   []Move `json:"moves,omitempty"`
	Tagged  bool   `json:"tagged,omitempty"` // it is only for objects with a tag, which a log's have not
	More    bool   `json:"more,omitempty"`   // there is more to it than these fields say
	Raw     string `json:"-"`                // what the service wrote inside of the rule; "" for a new one
}

// Move is when objects go to another storage class.
type Move struct {
	Days int    `json:"days"`
	To   string `json:"to"` // as the service names it: "STANDARD_IA"
}
