package bench

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"github.com/stepvan/stepvan/internal/affinity"
)

// pinProcess binds this process to one core. Go reads the usable cores when it starts, and threads
// inherit theirs. So the function executes the program again, which then finds itself pinned.
func pinProcess(cpu int) error {
	if allowed, err := affinity.Allowed(); err == nil && allowed.Len() == 1 && allowed.Has(cpu) {
		return nil
	}
	runtime.LockOSThread() // the thread that executes hands its cores on
	defer runtime.UnlockOSThread()
	if err := affinity.Pin(affinity.Range(cpu, 1)); err != nil {
		return fmt.Errorf("pin to core %d: %w", cpu, err)
	}
	program, err := os.Executable()
	if err == nil {
		err = syscall.Exec(program, os.Args, os.Environ())
	}
	return fmt.Errorf("start again on core %d: %w", cpu, err)
}
