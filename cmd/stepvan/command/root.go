package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stepvan/stepvan/internal/launch"
	"github.com/stepvan/stepvan/internal/text"
)

// The groups of sub-commands in the help text.
const (
	groupRun     = "run"
	groupInspect = "inspect"
	groupOther   = "other"
)

// newRoot makes the command stepvan. Its sub-commands start processes of self.
func newRoot(self launch.Program) *cobra.Command {
	root := &cobra.Command{
		Use:   "stepvan",
		Short: "Push tensors to servers, and pull their answers",
		Long: `stepvan connects workers and servers: workers push tensors, and servers answer into
the workers' memory. Peers exchange tensors with each other. A scheduler introduces them
all to each other.

Nodes read their settings from environment variables; ` + "`stepvan env`" + ` lists them.`,
		Example: `    stepvan launch -n 2w2s -- ./node            a cluster on this machine
    stepvan doctor                              check settings and machine
    stepvan env --changed                       the settings that differ from the default`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Run"},
		&cobra.Group{ID: groupInspect, Title: "Look"},
		&cobra.Group{ID: groupOther, Title: "Other"},
	)
	root.SetHelpCommandGroupID(groupOther)
	root.SetCompletionCommandGroupID(groupOther)
	cobra.EnableCommandSorting = false
	root.AddCommand( // in the order of the help text
		newLaunch(self),
		newLaunchGuard(),
		newDemo(self),
		newScheduler(),
		newAgent(),
		newDoctor(),
		newDevices(),
		newBench(self),
		newBenchNode(),
		newEnv(),
		newVersion(),
	)
	return root
}

// refuseUnknownTopics makes help fail for an unknown command. Cobra's own help ends with 0.
func refuseUnknownTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() != "help" {
			continue
		}
		c.Args = func(_ *cobra.Command, topic []string) error {
			_, rest, err := root.Find(topic)
			if err == nil && len(rest) > 0 {
				err = fmt.Errorf("unknown help topic %q", text.Cut(strings.Join(topic, " ")))
			}
			return err
		}
	}
}
