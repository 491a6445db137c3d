package infra_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/varvelog/varve/functions/compact"
	"github.com/varvelog/varve/functions/forward"
	"github.com/varvelog/varve/functions/monitor"
	"github.com/varvelog/varve/functions/schedule"
	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
)

// deployed is what testdeploy.sh has deployed, as `terraform output -json` tells.
type deployed struct {
	log, queue string
	roles      map[string]string
}

func readDeployed(t *testing.T) deployed {
	t.Helper()
	text := os.Getenv("VARVE_TESTDEPLOY")
	if text == "" {
		t.Skip("nothing is deployed: make test-deploy does")
	}
	var out struct {
		Log    struct{ Value string }            `json:"log"`
		Queue  struct{ Value string }            `json:"out_queue_url"`
		Roles  struct{ Value map[string]string } `json:"role_arns"`
		Lambda struct{ Value map[string]string } `json:"functions"`
	}
	check(t, json.Unmarshal([]byte(text), &out))
	return deployed{out.Log.Value, out.Queue.Value, out.Roles.Value}
}

// assume takes every role, and leaves its keys in a credentials file, under a profile of the function's name.
func (d deployed) assume(t *testing.T) map[string]aws.CredentialsProvider {
	t.Helper()
	c, err := config.LoadDefaultConfig(t.Context(), config.WithRegion("eu-central-1"))
	check(t, err)
	client := sts.NewFromConfig(c)
	keys := map[string]aws.CredentialsProvider{}
	var file, profiles strings.Builder
	for f, arn := range d.roles {
		taken, err := client.AssumeRole(t.Context(), &sts.AssumeRoleInput{RoleArn: aws.String(arn), RoleSessionName: aws.String(f)})
		check(t, err)
		k := taken.Credentials
		fmt.Fprintf(&file, "[%s]\naws_access_key_id=%s\naws_secret_access_key=%s\naws_session_token=%s\n", f, *k.AccessKeyId, *k.SecretAccessKey, *k.SessionToken)
		fmt.Fprintf(&profiles, "[profile %s]\n", f)
		keys[f] = credentials.NewStaticCredentialsProvider(*k.AccessKeyId, *k.SecretAccessKey, *k.SessionToken)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"AWS_SHARED_CREDENTIALS_FILE": file.String(), "AWS_CONFIG_FILE": profiles.String()} {
		path := filepath.Join(dir, name)
		check(t, os.WriteFile(path, []byte(text), 0o600))
		t.Setenv(name, path)
	}
	return keys
}

// open opens the log as a role does.
func (d deployed) open(ctx context.Context, role string) (*sdk.Log, error) {
	u, err := url.Parse(d.log)
	if err != nil {
		return nil, err
	}
	q := u.Query()
	q.Set("s3_profile", role)
	q.Set("dynamodb_profile", role)
	u.RawQuery = q.Encode()
	return sdk.Open(ctx, u.String())
}

// enforce has the server look at who asks, from now on, or not any more.
func enforce(t *testing.T, yes bool) {
	t.Helper()
	count := "1000000000"
	if yes {
		count = "0"
	}
	r, err := http.Post(os.Getenv("AWS_ENDPOINT_URL")+"/moto-api/reset-auth", "text/plain", strings.NewReader(count))
	check(t, err)
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Fatalf("reset-auth: %s", r.Status)
	}
}

// Every function's own code does its work with the role that was deployed for it, which the server enforces; and something that it must not do is denied.
func TestDeployed(t *testing.T) {
	d := readDeployed(t)
	if roles := slices.Sorted(maps.Keys(d.roles)); !slices.Equal(roles, functions) {
		t.Fatalf("roles of %q are deployed, wanted are those of %q", roles, functions)
	}
	ctx := t.Context()
	owner, err := sdk.Open(ctx, d.log)
	check(t, err)
	_, err = owner.Admin().CreateTopic(ctx, sdk.NewTopic{Name: "flights", Partitions: 2})
	check(t, err)
	// The same segment again, as a producer leaves it that dies before its commit, hours ago.
	check(t, appendTo(ctx, owner, "flights", 10_000))
	page, err := owner.Backend().Store.List(ctx, "r7d/intake/", "", 0)
	check(t, err)
	if len(page.Objects) != 1 {
		t.Fatalf("%d segments, 1 is wanted", len(page.Objects))
	}
	body, err := owner.Backend().Store.Get(ctx, page.Objects[0].Name, 0, -1, nil)
	check(t, err)
	orphan := segment.NewID(time.Now().Add(-6*time.Hour), segment.Class(7), segment.InBucket, 1, segment.ID{})
	check(t, owner.Backend().Store.Put(ctx, segment.IntakeName(orphan), body))
	check(t, owner.Close())
	keys := d.assume(t)
	enforce(t, true)
	defer enforce(t, false)

	object, item := segment.IntakeName(segment.NewID(time.Now(), segment.Class(7), segment.InBucket, 2, segment.ID{})), segment.TopicID("0123456789ab")
	deletes := func(ctx context.Context, b sdk.Backend) error { return b.Store.Delete(ctx, segment.IntakeName(orphan)) }
	puts := func(ctx context.Context, b sdk.Backend) error { return b.Store.Put(ctx, object, []byte("x")) }
	forgets := func(ctx context.Context, b sdk.Backend) error { return b.Table.DeleteGone(ctx, item) }
	names := func(ctx context.Context, b sdk.Backend) error {
		_, err := b.Table.PutIdentity(ctx, metadata.Identity{Version: metadata.FormatVersion, Bucket: "b", Prefix: "p"})
		return err
	}
	reads := func(ctx context.Context, b sdk.Backend) error {
		_, err := b.Store.Get(ctx, segment.IntakeName(orphan), 0, -1, nil)
		return err
	}
	for _, c := range []struct {
		role    string
		does    func(context.Context, *sdk.Log) error
		mustNot map[string]func(context.Context, sdk.Backend) error
	}{
		{"produce", func(ctx context.Context, l *sdk.Log) error {
			return errors.Join(produceTo(ctx, l, "flights", 10), produceTo(ctx, l, "flights", 10_000))
		}, map[string]func(context.Context, sdk.Backend) error{"delete an object": deletes, "delete an item": forgets, "make a log": names}},
		{"ingest", func(ctx context.Context, l *sdk.Log) error { return ingestTo(ctx, l, "flights", 10_000) },
			map[string]func(context.Context, sdk.Backend) error{"read an object": reads, "delete an object": deletes}},
		{"fetch", func(ctx context.Context, l *sdk.Log) error { return readAll(ctx, l, "flights", 6) },
			map[string]func(context.Context, sdk.Backend) error{"put an object": puts, "delete an item": forgets}},
		{"forward", func(ctx context.Context, l *sdk.Log) error {
			client := sqs.New(sqs.Options{Region: "eu-central-1", Credentials: keys["forward"], BaseEndpoint: aws.String(os.Getenv("AWS_ENDPOINT_URL"))})
			return forwardTo(ctx, l, client, d.queue, forward.Options{Group: "out", Topics: []string{"flights"}, Within: time.Minute, Env: env.System()})
		}, map[string]func(context.Context, sdk.Backend) error{"put an object": puts, "delete an object": deletes}},
		{"compact", func(ctx context.Context, l *sdk.Log) error {
			r, err := compact.Run(ctx, l.Backend().Table, l.Backend().Store, compact.Options{All: true, Env: env.System()})
			if err == nil && r.Segments == 0 {
				err = errors.New("nothing was compacted")
			}
			return errors.Join(err, runJob(ctx, l, schedule.Compact))
		}, map[string]func(context.Context, sdk.Backend) error{"delete an object": deletes, "delete an item": forgets, "put into intake": puts}},
		{"retain", func(ctx context.Context, l *sdk.Log) error {
			if err := runJob(ctx, l, schedule.Retain); err != nil {
				return err
			}
			rules, err := l.Backend().Lifecycle.Rules(ctx)
			if err == nil && len(rules.List) < 3 {
				err = fmt.Errorf("the bucket has %d rules: Terraform's two and retain's", len(rules.List))
			}
			return err
		}, map[string]func(context.Context, sdk.Backend) error{"read an object": reads, "delete an object": deletes, "delete an item": forgets}},
		{"sweep", func(ctx context.Context, l *sdk.Log) error {
			if err := runJob(ctx, l, schedule.Sweep); err != nil {
				return err
			}
			if _, err := l.Backend().Store.Stat(ctx, segment.IntakeName(orphan)); !errors.Is(err, store.ErrNotExist) {
				return fmt.Errorf("the orphan: %v", err)
			}
			return nil
		}, map[string]func(context.Context, sdk.Backend) error{"put an object": puts}},
		{"monitor", func(ctx context.Context, l *sdk.Log) error {
			_, err := monitor.Run(ctx, l.Backend().Table, env.System())
			return err
		}, map[string]func(context.Context, sdk.Backend) error{"put an object": puts, "delete an object": deletes, "delete an item": forgets}},
	} {
		t.Run(c.role, func(t *testing.T) {
			l, err := d.open(t.Context(), c.role)
			check(t, err)
			defer l.Close()
			if err := c.does(t.Context(), l); err != nil {
				t.Errorf("its own work: %v", err)
			}
			for what, do := range c.mustNot {
				if err := do(t.Context(), l.Backend()); !errors.Is(err, store.ErrDenied) && !errors.Is(err, metadata.ErrDenied) {
					t.Errorf("may %s: %v", what, err)
				}
			}
		})
	}
}
