package verbs

import (
	"fmt"

	"github.com/stepvan/stepvan"
)

// LocalKey names registered memory to the own device, RemoteKey to a peer's. QPNumber is the number of a queue pair on
// its device.
type (
	LocalKey  uint32
	RemoteKey uint32
	QPNumber  uint32
)

// String writes the number as tools of RDMA do.
func (n QPNumber) String() string { return fmt.Sprintf("queue pair %#x", uint32(n)) }

// Opcode is what a request does.
type Opcode uint32

// The operations of a reliable connection.
const (
	OpWrite          Opcode = 0
	OpWriteImmediate Opcode = 1
	OpSend           Opcode = 2
	OpSendImmediate  Opcode = 3
	OpRead           Opcode = 4
	OpInvalidate     Opcode = 7 // Request.Invalidate is a local key or that of a window
	OpSendInvalidate Opcode = 9
	opBind           Opcode = 8 // SendChain.Bind makes it
)

// Flags of a request.
type Flags uint32

// Fence waits for earlier reads. Signaled asks for a completion. Solicited wakes a peer that armed its queue for such
// messages only. Inline copies the segments when the request is posted, so they need no registration.
const (
	Fence     Flags = 1
	Signaled  Flags = 2
	Solicited Flags = 4
	Inline    Flags = 8
)

// Access is what may be done with memory.
type Access uint32

// LocalWrite is needed for what the own device writes: received messages, and what it reads from a peer. RemoteWrite
// needs it as well. BindWindows lets windows be bound to the memory. Without RelaxedOrdering the device writes in
// order; a device that does not know it ignores it.
const (
	LocalWrite      Access = 1
	RemoteWrite     Access = 2
	RemoteRead      Access = 4
	BindWindows     Access = 16
	RelaxedOrdering Access = 1 << 20
)

// Segment is a piece of registered memory. With Inline the key does not matter.
type Segment struct {
	Addr   uintptr
	Length uint32
	Key    LocalKey
}

// Request is a work request of the send side. Its segments come beside it.
type Request struct {
	ID         uint64
	Op         Opcode
	Flags      Flags
	Immediate  uint32    // OpWriteImmediate, OpSendImmediate
	Invalidate RemoteKey // OpInvalidate, OpSendInvalidate
	Remote     uint64    // OpWrite, OpWriteImmediate, OpRead: the address at the peer
	Key        RemoteKey // of that address
}

// CompletionOp is what a completed request has done.
type CompletionOp uint32

// The operations that completions name. A failed request names none.
const (
	DoneSend             CompletionOp = 0
	DoneWrite            CompletionOp = 1
	DoneRead             CompletionOp = 2
	DoneBind             CompletionOp = 5
	DoneInvalidate       CompletionOp = 6
	DoneReceive          CompletionOp = 128
	DoneReceiveImmediate CompletionOp = 129 // a write with immediate of the peer
)

// Completion is the end of a request. If Status is not StatusSuccess, only ID, Status, Vendor and QP have a meaning.
type Completion struct {
	ID           uint64
	Status       Status
	Op           CompletionOp
	Vendor       uint32
	Bytes        uint32 // received
	Immediate    uint32
	HasImmediate bool
	Invalidated  RemoteKey // by the peer's OpSendInvalidate; else 0
	QP           QPNumber
}

// Err is the error of a failed request; nil after success. op is what the request was.
func (c *Completion) Err(op, device string) error {
	if c.Status == StatusSuccess {
		return nil
	}
	return &CompletionError{Op: op, Device: device, QP: c.QP, Status: c.Status, Vendor: c.Vendor}
}

// Counters is what went through a queue pair. Bytes counts the own segments: written, sent and read.
type Counters struct {
	Doorbells, Requests, Signaled, Reads, Bytes uint64 // of the send side
	ReceiveDoorbells, Receives                  uint64
}

// The errors of posting are made once, since the data path does not allocate.
var (
	// ErrChainFull: the chain has no room for the request. It wraps stepvan.ErrWouldBlock.
	ErrChainFull = fmt.Errorf("chain: no room for another request or its segments: post it first: %w", stepvan.ErrWouldBlock)

	errBadRequest    = fmt.Errorf("%w: chain: the request has an operation that chains do not have, or too many segments", stepvan.ErrInvalid)
	errQPClosed      = fmt.Errorf("post: the queue pair: %w", stepvan.ErrClosed)
	errCQClosed      = fmt.Errorf("poll: the completion queue: %w", stepvan.ErrClosed)
	errWindowClosed  = fmt.Errorf("bind: the window or its memory region: %w", stepvan.ErrClosed)
	errChannelClosed = fmt.Errorf("get event: the channel: %w", stepvan.ErrClosed)
	errIDClosed      = fmt.Errorf("the connection: %w", stepvan.ErrClosed)
)
