package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// plan is what is looked at of `terraform show -json`. Version 1 is what these fields are of.
type plan struct {
	FormatVersion   string `json:"format_version"`
	ResourceChanges []struct {
		Address string `json:"address"`
		Mode    string `json:"mode"`
		Type    string `json:"type"`
		Change  struct {
			Actions []string `json:"actions"`
			Before  settings `json:"before"`
			After   settings `json:"after"`
		} `json:"change"`
	} `json:"resource_changes"`
}

// settings are those of a table or a bucket that protect what is in it.
type settings struct {
	DeletionProtection *bool `json:"deletion_protection_enabled"`
	Recovery           []struct {
		Enabled bool `json:"enabled"`
	} `json:"point_in_time_recovery"`
	TTL []struct {
		Attribute string `json:"attribute_name"`
		Enabled   bool   `json:"enabled"`
	} `json:"ttl"`
}

// What must neither go nor be made anew: what has the data, and what protects it. Terraform's own prevent_destroy does not hold where the block that says it was
// taken out of the configuration, or a module was renamed.
var (
	stateful  = []string{"aws_s3_bucket", "aws_dynamodb_table"}
	protected = []string{"aws_s3_bucket_versioning", "aws_s3_bucket_public_access_block", "aws_s3_bucket_policy", "aws_s3_bucket_server_side_encryption_configuration"}
)

// checkPlan refuses a plan, as JSON in a file.
func checkPlan(_ context.Context, args []string, out io.Writer) error {
	b, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	problems, err := problemsOf(b)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	for _, p := range problems {
		fmt.Fprintln(out, p)
	}
	if len(problems) > 0 {
		return errors.New("the plan takes data away, or what protects it; it is not applied. Who moves a module says so in a `moved` block; who wants the data gone uses destroy.sh")
	}
	return nil
}

// problemsOf says what a plan does that it must not. A plan that is not understood is an error.
func problemsOf(b []byte) (problems []string, err error) {
	var p plan
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, fmt.Errorf("not a plan as JSON: %w", err)
	}
	if len(p.FormatVersion) < 2 || p.FormatVersion[:2] != "1." {
		return nil, fmt.Errorf("plan of format version %q, 1.x is valid", p.FormatVersion)
	}
	for _, r := range p.ResourceChanges {
		goes := slices.Contains(r.Change.Actions, "delete") || slices.Contains(r.Change.Actions, "forget")
		switch {
		case r.Mode != "managed":
		case goes && slices.Contains(stateful, r.Type):
			problems = append(problems, fmt.Sprintf("%s: %s of what has the data", r.Address, verb(r.Change.Actions)))
		case goes && slices.Contains(protected, r.Type):
			problems = append(problems, fmt.Sprintf("%s: %s of what protects the data", r.Address, verb(r.Change.Actions)))
		case slices.Contains(r.Change.Actions, "update"):
			problems = append(problems, weakened(r.Address, &r.Change.Before, &r.Change.After)...)
		}
	}
	return problems, nil
}

func verb(actions []string) string {
	if slices.Contains(actions, "create") {
		return "replacement"
	}
	if slices.Contains(actions, "forget") {
		return "forgetting"
	}
	return "deletion"
}

// weakened says what an update takes of a table's protection.
func weakened(address string, before, after *settings) (problems []string) {
	if on(before.DeletionProtection) && !on(after.DeletionProtection) {
		problems = append(problems, address+": no deletion protection any more")
	}
	if len(before.Recovery) > 0 && before.Recovery[0].Enabled && (len(after.Recovery) == 0 || !after.Recovery[0].Enabled) {
		problems = append(problems, address+": no point-in-time recovery any more")
	}
	if len(after.TTL) > 0 && after.TTL[0].Enabled && len(before.TTL) > 0 && before.TTL[0].Attribute != "" && after.TTL[0].Attribute != before.TTL[0].Attribute {
		problems = append(problems, fmt.Sprintf("%s: items would be deleted by attribute %q, not %q", address, after.TTL[0].Attribute, before.TTL[0].Attribute))
	}
	return problems
}

func on(b *bool) bool { return b != nil && *b }
