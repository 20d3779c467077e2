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
		Short: "Tell what has changed between two files of bench --json",
		Long: `compare reads two files that bench --json wrote and shows for each measurement
the median of both, with its 95% confidence interval, and the difference where
there is one (Mann-Whitney U test, p below 0.05), else ~.

The sample is the runs of a measurement in one file, appended with >>; the figure of
a run is the median of its rounds, which say little about the next run. It takes 4
runs in each file to tell a difference from noise, and 6 for the interval; of fewer
the difference is shown with "~ (needs 4 runs)". Run both in turns, so that they meet
the same conditions. Of 20 figures of the same program one differs by chance.`,
		Example: `  for i in 1 2 3 4 5 6; do
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
