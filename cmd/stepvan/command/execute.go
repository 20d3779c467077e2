package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/launch"
	"github.com/stepvan/stepvan/internal/text"
)

// codeUsage is the exit code for a command line that cannot be understood.
const codeUsage = 2

// exitCode is an error whose text the user has seen.
type exitCode int

// Error is for logs; Execute prints nothing for it.
func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Execute runs a command line (without the name of the program), prints its error, and returns its exit code.
func Execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return ExecuteAs(ctx, nil, args, stdout, stderr)
}

// ExecuteAs is Execute for another program that runs the command line. Commands that start
// processes of stepvan start self.
func ExecuteAs(ctx context.Context, self launch.Program, args []string, stdout, stderr io.Writer) int {
	root := newRoot(self)
	refuseUnknownTopics(root)
	root.SetArgs(append([]string{}, args...)) // with nil cobra takes those of the process, which may be another program
	root.SetOut(stdout)
	root.SetErr(stderr)
	understood := false
	onRun(root, func() { understood = true })
	c, err := root.ExecuteContextC(ctx)
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	case !understood:
		fmt.Fprintf(stderr, "%s: %s\nSee '%s --help'.\n", c.CommandPath(), plain(err, args), c.CommandPath())
		return codeUsage
	}
	fmt.Fprintf(stderr, "%s: %s\n", c.CommandPath(), plain(err, args))
	return launch.ExitCode(err)
}

// plain is the text of an error for people: without the name of the kind of error, and with long
// arguments shortened.
func plain(err error, args []string) string {
	message := strings.ReplaceAll(err.Error(), stepvan.ErrInvalid.Error()+": ", "")
	for _, arg := range args {
		_, value, _ := strings.Cut(arg, "=")
		for _, part := range []string{arg, value} {
			if short := text.Cut(part); short != part {
				message = strings.ReplaceAll(message, part, short)
			}
		}
	}
	return message
}

// onRun calls f before any command below c runs.
func onRun(c *cobra.Command, f func()) {
	for _, sub := range c.Commands() {
		onRun(sub, f)
		if run := sub.RunE; run != nil {
			sub.RunE = func(c *cobra.Command, args []string) error {
				f()
				return run(c, args)
			}
		}
	}
}
