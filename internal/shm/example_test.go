package shm_test

import (
	"fmt"

	"github.com/stepvan/stepvan/internal/shm"
)

// Both mappings show the same memory. The second one is usually in another
// process, which received the descriptor over a Unix socket.
func ExampleMap() {
	mine, err := shm.Create("example", 4096, false)
	if err != nil {
		fmt.Println(err)
		return
	}
	theirs, err := shm.Map(mine.FD(), mine.Size())
	if err != nil {
		fmt.Println(err)
		return
	}
	copy(mine.Bytes(), "hello")
	fmt.Println(string(theirs.Bytes()[:5]))
	fmt.Println(theirs.Close(), mine.Close())
	// Output:
	// hello
	// <nil> <nil>
}
