package compare_test

import (
	"fmt"
	"os"
	"strings"

	"github.com/stepvan/stepvan/bench/compare"
)

func ExampleRead() {
	reports, err := compare.Read(strings.NewReader(`{"workload":"echo","van":"tcp","workers":1,"servers":1,"push_bytes":8,"pull_bytes":8,"progress":"auto","p50_us":11.5}`))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Println(reports[0].Name(), reports[0].P50)
	// Output: tcp echo 1w1s 8B/8B 11.5
}
