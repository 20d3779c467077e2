package command

import (
	"github.com/spf13/cobra"

	"github.com/stepvan/stepvan/cmd/stepvan/internal/doctor"
	"github.com/stepvan/stepvan/cmd/stepvan/internal/terminal"
)

func newDoctor() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check settings and machine before a start",
		Long: `doctor checks the settings of the environment and this machine: names, interfaces,
ports, limits, cores, memory, RDMA devices. It also shows which van would carry tensors
between nodes of this machine, and why. It changes nothing.

The exit code is 1 when a node could not start.`,
		Example: `    DMLC_ROLE=worker DMLC_NUM_WORKER=2 DMLC_NUM_SERVER=2 \
    DMLC_PS_ROOT_URI=10.0.0.1 DMLC_PS_ROOT_PORT=9000 stepvan doctor`,
		GroupID: groupInspect,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, warnings, mistakes := settingsOfStart()
			checks := doctor.Run(c.Context(), s, doctor.Options{Mistakes: mistakes, Warnings: warnings})
			out := c.OutOrStdout()
			if err := doctor.Print(out, checks, terminal.Color(out)); err != nil {
				return err
			}
			if doctor.Worst(checks) == doctor.Fail {
				return exitCode(1)
			}
			return nil
		},
	}
}
