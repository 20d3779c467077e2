package command

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/stepvan/stepvan/cmd/stepvan/internal/devices"
	"github.com/stepvan/stepvan/cmd/stepvan/internal/rdma"
	"github.com/stepvan/stepvan/config"
)

// devicesFlags are the flags of `stepvan devices`.
type devicesFlags struct{ json, gids, counters bool }

func newDevices() *cobra.Command {
	var f devicesFlags
	c := &cobra.Command{
		Use:   "devices",
		Short: "Show RDMA devices, and which of them a node uses",
		Long: `devices shows the ports of the RDMA devices of this machine. For each port it shows the entry
of the GID table and the source address that a node of this environment would use, or why
it would skip the port. It also shows the device that is nearest to each accelerator.
STEPVAN_RDMA_DEVICES, STEPVAN_RDMA_GID_INDEX and DMLC_INTERFACE choose.

The exit code is 1 when the settings name what this machine does not have.`,
		Example: `    stepvan devices
    stepvan devices --gids                         with all GID tables
    stepvan devices --counters                     with retries, losses and congestion of each port
    STEPVAN_RDMA_DEVICES=mlx5 stepvan devices      what the list allows
    stepvan devices --json | jq -r '.selection.choices[].device'`,
		GroupID: groupInspect,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c.OutOrStdout(), c.ErrOrStderr()) },
	}
	c.Flags().BoolVar(&f.json, "json", false, "as a JSON object, with everything")
	c.Flags().BoolVar(&f.gids, "gids", false, "with the entries of all GID tables")
	c.Flags().BoolVar(&f.counters, "counters", false, "with what the hardware has counted of retries, losses and congestion")
	c.MarkFlagsMutuallyExclusive("json", "gids")
	c.MarkFlagsMutuallyExclusive("json", "counters")
	return c
}

func (f *devicesFlags) run(out, errOut io.Writer) error {
	s, _, _ := config.FromProcess() // what is wrong with other settings is for doctor and env
	l := rdma.Load()
	inv, err := l.Read()
	if err != nil {
		return err
	}
	r := devices.New(&s, inv, l, config.OfProcess)
	r.Counters = devices.Counters(inv)
	if f.json {
		err = devices.JSON(out, r)
	} else {
		err = devices.Print(out, r, devices.Parts{GIDs: f.gids, Counters: f.counters})
	}
	if err != nil || r.Mistake == "" {
		return err
	}
	fmt.Fprintf(errOut, "mistake: %s\n", r.Mistake)
	return exitCode(1)
}
