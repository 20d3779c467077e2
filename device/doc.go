// Package device is what stepvan asks of accelerators. It asks which device holds an address. It copies on streams, and
// records events. It has memory of the host pinned, and memory of the device exported to other devices.
//
// A [Driver] does that for one kind of device. [Register] makes it known to the process, and [Find] finds it. The
// driver for the processor ([CPU]) is always there. A kind without a driver is refused with [stepvan.ErrNotSupported],
// by an error that says so.
//
// # Which memory is whose
//
// The processor does not reach memory of an accelerator, and a mistake in the kind of an address would end the process.
// So stepvan asks the drivers before it uses foreign memory. [CheckAccelerator] refuses an address that the device of
// its tensor does not hold. [CheckHost] refuses memory of an accelerator that was given as the host's.
//
// # Streams and events
//
// A stream does the work that is queued to it in order, and later. The functions that queue work return at once. An
// [Event] marks a place in a stream. [Event.Query] never blocks, so the driver of a transport may call it. [Await]
// waits for an event, and is for other goroutines.
//
// # Threads
//
// Any goroutine may call everything here. A driver must bear that too.
package device
