package particle

import (
	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// Options make a [Loop]. Zero values stand for the defaults.
type Options struct {
	Devices int            // of this loop; 1
	Driver  stepvan.Rank   // the peer that creates particles; the same at all loops
	Ranks   []stepvan.Rank // the peers with loops, the same list at all; nil: all peers
	// AllowPickled lets this loop send and receive pickled values, between processes of one user on one machine.
	AllowPickled bool
	// Key is a secret of all loops, of 16 bytes or more. With it pickled values may also travel between machines. A
	// value that was not sealed with the key is refused.
	Key []byte
	// ValueBytes bounds one value, with its tensors; 4 GiB. It also bounds the values that are on their way from
	// one loop at a time.
	ValueBytes int64
	// Outstanding bounds the calls of this loop without a result; 65,536.
	Outstanding int
	// Memory is for tensors that are copied or received. nil: the heap, which other processes cannot map.
	Memory *tensor.Allocator
	// Pull has the program take calls with [Loop.Next]. Otherwise goroutines of the loop run the hooks.
	Pull bool
	// Recover is deferred by the goroutines of this package, to handle a mistake of it. nil: a panic ends the process.
	Recover func()
}

const (
	defaultValueBytes  = 4 << 30
	defaultOutstanding = 1 << 16
	leastKey           = 16
	maxDevices         = 1 << 16
)

func (o *Options) setDefaults() error {
	if o.Devices == 0 {
		o.Devices = 1
	}
	if o.ValueBytes == 0 {
		o.ValueBytes = defaultValueBytes
	}
	if o.Outstanding == 0 {
		o.Outstanding = defaultOutstanding
	}
	if o.Recover == nil {
		o.Recover = func() {}
	}
	switch {
	case o.Devices < 0 || o.Devices > maxDevices:
		return errs.Invalid("open: devices: there cannot be so many (got %d, want 1 to %d): count those of this loop", o.Devices, maxDevices)
	case o.Key != nil && len(o.Key) < leastKey:
		return errs.Invalid("open: key: it is too short (got %d bytes, want %d or more): give a random one", len(o.Key), leastKey)
	case o.ValueBytes < 0 || o.Outstanding < 0:
		return errs.Invalid("open: value bytes and outstanding: a limit is negative (got %d and %d): give 0 or more", o.ValueBytes, o.Outstanding)
	}
	return nil
}
