package command

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/stepvan/stepvan/bench/compare"
)

func newBenchCompare() *cobra.Command {
	return &cobra.Command{
		Use:   "compare OLD NEW",
		Short: "Compare two files of bench --json",
		Long: `compare reads two files that bench --json wrote. It shows for each measurement the
median of both, with its 95% confidence interval, and the difference if it is
significant (Mann-Whitney U test, p below 0.05), otherwise ~.

The sample is the runs of a measurement in one file: append them with >>. The figure of
a run is the median of its rounds. Four runs in each file can tell a difference from
noise; an interval needs six. With fewer runs the difference has the mark
"~ (needs 4 runs)". Run both programs in turns, under the same conditions. Of 20 figures
of the same program, one differs by chance.`,
		Example: `    for i in 1 2 3 4 5 6; do
      ./old bench --workload echo --json >>old.json
      ./new bench --workload echo --json >>new.json
    done
    stepvan bench compare old.json new.json`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			var both [2]compare.Series
			for i, path := range args {
				s, err := readSeries(path)
				if err != nil {
					return err
				}
				both[i] = s
			}
			return compare.Write(c.OutOrStdout(), both[0], both[1])
		},
	}
}

func readSeries(path string) (compare.Series, error) {
	f, err := os.Open(path)
	if err != nil {
		return compare.Series{}, err
	}
	defer f.Close()
	reports, err := compare.Read(f)
	if err != nil {
		return compare.Series{}, fmt.Errorf("%s: %w", path, err)
	}
	return compare.Series{Name: path, Reports: reports}, nil
}
