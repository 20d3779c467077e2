package bus

import (
	"strings"
	"unicode"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
)

// Command is what a client asks of its agent: one of [InitPair], [RegisterTensors], [Transfer], [QueryStatus] and
// [CleanupBatch].
type Command interface {
	// Base returns the part that all commands have.
	Base() *BaseCommand
	// Name is the name of the class in Python.
	Name() string
	// Check refuses a command that no agent could follow. The errors are [stepvan.ErrInvalid].
	Check() error

	fields() int
	appendFields(b []byte) []byte
	read(f *fields)
}

// BaseCommand is what all commands have.
type BaseCommand struct {
	// Timestamp says when the client has sent the command, in seconds since 1970. 0 stands for None.
	Timestamp float64
	// Semaphore names the completion of the command. It is unique among the commands of the client that have not
	// completed. "" stands for None: nobody is announced.
	Semaphore string
}

// Base implements [Command].
func (c *BaseCommand) Base() *BaseCommand { return c }

// InitPair opens a pair: the two sides between which tensors move. Each rank of both sides sends one.
type InitPair struct {
	BaseCommand
	PairName          string
	LocalName         string // of the side of this client
	ExpectedWorldSize int    // ranks of the local side
	RemoteName        string // of the other side
	// MeshShape and Placements are the layout of the local side: see [EncodeMesh] and [EncodePlacements]. Without both,
	// rank i of one side has the same tensors as rank i of the other.
	MeshShape  []byte
	Placements []byte
}

// RegisterTensors makes a batch of tensors ready for transfers. All ranks of the pairs that it names send one.
type RegisterTensors struct {
	BaseCommand
	BatchID string
	Tensors []TensorOfPair
	// BucketSize is up to how many bytes small moves travel together. 0 stands for None. The plans of package peer pack
	// small moves by themselves.
	BucketSize int64
}

// TensorOfPair is a tensor and the pair that it moves over.
type TensorOfPair struct {
	PairName string
	Handle   []byte // see [TensorHandle]
}

// Transfer asks for the next round of a batch in one direction.
type Transfer struct {
	BaseCommand
	BatchID string
	Type    TransferType
}

// TransferType is the direction of a transfer, as this client sees it.
type TransferType string

// The directions.
const (
	Send TransferType = "send"
	Recv TransferType = "recv"
)

// QueryStatus asks for the state of a batch. The agent answers at once.
type QueryStatus struct {
	BaseCommand
	BatchID   string
	StateName string // StateStatus or StateSignal
}

// What QueryStatus may ask for.
const (
	StateStatus = "status"
	StateSignal = "transfer_signal"
)

// CleanupBatch ends a batch. Its memory belongs to the client again when the command has completed.
type CleanupBatch struct {
	BaseCommand
	BatchID string
}

// Limits of commands. They bound what a client may cost its agent.
const (
	MaxCommand   = 16 << 20 // bytes of an encoded command
	MaxName      = 64       // bytes of the name of a pair or a side
	MaxBatchID   = 128      // bytes
	MaxSemaphore = 256      // bytes
	MaxHandle    = 128      // bytes of a tensor handle
	MaxTensors   = 1 << 17  // of a batch
	maxPayload   = 512      // bytes of a mesh shape, or of placements
	maxWorld     = 1 << 16
)

// Name implements [Command].
func (*InitPair) Name() string { return "InitPair" }

// Name implements [Command].
func (*RegisterTensors) Name() string { return "RegisterTensors" }

// Name implements [Command].
func (*Transfer) Name() string { return "Transfer" }

// Name implements [Command].
func (*QueryStatus) Name() string { return "QueryStatus" }

// Name implements [Command].
func (*CleanupBatch) Name() string { return "CleanupBatch" }

// check refuses what no command may have.
func (c *BaseCommand) check(name string) error {
	if !(c.Timestamp >= 0 && c.Timestamp < 1e12) { // a NaN is neither
		return errs.Invalid("%s: timestamp: it is not a time (got %v): give seconds since 1970", name, c.Timestamp)
	}
	if len(c.Semaphore) > MaxSemaphore {
		return errs.Invalid("%s: semaphore_name: too long (got %d, want at most %d bytes): give a shorter one", name, len(c.Semaphore), MaxSemaphore)
	}
	return nil
}

// checkName refuses names that would not be fit for a log or the board.
func checkName(command, field, name string, most int) error {
	if name == "" || len(name) > most {
		return errs.Invalid("%s: %s: wrong length (got %d, want 1 to %d bytes): give another name", command, field, len(name), most)
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r == unicode.ReplacementChar || r == '/' || !unicode.IsPrint(r) }) {
		return errs.Invalid("%s: %s: it is not printable text without slashes (got %q): give another name", command, field, text.Cut(name))
	}
	return nil
}

// Check implements [Command].
func (c *InitPair) Check() error {
	if err := c.check(c.Name()); err != nil {
		return err
	}
	for _, f := range []struct{ field, name string }{
		{"pair_name", c.PairName}, {"local_name", c.LocalName}, {"remote_name", c.RemoteName},
	} {
		if err := checkName(c.Name(), f.field, f.name, MaxName); err != nil {
			return err
		}
	}
	if c.LocalName == c.RemoteName {
		return errs.Invalid("InitPair: remote_name: it is the local name (got %q): give the two sides different names", c.LocalName)
	}
	if c.ExpectedWorldSize < 1 || c.ExpectedWorldSize > maxWorld {
		return errs.Invalid("InitPair: expected_world_size: out of range (got %d, want 1 to %d): give the number of local ranks",
			c.ExpectedWorldSize, maxWorld)
	}
	_, err := c.layout()
	return err
}

// Check implements [Command].
func (c *RegisterTensors) Check() error {
	if err := c.check(c.Name()); err != nil {
		return err
	}
	if err := checkName(c.Name(), "batch_id", c.BatchID, MaxBatchID); err != nil {
		return err
	}
	if len(c.Tensors) == 0 || len(c.Tensors) > MaxTensors {
		return errs.Invalid("RegisterTensors: tensors: wrong number (got %d, want 1 to %d): register at least one, and many in several batches",
			len(c.Tensors), MaxTensors)
	}
	if c.BucketSize < 0 {
		return errs.Invalid("RegisterTensors: bucket_size: it is negative (got %d): give a number of bytes, or none", c.BucketSize)
	}
	for i, t := range c.Tensors {
		if err := checkName(c.Name(), "the pair of a tensor", t.PairName, MaxName); err != nil {
			return err
		}
		if len(t.Handle) == 0 || len(t.Handle) > MaxHandle {
			return errs.Invalid("RegisterTensors: handle of tensor %d: wrong length (got %d, want 1 to %d bytes): make it with TensorHandle.Encode",
				i, len(t.Handle), MaxHandle)
		}
	}
	return nil
}

// Check implements [Command].
func (c *Transfer) Check() error {
	if err := c.check(c.Name()); err != nil {
		return err
	}
	if c.Type != Send && c.Type != Recv {
		return errs.Invalid("Transfer: transfer_type: unknown (got %q): use \"send\" or \"recv\"", text.Cut(string(c.Type)))
	}
	return checkName(c.Name(), "batch_id", c.BatchID, MaxBatchID)
}

// Check implements [Command].
func (c *QueryStatus) Check() error {
	if err := c.check(c.Name()); err != nil {
		return err
	}
	if c.StateName != StateStatus && c.StateName != StateSignal {
		return errs.Invalid("QueryStatus: state_name: unknown (got %q): use %q or %q", text.Cut(c.StateName), StateStatus, StateSignal)
	}
	return checkName(c.Name(), "batch_id", c.BatchID, MaxBatchID)
}

// Check implements [Command].
func (c *CleanupBatch) Check() error {
	if err := c.check(c.Name()); err != nil {
		return err
	}
	return checkName(c.Name(), "batch_id", c.BatchID, MaxBatchID)
}
