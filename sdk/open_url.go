package sdk

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/varvelog/varve/segment/store/s3"
)

const validURL = "aws://BUCKET/PREFIX?table=TABLE&region=REGION, https://HOST, file:///DIR or mem://"

// parseURL checks what holds for log URLs of every scheme. Its errors never repeat what may be a secret.
func parseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil: // url's own error quotes the whole URL
		return nil, &FieldError{Field: "log URL", Value: "(not a URL)", Valid: validURL}
	case u.User != nil:
		return nil, &FieldError{Field: "log URL", Value: "(user information, not shown)", Valid: noKeys}
	case u.Scheme == "" || u.Opaque != "":
		return nil, &FieldError{Field: "log URL", Value: raw, Valid: validURL}
	case u.Fragment != "":
		return nil, &FieldError{Field: "log URL fragment", Value: u.Fragment, Valid: "none"}
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, &FieldError{Field: "log URL parameters", Value: "(malformed)", Valid: "name=value&name=value, percent-encoded"}
	}
	for name, values := range query {
		if looksSecret(name) || slices.ContainsFunc(values, namesUser) {
			return nil, &FieldError{Field: "log URL parameter", Value: name, Valid: noKeys}
		}
	}
	return u, nil
}

const noKeys = "a URL without credentials: URLs end up in logs and process lists. " +
	"Keys come from AWS's default chain: environment, shared config, profile (s3_profile=, dynamodb_profile=) or role"

func looksSecret(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{"key", "secret", "token", "password", "passwd", "credential", "signature"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// namesUser tells whether a parameter's value is a URL with user information, as an endpoint might be given, or might be one but for a mistake in it.
func namesUser(value string) bool {
	u, err := url.Parse(value)
	if err != nil {
		return strings.Contains(value, "@")
	}
	return u.User != nil
}

// awsURL is what an aws:// URL says. Empty fields were not given.
type awsURL struct {
	bucket, prefix                string
	table, region                 string
	s3Endpoint, s3Profile         string
	dynamoEndpoint, dynamoProfile string
	compat                        s3.Compat
}

// parseAWSURL reads aws://BUCKET/PREFIX with the parameters
//
//	table              the DynamoDB table; required
//	region             of both services; without it AWS's configuration must name one
//	s3_endpoint        http or https URL of an S3-compatible store
//	dynamodb_endpoint  http or https URL of a DynamoDB-compatible service
//	s3_profile         profile of the shared AWS configuration for the bucket
//	dynamodb_profile   the same for the table
//	path_style         true: the bucket's name goes into the path; false: into the host name; default: into the path unless the endpoint is Amazon's
//	s3_compat          what a look-alike of S3 needs done differently: names of s3.Compat, separated by commas
func parseAWSURL(u *url.URL) (awsURL, error) {
	a := awsURL{bucket: u.Host, prefix: strings.Trim(u.Path, "/")}
	if a.bucket == "" || u.Port() != "" {
		return a, &FieldError{Field: "bucket of the log URL", Value: u.Host, Valid: validURL}
	}
	if err := checkPrefix(a.prefix); err != nil {
		return a, err
	}
	fields := map[string]func(string) error{
		"table":             text(&a.table),
		"region":            text(&a.region),
		"s3_endpoint":       endpoint(&a.s3Endpoint),
		"dynamodb_endpoint": endpoint(&a.dynamoEndpoint),
		"s3_profile":        text(&a.s3Profile),
		"dynamodb_profile":  text(&a.dynamoProfile),
		"path_style":        pathStyle(&a.compat),
		"s3_compat":         compat(&a.compat),
	}
	if err := readQuery(u.Query(), fields); err != nil {
		return a, err
	}
	if a.table == "" {
		return a, &FieldError{Field: "log URL parameter table", Value: "", Valid: "the name of the DynamoDB table: " + validURL}
	}
	return a, nil
}

func checkPrefix(prefix string) error {
	bad := prefix == "" || !utf8.ValidString(prefix) || strings.ContainsFunc(prefix, unicode.IsControl)
	for part := range strings.SplitSeq(prefix, "/") {
		bad = bad || part == "" || part == "." || part == ".."
	}
	if bad {
		return &FieldError{Field: "prefix of the log URL", Value: prefix, Valid: "one or more names separated by /, as in aws://BUCKET/prod/orders"}
	}
	return nil
}

// readQuery hands each parameter, which may stand once, to its reader.
func readQuery(query url.Values, fields map[string]func(string) error) error {
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	for name, values := range query {
		read, ok := fields[name]
		if !ok {
			return &FieldError{Field: "log URL parameter", Value: name, Valid: "one of " + strings.Join(names, ", ")}
		}
		if len(values) != 1 {
			return &FieldError{Field: "log URL parameter " + name, Value: strings.Join(values, ", "), Valid: "one value"}
		}
		var want valid
		if err := read(values[0]); errors.As(err, &want) {
			return &FieldError{Field: "log URL parameter " + name, Value: values[0], Valid: string(want)}
		} else if err != nil {
			return fmt.Errorf("%w: log URL parameter %s: %w", ErrInvalid, name, err)
		}
	}
	return nil
}

// valid is what would have been valid, as an error.
type valid string

func (v valid) Error() string { return string(v) }

func text(to *string) func(string) error {
	return func(v string) error {
		if v == "" {
			return valid("a name, or leave the parameter out")
		}
		*to = v
		return nil
	}
}

func pathStyle(to *s3.Compat) func(string) error {
	return func(v string) error {
		switch v {
		case "true":
			*to |= s3.PathStyle
		case "false":
			*to |= s3.VirtualHost
		default:
			return valid("true or false")
		}
		return nil
	}
}

func compat(to *s3.Compat) func(string) error {
	return func(v string) error {
		c, err := s3.ParseCompat(v)
		*to |= c
		return err
	}
}

func endpoint(to *string) func(string) error {
	return func(v string) error {
		u, err := url.Parse(v)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" {
			return valid("http://HOST:PORT or https://HOST:PORT, without credentials")
		}
		*to = v
		return nil
	}
}
