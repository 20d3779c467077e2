package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/stepvan/stepvan/cmd/stepvan/internal/build"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program and of the wire format",
		GroupID: groupOther,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(c.OutOrStdout(), build.Text())
			return err
		},
	}
}
