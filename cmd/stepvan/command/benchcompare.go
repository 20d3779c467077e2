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
there is one (Mann-Whitney U test, p below 0.05), else ~. The rounds of a measurement are its
sample; rounds of several runs in one file, written with >>, count together and say more.`,
		Example: `  stepvan bench --workload echo --json >old.json
  stepvan bench --workload echo --json >new.json
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
