package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/sdk"
)

func (a *app) groupDeleteCommand() *cobra.Command {
	var force, json bool
	c := &cobra.Command{
		Use: "delete GROUP", Short: "Delete a group and all that it has committed", Args: exactly("GROUP"), ValidArgsFunction: a.completeGroups,
		Long: `Delete a group and all that it has committed. There is no way back.

While members live it is refused, or with --force they lose their partitions, and begin the group anew at their next heartbeat. With --force goes also a group that is damaged, or that is not in the list and has left something.`,
		RunE: func(c *cobra.Command, args []string) error { return a.groupDelete(c.Context(), args[0], force, json) },
	}
	c.Flags().BoolVar(&force, "force", false, "although members live")
	c.Flags().BoolVar(&json, "json", false, "print JSON")
	return c
}

// deletedGroup is what a deletion prints as JSON.
type deletedGroup struct {
	Group   string `json:"group"`
	Deleted bool   `json:"deleted"`
}

func (a *app) groupDelete(ctx context.Context, name string, force, json bool) error {
	return a.withLog(ctx, func(log *sdk.Log) error {
		if err := log.Admin().DeleteGroup(ctx, name, force); err != nil {
			return err
		}
		if json {
			return a.printJSON(deletedGroup{name, true})
		}
		a.note("deleted group %s", name)
		return nil
	})
}
