package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/sdk"
)

func (a *app) groupListCommand() *cobra.Command {
	var json bool
	c := &cobra.Command{
		Use: "list", Short: "List the groups", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return a.groupList(c.Context(), json) },
	}
	c.Flags().BoolVar(&json, "json", false, "print a JSON array")
	return c
}

// groupRow is a group in a listing.
type groupRow struct {
	Name string `json:"name"`
}

func (a *app) groupList(ctx context.Context, json bool) error {
	return a.withLog(ctx, func(log *sdk.Log) error {
		names, err := log.Admin().ListGroups(ctx)
		if err != nil {
			return err
		}
		list, rows := []groupRow{}, [][]any{}
		for _, name := range names {
			list = append(list, groupRow{name})
			rows = append(rows, []any{name})
		}
		if json {
			return a.printJSON(list)
		}
		return table(a.out, "GROUP", rows)
	})
}
