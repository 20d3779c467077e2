package van

// The interfaces of this file are optional: a van or an endpoint implements those that suit it.

// Prober is implemented by vans that know without connecting which addresses they cannot reach.
type Prober interface {
	// Probe returns nil when the peer that has announced addr, as its Listen returned it, seems to be within reach.
	// Otherwise it returns the reason, for people: "other machine". It is quick, may be called concurrently, and
	// promises nothing: Dial may still fail.
	Probe(addr string) error
}

// Registrar is implemented by vans with Caps.Registered. Both methods may block for long, and may be called
// concurrently with everything. The driver does not call them.
type Registrar interface {
	// Register has the device of the van reach mem, which means the same memory until Deregister has returned. Memory
	// may be registered more than once, also in parts. Each Register that has returned nil is ended by one Deregister
	// of the same memory. Errors:
	//
	//   - stepvan.ErrNotSupported: the device cannot reach this memory. It goes another way.
	//   - stepvan.ErrClosed: the van is closed.
	//   - any other, which says what the system lacks.
	Register(mem []byte) error

	// Deregister ends a registration. From here on Grant and Send do not find the memory. Grants and operations that
	// were accepted before keep what they need, until the grant is withdrawn and the operation complete.
	Deregister(mem []byte) error
}

// AcceleratorRegistrar is implemented by Registrars whose device may reach memory of accelerators.
type AcceleratorRegistrar interface {
	Registrar
	// RegisterAccelerator is Register for memory of an accelerator, which Deregister ends as well. mem has the
	// addresses of the memory, here and in Grant and Message.Payload. The van never uses its bytes. fd is the memory as
	// a dma-buf, where it begins at offset, and stays the caller's. With fd -1 the device is to reach the memory as
	// that of a peer on the bus.
	RegisterAccelerator(mem []byte, fd int, offset int64) error
}

// Settler is implemented by accepted endpoints of vans that bound how many unknown peers may be connected. Beyond the
// bound such a van closes the oldest of them, and then accepts no others for a while.
type Settler interface {
	// Settle says that the peer is known: its connection makes room for nobody. By the caller of Poll.
	Settle()
}

// Vans implement Mover when their Poll may move a part of a message without an event. The driver polls again while
// parts move, as it does while events come.
type Mover interface {
	// Moved reports whether the last Poll moved bytes or handed out completions. The caller of Poll only.
	Moved() bool
}
