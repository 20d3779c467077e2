package tensor

import (
	"os"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
)

// Defaults of Options.
const (
	DefaultArenaBytes int64 = 64 << 20
	DefaultIdleBytes  int64 = 512 << 20
)

// Options says how an Allocator takes memory from the system. The zero value
// of each field is its default.
type Options struct {
	// Name appears in messages and as the name of the memory in
	// /proc/PID/maps. Default "tensor".
	Name string
	// ArenaBytes is the size of a full arena, and of the largest region that
	// shares one: a larger region gets memory of its own. The first arenas are
	// smaller, so that a small node takes little. Default DefaultArenaBytes.
	ArenaBytes int64
	// MaxBytes limits what is taken from the system. Default: no limit.
	MaxBytes int64
	// MaxBytesSetting is what the user must raise when MaxBytes is reached, in
	// the words of the program's settings. Default "MaxBytes".
	MaxBytesSetting string
	// IdleBytes limits what Put keeps for later Gets. Default DefaultIdleBytes.
	IdleBytes int64
	// HugePages says whether arenas lie in huge pages. Default HugePagesAuto.
	HugePages HugePages
	// Near, if set, runs make, which takes memory from the system. The thread and
	// the policy that Near chooses decide on which NUMA nodes the memory lies. Any
	// goroutine may call it.
	Near func(make func())
	// Debug records the callers that asked for each region, for Leaks. It makes
	// Get slower.
	Debug bool
}

// HugePages says whether memory lies in huge pages.
type HugePages uint8

// The values of Options.HugePages.
const (
	HugePagesAuto     HugePages = iota // where the system has some to give
	HugePagesOff                       // never
	HugePagesRequired                  // always: without them no memory is given
)

// complete fills in defaults and refuses sizes that make no sense.
func (o *Options) complete() error {
	if o.ArenaBytes < 0 || o.MaxBytes < 0 || o.IdleBytes < 0 || o.HugePages > HugePagesRequired {
		return errs.Invalid("allocator %q: ArenaBytes %d, MaxBytes %d and IdleBytes %d must not be negative, HugePages %d must be one of its values",
			text.Cut(o.Name), o.ArenaBytes, o.MaxBytes, o.IdleBytes, o.HugePages)
	}
	if o.Name == "" {
		o.Name = "tensor"
	}
	if o.MaxBytesSetting == "" {
		o.MaxBytesSetting = "MaxBytes"
	}
	if o.ArenaBytes == 0 {
		o.ArenaBytes = DefaultArenaBytes
	}
	if o.IdleBytes == 0 {
		o.IdleBytes = DefaultIdleBytes
	}
	page := int64(os.Getpagesize())
	if o.MaxBytes > 0 && o.MaxBytes < page {
		return errs.Invalid("allocator %q: %s is %d bytes, less than one page of %d", text.Cut(o.Name), o.MaxBytesSetting, o.MaxBytes, page)
	}
	o.ArenaBytes = roundUp(o.ArenaBytes, page)
	return nil
}

// roundUp rounds n up to a multiple of unit, a power of two.
func roundUp(n, unit int64) int64 { return (n + unit - 1) &^ (unit - 1) }
