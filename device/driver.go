package device

import "github.com/stepvan/stepvan/tensor"

// Stream names a stream of a device. It is a small value that a program makes of the handle that its library gave, such
// as a cudaStream_t. With the handle 0 it is the default stream of the device.
type Stream struct {
	Device tensor.Device
	Handle uintptr
}

// Driver is what stepvan asks of one kind of accelerator. Any goroutine may call its methods. None of them waits for
// work on a stream. The caller keeps the memory that a queued copy names valid, until the event behind the copy is
// over.
//
// An error that is stepvan.ErrInvalid says that an argument does not fit, such as a stream of another device.
// stepvan.ErrNotSupported says that the device cannot do this. Any other error says what has failed.
type Driver interface {
	// Locate returns the device that holds the memory at an address. It returns the zero Device for memory of the host
	// and of other kinds of device. Stepvan calls it for every tensor of foreign memory.
	Locate(address uintptr) (tensor.Device, error)

	// NewStream makes a stream for copies, which works beside the other streams of d. CloseStream ends it behind the
	// work that is queued to it.
	NewStream(d tensor.Device) (Stream, error)
	CloseStream(s Stream) error

	// ToHost queues a copy from memory at address src of the device of s to dst. FromHost queues one to dst. The copies
	// of one stream end in order.
	ToHost(s Stream, dst []byte, src uintptr) error
	FromHost(s Stream, dst uintptr, src []byte) error

	// Record makes an event of the work that has been queued to s.
	Record(s Stream) (Event, error)
	// Follow has the work that is queued to s from here on wait for e, which may be of another stream of the same kind.
	Follow(s Stream, e Event) error

	// Pin prepares memory of the host, so that copies to and from it are not staged once more. Unpin ends that. Both
	// may block for long. Memory that is not pinned may be copied as well, and slowly.
	Pin(mem []byte) error
	Unpin(mem []byte) error

	// Export makes a dma-buf of n bytes at an address of d, for another device to reach. With stepvan.ErrNotSupported
	// the other device may reach the memory all the same, as that of a peer on the bus.
	Export(d tensor.Device, address uintptr, n int64) (DMABuf, error)
	// Flush has what other devices have written to memory of d be visible to work that is queued from here on. It
	// follows the completion of the writes, and returns at once where the device keeps them in order.
	// stepvan.ErrNotSupported says that d cannot promise that.
	Flush(d tensor.Device) error
}

// Event is the end of the work that a stream had when the event was recorded.
type Event interface {
	// Query reports whether that work is over. It never blocks. An error says that the work has failed, or that the
	// device is gone: then it is over as well, and nothing of it uses memory any more.
	Query() (over bool, err error)
	// Close gives the event up, once.
	Close()
}

// DMABuf is memory of a device as a file. The caller closes the file.
type DMABuf struct {
	FD     int
	Offset int64 // where the memory begins in the file
}
