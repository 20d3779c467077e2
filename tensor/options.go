package tensor

import (
	"os"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
)

// These are the defaults of [Options], in bytes.
const (
	DefaultArenaBytes int64 = 64 << 20
	DefaultIdleBytes  int64 = 512 << 20
)

// Options says how an [Allocator] takes memory from the system. A field that is zero has its default.
type Options struct {
	// Name appears in errors, and names the memory in /proc/PID/maps. The default is "tensor".
	Name string
	// ArenaBytes is the size of an arena: a memory file that several regions share. A larger region gets a file of its
	// own. The first arenas are smaller, so that a small node takes little memory. The default is DefaultArenaBytes.
	ArenaBytes int64
	// MaxBytes limits the bytes that the allocator takes from the system. At the limit a call returns ErrWouldBlock.
	// Without it the allocator takes as many as callers ask for.
	MaxBytes int64
	// MaxBytesSetting is the name of MaxBytes in the program's settings. The error at the limit names it. The default
	// is "MaxBytes".
	MaxBytesSetting string
	// IdleBytes limits the bytes that Put keeps for later calls of Get. The default is DefaultIdleBytes.
	IdleBytes int64
	// HugePages says whether arenas lie in huge pages. The default is HugePagesAuto.
	HugePages HugePages
	// Near, if it is set, must call make, which takes memory from the system. Near chooses the thread and the memory
	// policy for that call, and thus the NUMA nodes of the memory. Any goroutine may call Near.
	Near func(make func())
	// Debug has the allocator record the callers that asked for each region, for Leaks. It makes Get slower.
	Debug bool
}

// HugePages says whether memory lies in huge pages.
type HugePages uint8

// These are the values of Options.HugePages.
const (
	HugePagesAuto     HugePages = iota // where the system has free huge pages
	HugePagesOff                       // never
	HugePagesRequired                  // always: without free huge pages Alloc fails
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
