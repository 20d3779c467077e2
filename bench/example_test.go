package bench_test

import (
	"context"
	"fmt"

	"github.com/stepvan/stepvan/bench"
)

// All nodes in this process. With other vans Options.Node names the program for each process.
func ExampleRun() {
	r, err := bench.Run(context.Background(), bench.Options{Van: bench.Mem, Count: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Name(), "against", r.Limit)
	// Output: mem echo 1w1s 8B/8B against copy and flag
}

// Every combination, vans in turns.
func ExampleMatrix_Plan() {
	plan, err := bench.Matrix{
		Base:   bench.Options{Workload: bench.AFD},
		Vans:   []bench.Van{bench.TCP, bench.Shm},
		Pushes: []bench.Size{4 << 10, 1 << 20},
	}.Plan()
	for i, group := range plan {
		for _, o := range group {
			fmt.Println(i, o.String())
		}
	}
	fmt.Println(err)
	// Output:
	// 0 tcp afd 1w1s 4KiB/8KiB
	// 0 shm afd 1w1s 4KiB/8KiB
	// 1 tcp afd 1w1s 1MiB/2MiB
	// 1 shm afd 1w1s 1MiB/2MiB
	// <nil>
}
