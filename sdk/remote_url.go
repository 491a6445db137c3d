package sdk

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"

	"github.com/varvelog/varve/internal/env"
)

const validRemote = "https://HOST[/STAGE][?region=REGION][&produce=URL][&profile=PROFILE]; http:// on this machine only"

// tokenVariable is the environment's name of the bearer token. A URL ends up in logs and process lists.
const tokenVariable = "VARVE_TOKEN"

// remoteURL is what an https:// URL says. Empty fields were not given.
type remoteURL struct {
	base, produce   *url.URL
	region, profile string
}

// parseRemoteURL reads https://HOST[/STAGE] with the parameters
//
//	region   of the functions, by which requests are signed; a function URL's own host name says it
//	produce  URL of the function that appends, instead of the one that the function at HOST names
//	profile  of the shared AWS configuration
func parseRemoteURL(u *url.URL) (remoteURL, error) {
	var at remoteURL
	base, err := serviceURL(u.Scheme + "://" + u.Host + u.EscapedPath())
	if err != nil {
		return at, &FieldError{Field: "log URL", Value: u.Redacted(), Valid: validRemote}
	}
	at.base = base
	produce := func(v string) (err error) {
		at.produce, err = serviceURL(v)
		return err
	}
	err = readQuery(u.Query(), map[string]func(string) error{"region": text(&at.region), "profile": text(&at.profile), "produce": produce})
	return at, err
}

// serviceURL reads the URL of a function or server, without its trailing slash.
func serviceURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
		return nil, valid("https://HOST[/STAGE], without credentials or parameters; http:// on this machine only")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	return u, nil
}

func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// producer is the URL that the function for reads names for appends, or its own. A bearer token is for the host that it was given for: it follows no
// answer to another one.
func (at remoteURL) producer(named string, keys auth) (*url.URL, error) {
	if named == "" {
		return at.base, nil
	}
	u, err := serviceURL(named)
	if err != nil {
		return nil, fmt.Errorf("%w: %s names a function for appends whose URL is no such URL: %w", ErrInvalid, at.base.Host, err)
	}
	if _, bearer := keys.(bearer); bearer && u.Host != at.base.Host {
		return nil, &FieldError{Field: "log URL parameter produce", Value: "",
			Valid: fmt.Sprintf("the URL of the function that appends: %s names %s, another host, to which %s is not sent unasked", at.base.Host, u.Host, tokenVariable)}
	}
	return u, nil
}

// auth is how requests are signed: by SigV4 where a region is known, which function URLs say themselves; else with the token of the environment; and
// not at all on this machine.
func (at remoteURL) auth(ctx context.Context, e env.Env) (auth, error) {
	region := at.region
	if region == "" {
		region = regionOf(at.base.Hostname())
	}
	if region == "" {
		return at.tokenAuth()
	}
	c, err := config.LoadDefaultConfig(ctx, config.WithRegion(region), config.WithSharedConfigProfile(at.profile), config.WithLogger(logging.Nop{}))
	if err != nil {
		return nil, fmt.Errorf("%w: AWS configuration: %w", ErrInvalid, err)
	}
	return newSigner(region, c.Credentials, e), nil
}

func (at remoteURL) tokenAuth() (auth, error) {
	token := os.Getenv(tokenVariable)
	switch {
	case at.profile != "":
		return nil, &FieldError{Field: "log URL parameter profile", Value: at.profile, Valid: "only together with region: without one requests are not signed"}
	case token == "" && at.base.Scheme == "http":
		return nobody{}, nil
	case token == "":
		return nil, &FieldError{Field: "log URL parameter region", Value: "", Valid: "the region of the function, by which requests are signed; or set " + tokenVariable}
	case strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }):
		return nil, &FieldError{Field: tokenVariable, Value: "(not shown)", Valid: "printable ASCII without spaces"}
	}
	return bearer(token), nil
}

// regionOf is the region in the host name of a function URL, ID.lambda-url.REGION.on.aws.
func regionOf(host string) string {
	labels := strings.Split(strings.ToLower(host), ".")
	if n := len(labels); n >= 5 && labels[n-1] == "aws" && labels[n-2] == "on" && labels[n-4] == "lambda-url" {
		return labels[n-3]
	}
	return ""
}
