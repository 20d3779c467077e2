package bench

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// pinProcess binds this process to one core. Go reads the usable cores when it starts, and threads
// inherit theirs. So the function executes the program again, which then finds itself pinned.
func pinProcess(cpu int) error {
	var got, want unix.CPUSet
	want.Set(cpu)
	if err := unix.SchedGetaffinity(0, &got); err == nil && got == want {
		return nil
	}
	runtime.LockOSThread() // the thread that executes hands its cores on
	defer runtime.UnlockOSThread()
	if err := unix.SchedSetaffinity(0, &want); err != nil {
		return fmt.Errorf("pin to core %d: %w", cpu, err)
	}
	program, err := os.Executable()
	if err == nil {
		err = syscall.Exec(program, os.Args, os.Environ())
	}
	return fmt.Errorf("start again on core %d: %w", cpu, err)
}
