package s3

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/varvelog/varve/segment/store"
)

var _ store.Lifecycle = (*Store)(nil)

// The client library has calls for lifecycle configurations, but what it does not know of a rule, such as a second move, it loses between reading and writing.
// A bucket's rules belong to others too. So the requests are made here, of URLs that the library signs, and rules are kept as the service wrote them.

const (
	urlTime      = time.Minute
	maxLifecycle = 4 << 20 // of the configuration's text: a thousand rules take a tenth of it
	sizesHeader  = "X-Amz-Transition-Default-Minimum-Object-Size"
	namespace    = "http://s3.amazonaws.com/doc/2006-03-01/"
)

// Rules implements store.Lifecycle.
func (s *Store) Rules(ctx context.Context) (*store.Rules, error) {
	var rules *store.Rules
	err := s.do(ctx, call{op: store.OpGetRules, name: s.cfg.Bucket, try: func(ctx context.Context, c *client) error {
		header, body, err := s.lifecycle(ctx, c, http.MethodGet, nil, nil)
		var answer minio.ErrorResponse
		if errors.As(err, &answer) && answer.Code == "NoSuchLifecycleConfiguration" {
			rules = &store.Rules{}
			return nil
		}
		if err != nil {
			return err
		}
		rules, err = decodeRules(body)
		if err == nil {
			rules.Sizes = header.Get(sizesHeader)
		}
		return err
	}})
	return rules, err
}

// SetRules implements store.Lifecycle. A configuration without rules is removed: the service takes no empty one.
func (s *Store) SetRules(ctx context.Context, r *store.Rules) error {
	body, err := encodeRules(r)
	if err != nil {
		return store.Fail(store.OpSetRules, s.cfg.Bucket, err)
	}
	method, header := http.MethodPut, http.Header{}
	if len(r.List) == 0 {
		method, body = http.MethodDelete, nil
	} else {
		sum := md5.Sum(body)
		header.Set("Content-Md5", base64.StdEncoding.EncodeToString(sum[:]))
		if r.Sizes != "" {
			header.Set(sizesHeader, r.Sizes)
		}
	}
	return s.do(ctx, call{op: store.OpSetRules, name: s.cfg.Bucket, size: int64(len(body)), try: func(ctx context.Context, c *client) error {
		_, _, err := s.lifecycle(ctx, c, method, header, body)
		return err
	}})
}

// lifecycle sends one request about the bucket's configuration.
func (s *Store) lifecycle(ctx context.Context, c *client, method string, header http.Header, body []byte) (http.Header, []byte, error) {
	u, err := c.PresignHeader(ctx, method, s.cfg.Bucket, "", urlTime, url.Values{"lifecycle": {""}}, header)
	if err != nil {
		return nil, nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	for name, values := range header {
		r.Header[name] = values
	}
	resp, err := counting{s.cfg.Transport}.RoundTrip(r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, maxLifecycle+1))
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("%w: %w", errBroken, err)
	case resp.StatusCode/100 == 2 && len(got) > maxLifecycle:
		return nil, nil, fmt.Errorf("%w: a lifecycle configuration of over %d bytes", store.ErrConfig, maxLifecycle)
	case resp.StatusCode/100 == 2:
		return resp.Header, got, nil
	}
	var answer minio.ErrorResponse
	if xml.Unmarshal(got, &answer) != nil {
		answer.Message = resp.Status
	}
	answer.StatusCode = resp.StatusCode
	return nil, nil, answer
}

// rulesXML is a lifecycle configuration. Of every rule, and within it of what can say more than a store.Rule, the names of all elements are read.
type rulesXML struct {
	Rules []ruleXML `xml:"Rule"`
}

type ruleXML struct {
	Raw         string `xml:",innerxml"`
	ID          string
	Status      string
	Prefix      string
	Filter      *filterXML
	Expiration  *expirationXML
	Transitions []moveXML `xml:"Transition"`
	Abort       int       `xml:"AbortIncompleteMultipartUpload>DaysAfterInitiation"`
	Others      []nameXML `xml:",any"`
}

type filterXML struct {
	Prefix string
	Tag    *nameXML
	And    *struct {
		Prefix string
		Tags   []nameXML `xml:"Tag"`
		Others []nameXML `xml:",any"`
	}
	Others []nameXML `xml:",any"`
}

type expirationXML struct {
	Days   int
	Date   string
	Others []nameXML `xml:",any"`
}

type moveXML struct {
	Days   int
	To     string    `xml:"StorageClass"`
	Others []nameXML `xml:",any"`
}

type nameXML struct{ XMLName xml.Name }

func decodeRules(body []byte) (*store.Rules, error) {
	var x rulesXML
	if err := xml.Unmarshal(body, &x); err != nil {
		return nil, fmt.Errorf("%w: the lifecycle configuration cannot be read: %w", store.ErrConfig, err)
	}
	rules := &store.Rules{}
	for _, r := range x.Rules {
		rules.List = append(rules.List, r.rule())
	}
	return rules, nil
}

func (x *ruleXML) rule() store.Rule {
	r := store.Rule{ID: x.ID, Prefix: x.Prefix, Enabled: x.Status == "Enabled", Abort: x.Abort, More: len(x.Others) > 0, Raw: x.Raw}
	if f := x.Filter; f != nil {
		r.Prefix, r.Tagged, r.More = f.Prefix, f.Tag != nil, r.More || len(f.Others) > 0
		if f.And != nil {
			r.Prefix, r.Tagged, r.More = f.And.Prefix, len(f.And.Tags) > 0, r.More || len(f.And.Others) > 0
		}
	}
	if e := x.Expiration; e != nil {
		r.Days, r.Date, r.More = e.Days, e.Date, r.More || len(e.Others) > 0
	}
	for _, m := range x.Transitions {
		r.Moves = append(r.Moves, store.Move{Days: m.Days, To: m.To})
		r.More = r.More || len(m.Others) > 0
	}
	return r
}

func encodeRules(r *store.Rules) ([]byte, error) {
	b := new(bytes.Buffer)
	fmt.Fprintf(b, "<LifecycleConfiguration xmlns=%q>", namespace)
	for i := range r.List {
		b.WriteString("<Rule>")
		if raw := r.List[i].Raw; raw != "" {
			b.WriteString(raw)
		} else if err := encodeRule(b, &r.List[i]); err != nil {
			return nil, err
		}
		b.WriteString("</Rule>")
	}
	b.WriteString("</LifecycleConfiguration>")
	return b.Bytes(), nil
}

// newRuleXML is a new rule; elements that are not in it are left out.
type newRuleXML struct {
	ID          string
	Filter      struct{ Prefix string }
	Status      string
	Expiration  *struct{ Days int }
	Transitions []newMoveXML                       `xml:"Transition"`
	Abort       *struct{ DaysAfterInitiation int } `xml:"AbortIncompleteMultipartUpload"`
}

type newMoveXML struct {
	Days         int
	StorageClass string
}

func encodeRule(b *bytes.Buffer, r *store.Rule) error {
	x := newRuleXML{ID: r.ID, Status: "Disabled"}
	x.Filter.Prefix = r.Prefix
	if r.Enabled {
		x.Status = "Enabled"
	}
	if r.Days > 0 {
		x.Expiration = &struct{ Days int }{r.Days}
	}
	for _, m := range r.Moves {
		x.Transitions = append(x.Transitions, newMoveXML{m.Days, m.To})
	}
	if r.Abort > 0 {
		x.Abort = &struct{ DaysAfterInitiation int }{r.Abort}
	}
	text, err := xml.Marshal(x)
	if err != nil {
		return err
	}
	text = bytes.TrimSuffix(bytes.TrimPrefix(text, []byte("<newRuleXML>")), []byte("</newRuleXML>"))
	b.Write(text)
	return nil
}
