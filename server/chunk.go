package server

import (
	"fmt"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
)

// chunkState tells which peer may write into a chunk by itself.
type chunkState uint8

const (
	chunkAnnounced   chunkState = iota // none: the worker sends its pushes
	chunkGranted                       // the worker
	chunkWithdrawing                   // the worker, until its fence comes or its session ends
	chunkFreeing                       // nothing more comes, and the van takes the grant back
	chunkStates
)

// chunkNext has for each state the one that follows.
var chunkNext = [chunkStates]chunkState{
	chunkAnnounced:   chunkGranted,
	chunkGranted:     chunkWithdrawing,
	chunkWithdrawing: chunkFreeing,
	chunkFreeing:     chunkAnnounced,
}

// chunk is the part of a receive buffer for one worker and key. Guarded by Server.mu.
type chunk struct {
	buffer     *ReceiveBuffer
	worker     *workerPeer
	key        tensor.Key
	generation uint32
	offset     int64        // in the registered tensor
	mem        []byte       // of the registered tensor
	user       *requestSlot // whose push it holds

	state       chunkState
	grant       link.GrantID  // unless announced
	direct      bool          // the grant is of memory of an accelerator
	session     *link.Session // of the grant
	withdrawnIn uint32        // the generation of the OpWithdraw that lists it; 0 where the session has ended
	awaitedBy   []*bufferChange
}

// leave moves the chunk from this state to the one that follows. In any other state it reports false and changes
// nothing.
func (c *chunk) leave(state chunkState) bool {
	if c.state != state {
		return false
	}
	c.state = chunkNext[state]
	return true
}

// registered reports whether the chunk receives pushes.
func (c *chunk) registered() bool { return c.worker.chunks[c.key] == c }

// named reports whether d names the chunk's grant.
func (c *chunk) named(d *wire.Descriptor) bool {
	return uint64(c.grant) == d.Region && c.generation == d.Generation && d.Offset == 0
}

// describe returns what the worker is told of the chunk.
func (c *chunk) describe() wire.Descriptor {
	d := wire.KeyOf(c.key, int64(len(c.mem)))
	d.Generation = c.generation
	if c.state == chunkGranted {
		d.Region = uint64(c.grant)
	}
	return d
}

// claim gives the chunk to a push until the respond.
func (c *chunk) claim(r *requestSlot, d *wire.Descriptor) error {
	if d.Bytes > uint64(len(c.mem)) {
		return errs.Invalid("push of key %d: it is larger than the buffer registered for it and %s (got %d bytes, want at most %d): register a larger one", d.Key, c.worker.name, d.Bytes, len(c.mem))
	}
	if address(c.mem)%uintptr(d.DType.Align()) != 0 {
		return errs.Invalid("push of key %d: the buffer registered for it and %s is not aligned for %s", d.Key, c.worker.name, d.DType)
	}
	if c.user != nil && c.user.answeredAtStop() {
		return fmt.Errorf("push of key %d: it came after the server had begun to stop", d.Key)
	}
	// The worker may have an answer, and push again, while its Respond still runs.
	if c.user != nil && c.user.state != requestAnswering {
		return errs.Invalid("push of key %d: it came before the last one was answered", d.Key)
	}
	c.user = r
	return nil
}

// makeTensor makes t the first bytes of the chunk, as the pushed tensor.
func (c *chunk) makeTensor(t *tensor.Tensor, d *wire.Descriptor) (err error) {
	whole := &c.buffer.tensor
	if r := whole.Region(); r != nil {
		return t.SetRegion(r, whole.Offset()+c.offset, d.DType, &d.Shape)
	}
	*t, err = tensor.FromBytes(d.DType, d.Shape, c.mem[:d.Bytes])
	return err
}

// errBusy is the error of an operation that would end the chunk while a request holds it.
func (c *chunk) errBusy(op string) error {
	return &stepvan.OpError{Op: op, Peer: c.worker.name, Err: fmt.Errorf("a request on key %d is unanswered: respond to it first: %w", c.key, stepvan.ErrBusy)}
}

// address returns the address of the first byte.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// overlap reports whether a and b have a byte in common.
func overlap(a, b []byte) bool {
	return address(a) < address(b)+uintptr(len(b)) && address(b) < address(a)+uintptr(len(a))
}
