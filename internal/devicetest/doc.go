// Package devicetest simulates an accelerator for tests. Its memory has addresses that fault when the processor uses
// them. Its streams do their work later and in order, on a clock that the test moves ([Accelerator.Advance]) or on that
// of the process, which testing/synctest moves. The test chooses what fails.
//
// [Accelerator.Bytes] shows the memory behind the addresses to the test alone. Any goroutine may call all methods.
package devicetest
