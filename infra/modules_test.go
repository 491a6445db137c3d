package infra_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	client "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/functions/environment"
	"github.com/varvelog/varve/functions/monitor"
	"github.com/varvelog/varve/sdk"
)

// The table of the module is the table that varve would make, and what DynamoDB deletes by itself are members of groups, which nothing else can be.
func TestTableIsWhatTheCodeUses(t *testing.T) {
	table := parseDir(t, "modules/table").only(t, "resource", "aws_dynamodb_table", "log")
	ttl := table.only(t, "ttl")
	if ttl.Attrs["enabled"] != "true" {
		t.Error("the time to live is not enabled")
	}
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		owner := c.open(admin, sdk.WithCreateTable())
		defer owner.Close()
		_, err := owner.Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: "flights", Partitions: 2})
		check(t, err)
		check(t, appendTo(t.Context(), owner, "flights", 10))
		member, err := owner.NewConsumer(t.Context(), "g", []string{"flights"})
		check(t, err)
		defer member.Close(t.Context())
		time.Sleep(time.Minute)

		raw := client.NewFromConfig(aws.Config{Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""), HTTPClient: roleDriver{c, admin}, BaseEndpoint: aws.String("http://dynamodb")})
		made, err := raw.DescribeTable(t.Context(), &client.DescribeTableInput{TableName: aws.String("varve")})
		check(t, err)
		sameTable(t, table, made.Table)
		all, err := raw.Scan(t.Context(), &client.ScanInput{TableName: aws.String("varve")})
		check(t, err)
		members := 0
		for _, item := range all.Items {
			sk := item["sk"].(*types.AttributeValueMemberS).Value
			value := item[unquote(ttl.Attrs["attribute_name"])]
			if value == nil {
				continue
			}
			if !strings.HasPrefix(sk, "M#") {
				t.Errorf("an item %s would be deleted by its %s", sk, ttl.Attrs["attribute_name"])
			}
			n, ok := value.(*types.AttributeValueMemberN)
			if !ok {
				t.Fatalf("%s of %s is no number", ttl.Attrs["attribute_name"], sk)
			}
			if at, err := strconv.ParseInt(n.Value, 10, 64); err != nil || time.Unix(at, 0).Before(time.Now()) {
				t.Errorf("%s goes at %s, %v", sk, n.Value, err)
			}
			members++
		}
		if members != 1 || len(all.Items) < 7 {
			t.Errorf("%d of %d items have a %s", members, len(all.Items), ttl.Attrs["attribute_name"])
		}
	})
}

func sameTable(t *testing.T, module *block, made *types.TableDescription) {
	t.Helper()
	keys := map[types.KeyType]string{types.KeyTypeHash: unquote(module.Attrs["hash_key"]), types.KeyTypeRange: unquote(module.Attrs["range_key"])}
	for _, k := range made.KeySchema {
		if keys[k.KeyType] != *k.AttributeName {
			t.Errorf("%s key %q, the code uses %q", k.KeyType, keys[k.KeyType], *k.AttributeName)
		}
	}
	kinds := map[string]string{}
	for _, a := range module.find("attribute") {
		kinds[unquote(a.Attrs["name"])] = unquote(a.Attrs["type"])
	}
	want := map[string]string{}
	for _, a := range made.AttributeDefinitions {
		want[*a.AttributeName] = string(a.AttributeType)
	}
	if !maps.Equal(kinds, want) {
		t.Errorf("attributes %v, the code uses %v", kinds, want)
	}
	if unquote(module.Attrs["billing_mode"]) != string(types.BillingModePayPerRequest) {
		t.Errorf("billing mode %s", module.Attrs["billing_mode"])
	}
}

func unquote(s string) string {
	u, err := strconv.Unquote(s)
	if err != nil {
		return s
	}
	return u
}

// BR-51: what has the data is never destroyed by a change, is kept in more than one version, and deletes by itself only what is the log's to delete.
func TestBR51_DataIsProtected(t *testing.T) {
	table := parseDir(t, "modules/table").only(t, "resource", "aws_dynamodb_table", "log")
	bucket := parseDir(t, "modules/bucket")
	for name, b := range map[string]*block{"table": table, "bucket": bucket.only(t, "resource", "aws_s3_bucket", "log")} {
		if b.only(t, "lifecycle").Attrs["prevent_destroy"] != "true" {
			t.Errorf("the %s may be destroyed", name)
		}
		if _, ok := b.Attrs["force_destroy"]; ok {
			t.Errorf("the %s has force_destroy", name)
		}
	}
	if table.Attrs["deletion_protection_enabled"] != "true" {
		t.Error("the table has no deletion protection")
	}
	if table.only(t, "point_in_time_recovery").Attrs["enabled"] != "true" {
		t.Error("the table cannot be put back")
	}
	if s := bucket.only(t, "resource", "aws_s3_bucket_versioning").only(t, "versioning_configuration").Attrs["status"]; s != `var.undelete_days > 0 ? "Enabled" : "Suspended"` {
		t.Errorf("versioning is %s", s)
	}
	rules := bucket.only(t, "resource", "aws_s3_bucket_lifecycle_configuration")
	if rules.only(t, "lifecycle").Attrs["ignore_changes"] != "[rule]" {
		t.Error("Terraform would take retain's rules away")
	}
	for _, r := range rules.find("rule") {
		if p := r.only(t, "filter").Attrs["prefix"]; p != `"${var.prefix}/"` {
			t.Errorf("rule %s is for %s", r.Attrs["id"], p)
		}
		for _, x := range r.find("expiration") {
			if len(x.Attrs) != 1 || x.Attrs["expired_object_delete_marker"] != "true" {
				t.Errorf("rule %s expires objects: %v", r.Attrs["id"], x.Attrs)
			}
		}
		if strings.HasPrefix(unquote(r.Attrs["id"]), "varve-") {
			t.Errorf("rule %s has the name of one that retain sets", r.Attrs["id"])
		}
	}
}

// Every function that has a main is deployed, with the variables that it reads and no others, on arm64, and where it has a URL behind IAM.
func TestFunctionsAreDeployedAsTheyAre(t *testing.T) {
	mains, err := filepath.Glob("../functions/*/lambda/main.go")
	check(t, err)
	var deployed []string
	modules := parseDir(t, "modules/functions")
	for _, m := range modules.find("module") {
		name := m.Labels[0]
		deployed = append(deployed, name)
		var variables []string
		for _, v := range environment.Of[name] {
			variables = append(variables, v.Name)
		}
		slices.Sort(variables)
		if given := regexp.MustCompile(`VARVE_[A-Z_]+`).FindAllString(m.Attrs["environment"], -1); !slices.Equal(sorted(given), variables) {
			t.Errorf("%s is given %q, it reads %q", name, given, variables)
		}
		if m.Attrs["package"] != `"${var.packages}/`+name+`.zip"` || m.Attrs["name"] != `"${var.name}-`+name+`"` || !strings.Contains(m.Attrs["policies"], `"`+name+`"`) {
			t.Errorf("%s: %v", name, m.Attrs)
		}
		if url := m.Attrs["url"] == "true"; url != (name == "produce" || name == "fetch") {
			t.Errorf("%s has a URL: %t", name, url)
		}
	}
	for _, path := range mains {
		if name := filepath.Base(filepath.Dir(filepath.Dir(path))); !slices.Contains(deployed, name) {
			t.Errorf("function %s is not deployed", name)
		}
	}
	if !slices.Equal(sorted(deployed), functions) {
		t.Errorf("deployed are %q, the policies are of %q", deployed, functions)
	}
	one := parseDir(t, "modules/functions/function")
	f := one.only(t, "resource", "aws_lambda_function")
	if f.Attrs["runtime"] != `"provided.al2023"` || f.Attrs["architectures"] != `["arm64"]` || f.Attrs["handler"] != `"bootstrap"` {
		t.Errorf("%v", f.Attrs)
	}
	if u := one.only(t, "resource", "aws_lambda_function_url"); u.Attrs["authorization_type"] != `"AWS_IAM"` {
		t.Errorf("a URL's authorization is %s", u.Attrs["authorization_type"])
	}
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

// Alarms watch metrics that are written, under the dimensions that they are written with.
func TestAlarmsWatchWhatIsWritten(t *testing.T) {
	written := []string{monitor.Lag, monitor.LagAge, monitor.RetentionUsed, monitor.Lost, monitor.Backlog, monitor.BacklogAge, monitor.Spill, monitor.EpochRaises, monitor.FloorAge}
	alarms := parseDir(t, "modules/alarms")
	ofLog := alarms.only(t, "resource", "aws_cloudwatch_metric_alarm", "log")
	if ofLog.Attrs["namespace"] != `"`+monitor.Namespace+`"` || ofLog.Attrs["dimensions"] != "{ "+monitor.ByLog+" = var.log }" {
		t.Errorf("%v", ofLog.Attrs)
	}
	watched := regexp.MustCompile(`metric = "(\w+)", above`).FindAllStringSubmatch(alarms.only(t, "locals").Attrs["log_alarms"], -1)
	if len(watched) < 4 || !strings.Contains(alarms.only(t, "locals").Attrs["log_alarms"], `"`+monitor.RetentionUsed+`"`) {
		t.Errorf("%q are watched", watched)
	}
	for _, w := range watched {
		if !slices.Contains(written, w[1]) {
			t.Errorf("nothing writes %s", w[1])
		}
	}
	u := alarms.only(t, "resource", "aws_cloudwatch_metric_alarm", "unsettled")
	if u.Attrs["metric_name"] != `"`+monitor.Unsettled+`"` || u.Attrs["dimensions"] != "{ "+monitor.ByLog+" = var.log, "+monitor.ByFunction+" = each.key }" {
		t.Errorf("%v", u.Attrs)
	}
}

// Nothing anywhere in the modules is public, and where something is allowed neither actions nor resources are wildcards.
func TestNothingIsPublic(t *testing.T) {
	files := 0
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".terraform":
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".tf" {
			return nil
		}
		files++
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text := string(b)
		for _, bad := range []string{`"NONE"`, "public-read", "aws_lambda_permission", "password", "AKIA"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s has %s", path, bad)
			}
		}
		for _, key := range regexp.MustCompile(`secret\w*\s*=.*`).FindAllString(text, -1) {
			if key != `secret_key                  = "test"` {
				t.Errorf("%s has %s", path, key)
			}
		}
		for i, line := range strings.Split(text, "\n") {
			wild := regexp.MustCompile(`(Action|Resource|Principal)\s*=\s*\[?"(\*|\w+:\*)"`).FindString(line)
			if wild != "" && !strings.Contains(strings.Join(strings.Split(text, "\n")[max(0, i-4):i+1], "\n"), `Effect    = "Deny"`) {
				t.Errorf("%s:%d: %s", path, i+1, wild)
			}
		}
		return nil
	})
	check(t, err)
	if files < 15 {
		t.Errorf("only %d files were read", files)
	}
	block := parseDir(t, "modules/bucket").only(t, "resource", "aws_s3_bucket_public_access_block")
	for _, a := range []string{"block_public_acls", "block_public_policy", "ignore_public_acls", "restrict_public_buckets"} {
		if block.Attrs[a] != "true" {
			t.Errorf("%s is %s", a, block.Attrs[a])
		}
	}
}
