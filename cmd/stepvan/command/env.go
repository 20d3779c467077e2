package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stepvan/stepvan/cmd/stepvan/internal/settings"
	"github.com/stepvan/stepvan/cmd/stepvan/internal/terminal"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/reach"
)

// envFlags are the flags of `stepvan env`.
type envFlags struct{ all, changed, json, markdown bool }

func newEnv() *cobra.Command {
	var f envFlags
	c := &cobra.Command{
		Use:   "env",
		Short: "Show the settings, their values and origins",
		Long: `env shows the settings of a node that starts in this environment. The last column is
the variable that was set, "default", or "derived" when the value follows from other
settings. env prints mistakes and unknown names on standard error.

The exit code is 1 after a mistake.`,
		Example: `    stepvan env                 every setting and its value
    stepvan env --changed       only those that differ from the default
    stepvan env --all           with meaning, limits and other names
    stepvan env --json | jq -r '.[] | select(.shared) | .name'`,
		GroupID: groupInspect,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c.OutOrStdout(), c.ErrOrStderr()) },
	}
	c.Flags().BoolVar(&f.all, "all", false, "with the meaning, the limits and the other names of each")
	c.Flags().BoolVar(&f.changed, "changed", false, "only those whose value is not the default")
	c.Flags().BoolVar(&f.json, "json", false, "as a JSON array, with everything")
	c.Flags().BoolVar(&f.markdown, "markdown", false, "the reference of all settings, without values")
	c.MarkFlagsMutuallyExclusive("json", "markdown", "all")
	c.MarkFlagsMutuallyExclusive("changed", "markdown")
	return c
}

func (f *envFlags) run(out, errOut io.Writer) error {
	if f.markdown {
		_, err := io.WriteString(out, config.Markdown())
		return err
	}
	s, warnings, mistakes := settingsOfStart()
	rows := s.Table(config.Lookup(os.Environ()))
	if f.changed {
		rows = settings.Changed(rows)
	}
	if err := f.print(out, rows); err != nil {
		return err
	}
	for _, w := range warnings {
		fmt.Fprintf(errOut, "warning: %v\n", w)
	}
	if mistakes == nil {
		return nil
	}
	for line := range strings.Lines(mistakes.Error()) { // one for each
		fmt.Fprintf(errOut, "mistake: %s\n", strings.TrimSuffix(line, "\n"))
	}
	return exitCode(1)
}

// settingsOfStart are the settings of a node that starts in this environment, what the start would warn of, and what it
// would refuse.
func settingsOfStart() (config.Settings, []config.Warning, error) {
	s, warnings, mistakes := config.FromProcess()
	more, refused := reach.Check(&s, false, config.OfProcess)
	return s, append(warnings, more...), errors.Join(mistakes, refused)
}

func (f *envFlags) print(out io.Writer, rows []config.Row) error {
	if f.json {
		return settings.JSON(out, rows)
	}
	return settings.Print(out, rows, settings.Style{Color: terminal.Color(out), Long: f.all})
}
