package sdk

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/varvelog/varve/internal/wire"
)

// groups is Admin.ListGroups.
func (r *remote) groups(ctx context.Context) ([]string, error) {
	names := []string{}
	err := r.pages(ctx, "Groups", "groups", func(b []byte) (last string, more bool, err error) {
		var page wire.Groups
		if err := decodeJSON(b, &page); err != nil || len(page.Groups) == 0 {
			return "", page.More, err
		}
		names = append(names, page.Groups...)
		return page.Groups[len(page.Groups)-1], page.More, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list groups: %w", err)
	}
	return names, nil
}

// pages asks for a list, page by page. take takes one in and returns the last name of it, and whether there are more.
func (r *remote) pages(ctx context.Context, op, list string, take func([]byte) (last string, more bool, err error)) error {
	for after, more := "", true; more; {
		u := r.fetch.JoinPath("v1", list)
		if after != "" {
			u.RawQuery = url.Values{"after": {after}}.Encode()
		}
		var page json.RawMessage
		if err := r.client.json(ctx, request{op: op, method: http.MethodGet, url: u}, &page); err != nil {
			return err
		}
		last, further, err := take(page)
		switch {
		case err != nil:
			return err
		case further && last <= after:
			return fmt.Errorf("%w: %w: %s after %q go on at %q", ErrUnreachable, errGarbage, list, after, last)
		}
		after, more = last, further
	}
	return nil
}

// describeGroup is Admin.DescribeGroup.
func (r *remote) describeGroup(ctx context.Context, name string, start Position) (*GroupDescription, error) {
	d := &GroupDescription{}
	if err := r.get(ctx, "DescribeGroup", r.fetch.JoinPath("v1", "groups", name), url.Values{"start": {start.String()}}, d); err != nil {
		return nil, remoteGroupError(name, "", err)
	}
	return d, nil
}
