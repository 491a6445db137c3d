package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// change is a plan with one change of a resource.
func change(kind, actions, before, after string) string {
	return fmt.Sprintf(`{"format_version":"1.2","resource_changes":[{"address":"module.x.%s.log","mode":"managed","type":%q,"change":{"actions":[%s],"before":%s,"after":%s}}]}`, kind, kind, actions, before, after)
}

// BR-51: a plan that deletes, replaces or forgets what has the data, or takes away what protects it, is refused; any other is not.
func TestBR51_PlansThatAreRefused(t *testing.T) {
	const guarded = `{"deletion_protection_enabled":true,"point_in_time_recovery":[{"enabled":true}],"ttl":[{"attribute_name":"ttl","enabled":true}]}`
	for name, c := range map[string]struct {
		plan string
		want string // in the one problem; "": there is none
	}{
		"the table goes":                   {change("aws_dynamodb_table", `"delete"`, guarded, "null"), "deletion of what has the data"},
		"the table is made anew":           {change("aws_dynamodb_table", `"delete","create"`, guarded, guarded), "replacement of what has the data"},
		"the table is made anew first":     {change("aws_dynamodb_table", `"create","delete"`, guarded, guarded), "replacement of what has the data"},
		"the bucket goes":                  {change("aws_s3_bucket", `"delete"`, "{}", "null"), "deletion of what has the data"},
		"the bucket is forgotten":          {change("aws_s3_bucket", `"forget"`, "{}", "null"), "forgetting of what has the data"},
		"versions are not kept":            {change("aws_s3_bucket_versioning", `"delete"`, "{}", "null"), "deletion of what protects the data"},
		"the bucket may be public":         {change("aws_s3_bucket_public_access_block", `"delete"`, "{}", "null"), "what protects"},
		"no deletion protection":           {change("aws_dynamodb_table", `"update"`, guarded, strings.Replace(guarded, "true", "false", 1)), "no deletion protection"},
		"no recovery":                      {change("aws_dynamodb_table", `"update"`, guarded, `{"deletion_protection_enabled":true,"ttl":[{"attribute_name":"ttl","enabled":true}]}`), "no point-in-time recovery"},
		"recovery off":                     {change("aws_dynamodb_table", `"update"`, guarded, strings.Replace(guarded, `[{"enabled":true}]`, `[{"enabled":false}]`, 1)), "no point-in-time recovery"},
		"another attribute deletes":        {change("aws_dynamodb_table", `"update"`, guarded, strings.Replace(guarded, `"ttl","enabled"`, `"p0","enabled"`, 1)), `by attribute "p0"`},
		"a new table":                      {change("aws_dynamodb_table", `"create"`, "null", guarded), ""},
		"nothing":                          {change("aws_dynamodb_table", `"no-op"`, guarded, guarded), ""},
		"a table that gets its protection": {change("aws_dynamodb_table", `"update"`, "{}", guarded), ""},
		"a function is made anew":          {change("aws_lambda_function", `"delete","create"`, "{}", "{}"), ""},
		"rules are set again":              {change("aws_s3_bucket_lifecycle_configuration", `"delete","create"`, "{}", "{}"), ""},
		"what is read goes":                {strings.Replace(change("aws_s3_bucket", `"delete"`, "{}", "null"), "managed", "data", 1), ""},
		"no changes":                       {`{"format_version":"1.2"}`, ""},
	} {
		problems, err := problemsOf([]byte(c.plan))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(problems) > 1 || (len(problems) == 1) != (c.want != "") || c.want != "" && (!strings.Contains(problems[0], c.want) || !strings.HasPrefix(problems[0], "module.x.")) {
			t.Errorf("%s: %q, %q is wanted", name, problems, c.want)
		}
	}
}

// A plan that is not understood is not taken for one that is harmless.
func TestBR51_PlansThatAreNotUnderstood(t *testing.T) {
	for _, bad := range []string{"", "{}", "[]", "null", `{"format_version":"2.0"}`, `{"format_version":"1.2","resource_changes":{}}`, "Plan: 1 to add"} {
		if problems, err := problemsOf([]byte(bad)); err == nil {
			t.Errorf("%q: %q", bad, problems)
		}
	}
}

func TestCheckPlan(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.json")
	var out strings.Builder
	if err := run(t.Context(), []string{"check-plan", path}, &out); err == nil {
		t.Error("a plan that is not there is harmless")
	}
	for plan, harmless := range map[string]bool{change("aws_s3_bucket", `"delete"`, "{}", "null"): false, change("aws_s3_bucket", `"create"`, "null", "{}"): true} {
		if err := os.WriteFile(path, []byte(plan), 0o600); err != nil {
			t.Fatal(err)
		}
		out.Reset()
		err := run(t.Context(), []string{"check-plan", path}, &out)
		if (err == nil) != harmless || harmless != (out.Len() == 0) {
			t.Errorf("%s: %v, %q", plan, err, out.String())
		}
	}
	for _, args := range [][]string{nil, {"check-plan"}, {"whoami", "x"}, {"nothing"}} {
		if err := run(t.Context(), args, io.Discard); err != errUsage {
			t.Errorf("%q: %v", args, err)
		}
	}
}
