package sdk

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/varvelog/varve/segment/store/s3"
)

func TestParseAWSURL(t *testing.T) {
	for raw, want := range map[string]awsURL{
		"aws://b/p?table=t&region=eu-central-1": {bucket: "b", prefix: "p", table: "t", region: "eu-central-1"},
		"aws://my.bucket/prod/a%20b/?table=t":   {bucket: "my.bucket", prefix: "prod/a b", table: "t"},
		"aws://b/p?table=t&region=r&s3_endpoint=http://127.0.0.1:9000&dynamodb_endpoint=http%3A%2F%2Flocalhost%3A8000&s3_profile=x&dynamodb_profile=y&path_style=true&s3_compat=no-checksum": {
			bucket: "b", prefix: "p", table: "t", region: "r", s3Endpoint: "http://127.0.0.1:9000", dynamoEndpoint: "http://localhost:8000", s3Profile: "x", dynamoProfile: "y",
			compat: s3.PathStyle | s3.NoChecksum},
		"aws://b/p?table=t&path_style=false": {bucket: "b", prefix: "p", table: "t", compat: s3.VirtualHost},
	} {
		u, err := parseURL(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if got, err := parseAWSURL(u); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v\nwant %+v", raw, got, err, want)
		}
	}
}

func TestLogURLRefuses(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                           "aws://BUCKET/PREFIX",
		"bucket/prefix":                              "aws://BUCKET/PREFIX",
		"aws:bucket":                                 "aws://BUCKET/PREFIX",
		"aws:///p?table=t":                           "bucket",
		"aws://b:9000/p?table=t":                     "bucket",
		"aws://b?table=t":                            "prefix",
		"aws://b/?table=t":                           "prefix",
		"aws://b/a/../c?table=t":                     "prefix",
		"aws://b/a//c?table=t":                       "prefix",
		"aws://b/a%0ac?table=t":                      "prefix",
		"aws://b/a%ffc?table=t":                      "prefix",
		"aws://b/p":                                  "parameter table",
		"aws://b/p?table=":                           "parameter table",
		"aws://b/p?table=t&regoin=r":                 "dynamodb_endpoint, dynamodb_profile, path_style, region, s3_compat, s3_endpoint, s3_profile, table",
		"aws://b/p?table=t&table=u":                  "one value",
		"aws://b/p?table=t&path_style=yes":           "true or false",
		"aws://b/p?table=t&s3_compat=nonsense":       "no-checksum",
		"aws://b/p?table=t&s3_endpoint=host:1":       "http://HOST:PORT",
		"aws://b/p?table=t&s3_endpoint=http://u:p@h": "default chain",
		"aws://b/p?table=t#f":                        "fragment",
		"aws://b/p?table=%zz":                        "parameters",
		"aws://b/p?a;b":                              "parameters",
	} {
		u, err := parseURL(raw)
		if err == nil {
			_, err = parseAWSURL(u)
		}
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an ErrInvalid that contains %q", raw, err, want)
		}
	}
}

// A key in a URL is refused, and the error does not carry it on.
func TestLogURLWithKeys(t *testing.T) {
	for _, raw := range []string{
		"aws://AKIAEXAMPLE:HUSH@b/p?table=t",
		"aws://HUSH@b/p?table=t",
		"aws://b/p?table=t&secret_access_key=HUSH",
		"aws://b/p?table=t&aws_session_token=HUSH",
		"aws://b/p?table=t&AccessKeyId=HUSH",
		"aws://b/p?table=t&Password=HUSH",
		"aws://A:HUSH@b:x y/p",
		"aws://b/p?table=t&region=r&dynamodb_endpoint=http://A:HUSH@h:8000",
		"aws://b/p?table=t&region=r&s3_endpoint=http://A:HU%20HUSH@h:8000",
		"file://u:HUSH@h/dir",
		"mem://?token=HUSH",
	} {
		_, err := Open(t.Context(), raw)
		if !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "HUSH") {
			t.Errorf("%s: %v", raw, err)
		}
		if !strings.Contains(raw, "x y") && !strings.Contains(err.Error(), "default chain") {
			t.Errorf("%s: %v does not say where keys come from", raw, err)
		}
	}
}
