package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
)

func (a *app) topicCommand() *cobra.Command {
	return group("topic", "Create, list, describe, alter and delete topics",
		a.topicCreateCommand(), a.topicListCommand(), a.topicDescribeCommand(), a.topicAlterCommand(), a.topicDeleteCommand())
}

// parseConfig reads NAME=VALUE settings.
func parseConfig(settings []string) (map[string]string, error) {
	config := map[string]string{}
	for _, s := range settings {
		name, value, ok := strings.Cut(s, "=")
		if _, twice := config[name]; !ok || twice {
			return nil, usagef("--config %q is not NAME=VALUE, each name once, such as %s=604800000", s, metadata.RetentionMs)
		}
		config[name] = value
	}
	return config, nil
}

const configHelp = "setting NAME=VALUE by Kafka's names, such as retention.ms=604800000; may be repeated"

// completeTopics completes the first argument with the names of topics.
func (a *app) completeTopics(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	err := a.withLog(c.Context(), func(log *sdk.Log) error {
		topics, err := log.Admin().ListTopics(c.Context())
		for _, t := range topics {
			names = append(names, t.Name)
		}
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// table prints rows in columns.
func table(w io.Writer, header string, rows [][]any) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ReplaceAll(header, " ", "\t"))
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, plain(fmt.Sprint(cell)))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// plain is s with escapes in place of what does not print: what members call themselves is others' text, and must not move a terminal's cursor, or the table's columns.
func plain(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return s
	}
	quoted := strconv.Quote(s)
	return quoted[1 : len(quoted)-1]
}

// retention is retention.ms for people, or what stays where it does not apply.
func retention(t *sdk.Topic) string {
	if t.Config[metadata.CleanupPolicy] == "compact" {
		return "latest of each key"
	}
	c := metadata.DefaultTopicConfig()
	if err := c.Set(metadata.RetentionMs, t.Config[metadata.RetentionMs]); err != nil {
		return "?"
	}
	return keptFor(c.Retention)
}

func keptFor(d time.Duration) string {
	switch {
	case d < 0:
		return "for ever"
	case d%(24*time.Hour) == 0:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	default:
		return d.String()
	}
}

// keptMs is keptFor of milliseconds, of which a negative number is no limit.
func keptMs(ms int64) string {
	if ms < 0 {
		return keptFor(-1)
	}
	return keptFor(time.Duration(ms) * time.Millisecond)
}
