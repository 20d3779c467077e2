package trace_test

import (
	"fmt"
	"os"

	"github.com/stepvan/stepvan/trace"
)

// A node records every exchange and shows them at the end of the run.
func Example() {
	ring := trace.NewRing(1024)
	for layer := range int64(2) {
		start := layer * 1_000_000
		ring.Record(trace.Entry{
			Label:  fmt.Sprintf("layer %d", layer),
			Stamps: trace.Stamps{start + 1_000, start + 3_000, start + 50_000, start + 51_000, start + 151_000, start + 152_000, start + 202_000, start + 203_000},
		})
	}
	entries := ring.Snapshot()
	for _, row := range trace.Summarize(entries, trace.ByLabel).Rows {
		fmt.Println(row.Label, "total", row.Total.P50, "server", row.Server.P50, "network", row.Network.P50)
	}
	file, err := os.CreateTemp("", "trace-*.json")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.Remove(file.Name())
	if err := trace.WriteJSON(file, []trace.Process{{Name: "worker 0", Entries: entries}}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(file.Close())
	// Output:
	// layer 0 total 202µs server 102µs network 97µs
	// layer 1 total 202µs server 102µs network 97µs
	// <nil>
}
