package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/sdk"
)

const defaultURL = "file://./.varve"

// app is what the commands share.
type app struct {
	in          io.Reader
	out, err    io.Writer
	interactive bool // stderr is a terminal: progress may be shown
	outTerminal bool // stdout is a terminal
	url         string
	createTable bool
	openOptions []sdk.Option // of this command besides
	env         env.Env
}

// Exit statuses.
const (
	exitDone = iota
	exitFailed
	exitUsage
)

// run executes one command line and returns the exit status.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	fmt.Fprintf(a.err, "varve: %v\n", err)
	var usage *usageError
	if errors.As(err, &usage) {
		fmt.Fprintf(a.err, "See '%s --help'.\n", command.CommandPath())
		return exitUsage
	}
	if h := hint(err); h != "" {
		fmt.Fprintln(a.err, h)
	}
	var field *sdk.FieldError
	var input *inputError
	if errors.As(err, &field) && !errors.As(err, &input) {
		return exitUsage
	}
	return exitFailed
}

func (a *app) root() *cobra.Command {
	root := group("varve", "An append-only, partitioned log on a bucket and a table",
		a.demoCommand(), a.devCommand(), a.topicCommand(), a.produceCommand(), a.consumeCommand(), a.replayCommand(), a.groupCommand(), a.lagCommand(),
		a.compactCommand(), a.retainCommand(), a.sweepCommand(), a.eraseCommand(), a.verifyCommand(), a.repairCommand(), a.segmentCommand(), a.benchCommand(), a.costCommand(), a.dynamodbCommand())
	root.Long = root.Short + `.

The log is named by --log or VARVE_LOG:
  file://./.varve, file:///DIR                     a directory (the default is ./.varve); 'topic create' and 'demo' make it
  aws://BUCKET/PREFIX?table=TABLE&region=REGION    S3 and DynamoDB, with AWS's default credentials
  https://HOST[?region=REGION]                     through the functions produce and fetch: to produce, consume and replay, and to look at topics and
                                                   groups; signed with AWS's default credentials, or with the token in VARVE_TOKEN; http:// for a server on this machine
  mem://                                           in memory, gone when the command ends

Exit status: 0 done, 1 failed, 2 usage.`
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.PersistentFlags().StringVar(&a.url, "log", a.url, "URL of the log (VARVE_LOG)")
	root.PersistentFlags().BoolVar(&a.createTable, "create-table", false, "create the log's table if there is none; 'topic create' and 'demo' do so unasked in a directory")
	return root
}

// group is a command that only has others below it.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short}
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return usagef("'%s' has no command %q", c.CommandPath(), args[0])
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		c.SetOut(c.ErrOrStderr())
		c.Help()
		return usagef("'%s' needs a command", c.CommandPath())
	}
	c.AddCommand(commands...)
	return c
}

// exactly wants these arguments.
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		if len(names) == 0 {
			return usagef("'%s' takes no arguments, %d given", c.CommandPath(), len(args))
		}
		return usagef("'%s' takes %s, %d arguments given", c.CommandPath(), strings.Join(names, " "), len(args))
	}
}

// open opens the log of the command line.
func (a *app) open(ctx context.Context, hooks ...sdk.Hook) (*sdk.Log, error) {
	return a.openWith(ctx, embedded.Driver(), hooks...)
}

// openWith opens it with a driver of one's own for what is embedded.
func (a *app) openWith(ctx context.Context, driver sdk.Driver, hooks ...sdk.Hook) (*sdk.Log, error) {
	opts := []sdk.Option{sdk.WithDriver(driver), sdk.WithEnv(a.env), sdk.WithHooks(hooks...)}
	if a.createTable {
		opts = append(opts, sdk.WithCreateTable())
	}
	return sdk.Open(ctx, a.url, append(opts, a.openOptions...)...)
}

// withLog opens the log, runs do and closes the log.
func (a *app) withLog(ctx context.Context, do func(*sdk.Log) error, hooks ...sdk.Hook) error {
	log, err := a.open(ctx, hooks...)
	if err != nil {
		return err
	}
	return errors.Join(do(log), log.Close())
}

// withDirectLog is withLog for the commands that work on table and bucket themselves.
func (a *app) withDirectLog(ctx context.Context, do func(*sdk.Log) error, hooks ...sdk.Hook) error {
	return a.withLog(ctx, direct(do), hooks...)
}

// direct refuses a log that is reached over HTTP.
func direct(do func(*sdk.Log) error) func(*sdk.Log) error {
	return func(log *sdk.Log) error {
		if log.Backend().Table == nil {
			return &sdk.UnsupportedError{What: "a job on the log's table and bucket"}
		}
		return do(log)
	}
}

// withNewLog is withLog for the commands that begin a log. A directory is made unasked; elsewhere a table costs money, and --create-table says
// that the name is no mistake.
func (a *app) withNewLog(ctx context.Context, do func(*sdk.Log) error, hooks ...sdk.Hook) error {
	if scheme, _, _ := strings.Cut(a.url, ":"); strings.EqualFold(scheme, "file") {
		a.createTable = true
	}
	return a.withLog(ctx, do, hooks...)
}

// printJSON writes v as one line of JSON.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// note tells a person something that is not data.
func (a *app) note(format string, args ...any) { fmt.Fprintf(a.err, format+"\n", args...) }

// progress is a note for somebody who watches.
func (a *app) progress(format string, args ...any) {
	if a.interactive {
		a.note(format, args...)
	}
}

// plural is n and what there are n of: "1 record is", "2 records are".
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// usageError is a command line that makes no sense.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// hint says what to do next.
func hint(err error) string {
	switch {
	case errors.Is(err, sdk.ErrNoLog):
		return "Is --log the log you mean? 'varve topic create TOPIC' makes a new one, on AWS with --create-table."
	case errors.Is(err, sdk.ErrUnknownTopic):
		return "'varve topic list' lists the topics of the log, 'varve topic create TOPIC' makes one. Is --log the log you mean?"
	case errors.Is(err, sdk.ErrTopicExists):
		return "'varve topic describe TOPIC' shows it; 'varve topic alter TOPIC' changes it."
	case errors.Is(err, sdk.ErrExpired), errors.Is(err, sdk.ErrOutOfRange):
		return "'varve topic describe TOPIC' shows the offsets of each partition; --from earliest reads from the first, --to earliest resets to it."
	case errors.Is(err, sdk.ErrRewritten):
		return "The log was repaired: what was at this offset, and could be saved, is at or above the second range. --from and --to with an offset of it go on there."
	case errors.Is(err, sdk.ErrUnknownGroup):
		return "'varve group list' lists the groups of the log; the first 'varve consume TOPIC --group GROUP' makes one. Is --log the log you mean?"
	case errors.Is(err, sdk.ErrFenced):
		return "Another process runs under this --instance-id: each member needs its own."
	case errors.Is(err, sdk.ErrNoCommit):
		return "'varve group reset GROUP --to POSITION' commits a start; with --from earliest or latest a member does."
	case errors.As(err, new(*sdk.GroupActiveError)):
		return "'varve group describe GROUP' shows them, --force does it all the same. One that died stays listed while no other member is there to notice."
	case errors.Is(err, sdk.ErrUnreachable):
		return "Are the log's bucket, table and endpoints (--log) the right ones, up, and reachable from here?"
	case errors.Is(err, sdk.ErrUnknown):
		return "Read the topic's end before producing the same records again."
	}
	return ""
}
