package sdk

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/varvelog/varve/internal/env"
)

// Option changes one setting of Open.
type Option func(*openConfig)

// openConfig is every setting of Open. Defaults are in defaultOpenConfig, checks in check.
type openConfig struct {
	drivers     []Driver
	hooks       hooks
	env         env.Env
	createTable bool
	lostTable   bool
	transport   http.RoundTripper
}

func defaultOpenConfig() openConfig {
	return openConfig{drivers: []Driver{awsDriver{}}, env: env.System()}
}

// WithDriver adds the schemes that the driver opens. Without one only aws:// is known; localdev/embedded has the driver for file:// and mem://.
func WithDriver(d Driver) Option { return func(c *openConfig) { c.drivers = append(c.drivers, d) } }

// WithHooks adds observers, each of which implements at least one of the hook interfaces (PutHook, CommitHook, SettleHook, FetchHook,
// ResetHook, TombstonesHook, TopicGoneHook, RequestHook). They hear of everything done through the log, by its producers and readers too.
func WithHooks(hs ...Hook) Option { return func(c *openConfig) { c.hooks = append(c.hooks, hs...) } }

// WithCreateTable lets Open create the table when there is none: that of aws:// on demand capacity, waiting until it is usable; that of file:// with
// its directory. Default: a missing table is ErrNoLog and nothing is created, so that a mistyped name stays an error. mem:// needs no leave.
func WithCreateTable() Option { return func(c *openConfig) { c.createTable = true } }

// WithLostTable gives a table without identity that of the bucket: the log's table was lost, and is about to be repaired from the bucket. Default: that is
// ErrWrongLog, so that nobody writes to a log whose records its table does not know.
func WithLostTable() Option { return func(c *openConfig) { c.lostTable = true } }

// WithTransport sends the requests of https:// through t: a proxy, certificates of one's own, or a wrapper that observes. Default: a transport of the log's own
// with up to 128 connections to a host. Redirects are never followed. It does nothing for other schemes.
func WithTransport(t http.RoundTripper) Option { return func(c *openConfig) { c.transport = t } }

// WithEnv replaces clock, chance and pause points. It is for varve's own tests.
func WithEnv(e env.Env) Option { return func(c *openConfig) { c.env = e } }

// check returns a *FieldError for the first setting that makes no sense.
func (c *openConfig) check() error {
	opens := map[string]bool{}
	for i, d := range c.drivers {
		if d == nil {
			return &FieldError{Field: "driver", Value: "nil", Valid: "a driver, such as embedded.Driver()"}
		}
		for _, scheme := range d.Schemes() {
			if opens[scheme] {
				return &FieldError{Field: fmt.Sprintf("driver %d", i), Value: scheme, Valid: "a driver of schemes that no other driver opens"}
			}
			opens[scheme] = true
		}
	}
	for i, h := range c.hooks {
		if !observes(h) {
			return &FieldError{Field: fmt.Sprintf("hook %d", i), Value: fmt.Sprintf("%T", h),
				Valid: "a value that implements one of PutHook, CommitHook, SettleHook, FetchHook, ResetHook, TombstonesHook, TopicGoneHook, RequestHook"}
		}
	}
	return nil
}

// driver finds who opens the scheme.
func (c *openConfig) driver(scheme string) (Driver, error) {
	var known []string
	for _, d := range c.drivers {
		for _, s := range d.Schemes() {
			if s == scheme {
				return d, nil
			}
			known = append(known, s+"://")
		}
	}
	valid := strings.Join(append(known, "https://"), ", ")
	if scheme == "file" || scheme == "mem" {
		valid += "; for file:// and mem:// open with sdk.WithDriver(embedded.Driver()) of package localdev/embedded"
	}
	return nil, &FieldError{Field: "log URL scheme", Value: scheme, Valid: valid}
}
