package affinity_test

import (
	"fmt"

	"github.com/stepvan/stepvan/internal/affinity"
)

func Example() {
	layout := affinity.Layout{PerSocket: 48, PerDevice: 5, Start: 10}
	fmt.Println("cores of device 2:", layout.Cores(2))
	cores, err := affinity.Parse("0-3,8")
	fmt.Println(cores.Len(), cores.Has(8), err)
	// Output:
	// cores of device 2: 34-38
	// 5 true <nil>
}
