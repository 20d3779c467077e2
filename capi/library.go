package main

// #include "boundary.h"
import "C"

import (
	"sync"
	"unsafe"

	"github.com/stepvan/stepvan/capi/internal/numbers"
	"github.com/stepvan/stepvan/internal/version"
	"github.com/stepvan/stepvan/trace"
)

// What a process has once: the numbers that C has, and the memory that it passes in.
var (
	nodes         = numbers.Table[*node]{Kind: 1}
	memories      = numbers.Table[memory]{Kind: 2}
	registrations = numbers.Table[*registration]{Kind: 3}
	queues        = numbers.Table[*queue]{Kind: 4}
	plans         = numbers.Table[*plan]{Kind: 5}
	groups        = numbers.Table[*group]{Kind: 6}
	collectives   = numbers.Table[*collective]{Kind: 7}
	exposures     = numbers.Table[*exposed]{Kind: 8}
	mailboxes     = numbers.Table[*mailbox]{Kind: 9}
	watches       = numbers.Table[*watch]{Kind: 10}
	agents        = numbers.Table[*agent]{Kind: 11}
	loops         = numbers.Table[*loop]{Kind: 12}
	futures       = numbers.Table[*future]{Kind: 13}
	calls         = numbers.Table[*hooked]{Kind: 14}
	values        = numbers.Table[*shown]{Kind: 15}
	foreign       foreignMemory
)

// versionText writes the text of stepvan_version, once, where it lives as long as the process.
var versionText = sync.OnceValue(func() *C.char {
	write(unsafe.Slice((*byte)(unsafe.Pointer(&C.boundary_version)), len(C.boundary_version)), version.Text())
	return &C.boundary_version[0]
})

// goVersion implements
//
//	const char *stepvan_version(void);
//
//export goVersion
func goVersion() *C.char { return versionText() }

// goGetNanosecond implements
//
//	int64_t stepvan_get_nanosecond(void);
//
//export goGetNanosecond
func goGetNanosecond() cInt64 { return cInt64(trace.Now()) }

// goReleased implements
//
//	uint64_t stepvan_released(uint64_t *owners, uint64_t capacity);
//
//export goReleased
func goReleased(owners *cUint64, capacity cUint64) cUint64 {
	if owners == nil || capacity == 0 {
		return 0
	}
	return cUint64(foreign.collect(list[uint64](unsafe.Pointer(owners), min(capacity, maxList))))
}

// maxList bounds arrays of C: a larger length is a mistake.
const maxList = 1 << 32

// list is an array of C as a slice, for the duration of the call.
func list[T any](p unsafe.Pointer, n cUint64) []T {
	if p == nil || n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(p), n)
}
