package miniotest

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/minio"
)

// Issuer is an STS that gives real session credentials of a MinIO for a web identity, and a gate before that MinIO which refuses them as S3 does
// once they are over: MinIO's own hold for a quarter of an hour at least, and cannot be ended early.
type Issuer struct {
	// STS and S3 are the endpoints of the two.
	STS, S3 string

	server *minio.Server
	token  string
	env    env.Env

	mu      sync.Mutex
	life    time.Duration
	down    bool
	current string               // access key of the latest credentials
	until   map[string]time.Time // by access key
	refused int                  // requests at the gate
	asked   int                  // at the STS, while it was down
}

// NewIssuer starts both servers. The STS gives credentials that hold for life, to who shows the token.
func NewIssuer(t testing.TB, s *minio.Server, token string, life time.Duration) *Issuer {
	t.Helper()
	i := &Issuer{server: s, token: token, env: env.System(), life: life, until: map[string]time.Time{}}
	i.STS = Serve(t, http.HandlerFunc(i.assumeRole))
	target, err := url.Parse(s.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // which is signed
	}}
	i.S3 = Serve(t, i.gate(proxy))
	return i
}

// Environment makes the test's default credentials those of the issuer, by web identity.
func (i *Issuer) Environment(t testing.TB, pairs ...string) {
	t.Helper()
	Environment(t, append([]string{"AWS_ENDPOINT_URL_STS", i.STS, "AWS_REGION", minio.Region, "AWS_ROLE_ARN", roleARN,
		"AWS_ROLE_SESSION_NAME", "varve-test", "AWS_WEB_IDENTITY_TOKEN_FILE", WriteFile(t, i.token)}, pairs...)...)
}

// SetLife changes for how long credentials hold that are given from now on.
func (i *Issuer) SetLife(life time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.life = life
}

// SetDown makes the STS refuse, or well again.
func (i *Issuer) SetDown(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// Expire makes S3 call the latest credentials expired, whatever the STS said of them.
func (i *Issuer) Expire() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.until[i.current] = time.Time{}
}

// Counts returns how many credentials were given, how many requests S3 refused because theirs were over, and how often the STS was asked in
// vain.
func (i *Issuer) Counts() (given, refused, vain int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.until), i.refused, i.asked
}

const roleARN = "arn:aws:iam::123456789012:role/varve-test"

// assumed is the answer of an STS.
type assumed struct {
	XMLName xml.Name  `xml:"https://sts.amazonaws.com/doc/2011-06-15/ AssumeRoleWithWebIdentityResponse"`
	Key     string    `xml:"AssumeRoleWithWebIdentityResult>Credentials>AccessKeyId"`
	Secret  string    `xml:"AssumeRoleWithWebIdentityResult>Credentials>SecretAccessKey"`
	Token   string    `xml:"AssumeRoleWithWebIdentityResult>Credentials>SessionToken"`
	Until   time.Time `xml:"AssumeRoleWithWebIdentityResult>Credentials>Expiration"`
}

func (i *Issuer) assumeRole(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("Action") != "AssumeRoleWithWebIdentity" || r.FormValue("RoleArn") != roleARN || r.FormValue("WebIdentityToken") != i.token {
		refuse(w, http.StatusBadRequest, "<ErrorResponse>%s</ErrorResponse>", "ValidationError")
		return
	}
	a, err := i.issue(r)
	if err != nil {
		refuse(w, http.StatusForbidden, "<ErrorResponse>%s</ErrorResponse>", "AccessDenied")
		return
	}
	w.Header().Set("Content-Type", "text/xml")
	xml.NewEncoder(w).Encode(a)
}

// issue asks MinIO for session credentials.
func (i *Issuer) issue(r *http.Request) (assumed, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.down {
		i.asked++
		return assumed{}, fmt.Errorf("told to be down")
	}
	access, secret := i.server.Credentials()
	c, err := credentials.NewSTSAssumeRole(i.server.Endpoint(), credentials.STSAssumeRoleOptions{AccessKey: access, SecretKey: secret, Location: minio.Region})
	if err != nil {
		return assumed{}, err
	}
	v, err := c.GetWithContext(&credentials.CredContext{Context: r.Context(), Client: http.DefaultClient})
	if err != nil {
		return assumed{}, err
	}
	i.current = v.AccessKeyID
	i.until[v.AccessKeyID] = i.env.Now().Add(i.life)
	return assumed{Key: v.AccessKeyID, Secret: v.SecretAccessKey, Token: v.SessionToken, Until: i.until[v.AccessKeyID].UTC()}, nil
}

var signedBy = regexp.MustCompile(`Credential=([^/]+)/`)

// gate lets through what is signed with credentials that hold, and what is for MinIO itself to refuse.
func (i *Issuer) gate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if key := signedBy.FindStringSubmatch(r.Header.Get("Authorization")); key != nil && i.over(key[1]) {
			refuse(w, http.StatusBadRequest, "%s", "ExpiredToken")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (i *Issuer) over(key string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	until, ours := i.until[key]
	if !ours || i.env.Now().Before(until) {
		return false
	}
	i.refused++
	return true
}

// refuse answers with an error, which the two services wrap differently.
func refuse(w http.ResponseWriter, status int, wrap, code string) {
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, wrap, "<Error><Code>"+code+"</Code><Message>said on purpose</Message></Error>")
}
