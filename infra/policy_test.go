package infra_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The functions that are deployed, each with a policy of its own; and what forward may do besides where it has a topic for what it cannot send.
var functions = []string{"compact", "fetch", "forward", "ingest", "monitor", "produce", "retain", "sweep"}

const deadLetters = "forward-dead-letters"

var policies = sorted(append([]string{deadLetters}, functions...))

// What the placeholders of policies stand for here.
var places = map[string]string{
	"table":    "arn:aws:dynamodb:eu-central-1:123456789012:table/varve",
	"bucket":   "arn:aws:s3:::bucket",
	"objects":  "arn:aws:s3:::bucket/log",
	"failures": "arn:aws:sqs:eu-central-1:123456789012:varve-failures",
	"queue":    "arn:aws:sqs:eu-central-1:123456789012:varve-queue",
	"logs":     "arn:aws:logs:eu-central-1:123456789012:log-group:/aws/lambda/varve-function:*",
}

// texts is a string or a list of them, as policies have it.
type texts []string

func (t *texts) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*t = texts{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(t))
}

type statement struct {
	Sid       string
	Effect    string
	Action    texts
	Resource  texts
	Condition map[string]map[string]texts
}

type policy struct {
	Version   string
	Statement []statement
}

var placeholder = regexp.MustCompile(`\$\{([a-z]+)\}`)

// loadPolicy renders a function's policy as Terraform does. Placeholders and fields that this reader does not know fail the test.
func loadPolicy(t testing.TB, function string) *policy {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("modules", "functions", "policies", function+".json"))
	if err != nil {
		t.Fatal(err)
	}
	rendered := placeholder.ReplaceAllStringFunc(string(b), func(s string) string {
		arn, ok := places[s[2:len(s)-1]]
		if !ok {
			t.Errorf("%s.json: placeholder %s", function, s)
		}
		return arn
	})
	decoder := json.NewDecoder(strings.NewReader(rendered))
	decoder.DisallowUnknownFields()
	p := &policy{}
	if err := decoder.Decode(p); err != nil {
		t.Fatalf("%s.json: %v", function, err)
	}
	return p
}

// need is one thing that a request asks a role for. Keys are the partition keys of the items that it is about.
type need struct {
	Action, Resource string
	Keys             []string
}

func (n need) String() string { return fmt.Sprintf("%s on %s %q", n.Action, n.Resource, n.Keys) }

// like matches as IAM does: * is any text, ? any character.
func like(pattern, s string) bool {
	for i := range len(pattern) {
		switch {
		case pattern[i] == '*':
			for j := i; j <= len(s); j++ {
				if like(pattern[i+1:], s[j:]) {
					return true
				}
			}
			return false
		case i >= len(s) || pattern[i] != '?' && pattern[i] != s[i]:
			return false
		}
	}
	return len(pattern) == len(s)
}

func TestLike(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		is         bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"ab", "a", false}, {"a*", "a", true}, {"a*", "abc", true}, {"*c", "abc", true}, {"*b", "abc", false}, {"a?c", "abc", true}, {"a?c", "ac", false},
		{"a*b*c", "a1b2b3c", true}, {"a*b*c", "a1c", false}, {"*", "", true}, {"", "", true}, {"L#*", "L#x", true}, {"L#*", "l#x", false}, {"a.c", "abc", false},
	} {
		if like(c.pattern, c.s) != c.is {
			t.Errorf("%q matches %q: %t", c.pattern, c.s, !c.is)
		}
	}
}

func (t texts) match(s string) bool {
	return slices.ContainsFunc(t, func(pattern string) bool { return like(pattern, s) })
}

const (
	forAll      = "ForAllValues:StringLike"
	leadingKeys = "dynamodb:LeadingKeys"
)

// keys are the partition keys that the statement is restricted to; nil: to none.
func (s *statement) keys() texts { return s.Condition[forAll][leadingKeys] }

func (s *statement) allows(n need) bool {
	if s.Effect != "Allow" || !s.Action.match(n.Action) || !s.Resource.match(n.Resource) {
		return false
	}
	keys := s.keys()
	return keys == nil || !slices.ContainsFunc(n.Keys, func(k string) bool { return !keys.match(k) })
}

func (p *policy) allows(n need) bool {
	return slices.ContainsFunc(p.Statement, func(s statement) bool { return s.allows(n) })
}

// What each policy is made of: nothing that this reader would pass over, no wildcard action, no resource that is a wildcard.
func TestPoliciesAreClosed(t *testing.T) {
	found, err := filepath.Glob("modules/functions/policies/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		found[i] = strings.TrimSuffix(filepath.Base(found[i]), ".json")
	}
	if !slices.Equal(sorted(found), policies) {
		t.Errorf("policies %q, wanted are %q", found, policies)
	}
	for _, f := range policies {
		sids := map[string]bool{}
		for _, s := range loadPolicy(t, f).Statement {
			at := f + ".json, " + s.Sid
			if s.Sid == "" || sids[s.Sid] || s.Effect != "Allow" || len(s.Action) == 0 || len(s.Resource) == 0 {
				t.Errorf("%s: %+v", at, s)
			}
			sids[s.Sid] = true
			for _, a := range s.Action {
				if strings.ContainsAny(a, "*?") {
					t.Errorf("%s: wildcard action %s", at, a)
				}
			}
			for _, r := range s.Resource {
				if !strings.HasPrefix(r, "arn:aws:") || strings.Count(r, ":") < 5 || slices.Contains(strings.Split(r, ":")[:5], "*") || strings.HasSuffix(r, ":*") && r != places["logs"] {
					t.Errorf("%s: resource %s", at, r)
				}
				if strings.HasPrefix(r, "arn:aws:s3:::") && r != places["bucket"] && !strings.HasPrefix(r, places["objects"]+"/") {
					t.Errorf("%s: resource %s is not below the log's prefix", at, r)
				}
			}
			for operator, keys := range s.Condition {
				if operator != forAll || len(keys) != 1 || len(keys[leadingKeys]) == 0 {
					t.Errorf("%s: condition %s %v", at, operator, keys)
				}
			}
			if table := s.Resource.match(places["table"]); table != (s.keys() != nil) {
				t.Errorf("%s: rights in the table are restricted to partition keys, and only they are", at)
			}
		}
	}
}

// Only the sweep deletes objects and what names them; nobody makes, lists or deletes tables and buckets, reads a whole table, or deletes a version for good.
func TestWhatNobodyMay(t *testing.T) {
	object := places["objects"] + "/r7d/intake/00/x"
	for _, f := range policies {
		p := loadPolicy(t, f)
		if p.allows(need{"s3:DeleteObject", object, nil}) != (f == "sweep") {
			t.Errorf("%s: s3:DeleteObject", f)
		}
		for _, key := range []string{"C#lane", "X#00", "D#00", "GONE", "L#lane", "A#lane"} {
			for _, action := range []string{"dynamodb:DeleteItem", "dynamodb:BatchWriteItem"} {
				if p.allows(need{action, places["table"], []string{key}}) && f != "sweep" {
					t.Errorf("%s: %s of %s", f, action, key)
				}
			}
		}
		for _, action := range []string{"dynamodb:Scan", "dynamodb:CreateTable", "dynamodb:DeleteTable", "dynamodb:UpdateTable", "dynamodb:UpdateTimeToLive", "dynamodb:PartiQLSelect", "dynamodb:PartiQLDelete"} {
			if p.allows(need{action, places["table"], nil}) {
				t.Errorf("%s: %s", f, action)
			}
		}
		for _, action := range []string{"s3:DeleteObjectVersion", "s3:PutObjectAcl", "s3:GetObjectVersion", "s3:PutBucketPolicy", "s3:DeleteBucket", "s3:PutBucketVersioning"} {
			if p.allows(need{action, object, nil}) || p.allows(need{action, places["bucket"], nil}) {
				t.Errorf("%s: %s", f, action)
			}
		}
		if p.allows(need{"s3:PutLifecycleConfiguration", places["bucket"], nil}) != (f == "retain") {
			t.Errorf("%s: s3:PutLifecycleConfiguration", f)
		}
		if p.allows(need{"dynamodb:PutItem", places["table"], []string{"LOG"}}) || p.allows(need{"s3:PutObject", places["objects"] + "/varve.json", nil}) {
			t.Errorf("%s may make a log", f)
		}
		if p.allows(need{"dynamodb:PutItem", places["table"], []string{"TOPIC"}}) || p.allows(need{"dynamodb:DeleteItem", places["table"], []string{"TOPIC"}}) {
			t.Errorf("%s may make or delete topics", f)
		}
		for _, key := range []string{"L#a", "M#a"} { // one key that is allowed does not allow the others of a request
			if p.allows(need{"dynamodb:BatchWriteItem", places["table"], []string{"C#a", key, "TOPIC"}}) {
				t.Errorf("%s: a batch of C#a, %s and TOPIC", f, key)
			}
		}
	}
}
