package dynamo_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/dynamo"
)

// issuer gives out credentials, each different, or none.
type issuer struct {
	given int
	none  bool
}

func (i *issuer) Retrieve(context.Context) (aws.Credentials, error) {
	if i.none {
		return aws.Credentials{}, errors.New("the token service is down")
	}
	i.given++
	return aws.Credentials{AccessKeyID: fmt.Sprint("key", i.given), SecretAccessKey: "secret"}, nil
}

// BR-42: credentials that the service calls expired, whatever they say themselves, are renewed, once for all calls; the request that met it is known not to
// have been performed.
func TestBR42_ExpiredCredentialsAreRenewed(t *testing.T) {
	for name, wrap := range map[string]func(*issuer) aws.CredentialsProvider{
		"remembered by us":      func(i *issuer) aws.CredentialsProvider { return i },
		"remembered by the SDK": func(i *issuer) aws.CredentialsProvider { return aws.NewCredentialsCache(i) },
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{answer: func(n int, _ *http.Request) (*http.Response, error) {
				if n == 0 {
					return reply(400, refusal("ExpiredTokenException"))
				}
				return reply(400, refusal("ValidationException"))
			}}
			from := &issuer{}
			c := local(s)
			c.Credentials = wrap(from)
			table := openTable(t, dynamo.Config{AWS: c})
			_, err := table.Commit(t.Context(), commitTo(aHead, entry(1, 1, 0)))
			if !errors.Is(err, metadata.ErrUnavailable) || errors.Is(err, metadata.ErrOutcomeUnknown) {
				t.Errorf("the commit that met it: %v", err)
			}
			for range 3 {
				if _, err := table.Head(t.Context(), "lane", metadata.Strong); !errors.Is(err, metadata.ErrInvalid) {
					t.Errorf("after it: %v", err)
				}
			}
			if from.given != 2 {
				t.Errorf("credentials were given %d times, want 2", from.given)
			}
		})
	}
}

// BR-42: credentials that stay expired are refused, and not asked for again and again.
func TestBR42_CredentialsThatStayExpired(t *testing.T) {
	s := &script{answer: func(int, *http.Request) (*http.Response, error) { return reply(400, refusal("ExpiredTokenException")) }}
	table := openTable(t, dynamo.Config{AWS: local(s)})
	_, err := table.Head(t.Context(), "lane", metadata.Strong)
	if !errors.Is(err, metadata.ErrDenied) || s.requests() != 2 {
		t.Errorf("%v after %d requests", err, s.requests())
	}
}

// BR-42: no credentials to be had is told apart from credentials that are refused: a producer waits for them until its deadline.
func TestBR42_NoCredentialsToBeHad(t *testing.T) {
	s := &script{answer: func(int, *http.Request) (*http.Response, error) { return reply(400, refusal("ValidationException")) }}
	from := &issuer{none: true}
	c := local(s)
	c.Credentials = from
	table := openTable(t, dynamo.Config{AWS: c})
	_, err := table.Commit(t.Context(), commitTo(aHead, entry(1, 1, 0)))
	if !errors.Is(err, metadata.ErrNoCredentials) || !errors.Is(err, metadata.ErrDenied) || errors.Is(err, metadata.ErrOutcomeUnknown) || s.requests() != 0 {
		t.Errorf("%v, %d requests", err, s.requests())
	}
	from.none = false
	if _, err := table.Commit(t.Context(), commitTo(aHead, entry(1, 1, 0))); !errors.Is(err, metadata.ErrInvalid) {
		t.Errorf("when there are some again: %v", err)
	}
}
