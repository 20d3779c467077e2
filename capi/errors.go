//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"unicode/utf8"
	"unsafe"

	"github.com/stepvan/stepvan/capi/internal/slots"
	"github.com/stepvan/stepvan/ps"
)

// coded is an error whose code does not follow from what it wraps.
type coded struct {
	code cCode
	err  error
}

func (c *coded) Error() string { return c.err.Error() }

func (c *coded) Unwrap() error { return c.err }

func invalid(format string, args ...any) error {
	return &coded{codeInvalid, fmt.Errorf(format, args...)}
}

// missing is the error of a number that names nothing in a table: it never did, or what it named has ended so.
func missing[T any](t *slots.Table[T], what, ended string, id cUint64) error {
	if t.Fate(slots.ID(id)) == slots.Unknown {
		return &coded{codeStale, fmt.Errorf("%d is no %s", id, what)}
	}
	return &coded{codeStale, fmt.Errorf("%s %d %s", what, id, ended)}
}

func tooSmall(n int, capacity cUint64) error {
	return &coded{codeTooSmall, fmt.Errorf("room for %d, and there are %d", capacity, n)}
}

func isNull(what string) error { return invalid("%s must not be NULL", what) }

// sentinels in the order in which they decide: the first that an error wraps.
var sentinels = []struct {
	err  error
	code cCode
}{
	{ps.ErrPeerLost, codePeerLost},
	{ps.ErrRemote, codeRemote},
	{ps.ErrStale, codeStale},
	{ps.ErrWouldBlock, codeWouldBlock},
	{ps.ErrBusy, codeBusy},
	{ps.ErrNotRegistered, codeNotRegistered},
	{ps.ErrInvalid, codeInvalid},
	{context.DeadlineExceeded, codeTimeout},
	{ps.ErrNotSupported, codeNotSupported},
	{ps.ErrClosed, codeClosed},
	{context.Canceled, codeClosed},
}

func codeOf(err error) cCode {
	var c *coded
	var wrong *ps.ConfigError
	var broken *ps.ProtocolError
	switch {
	case err == nil:
		return codeOK
	case errors.As(err, &c):
		return c.code
	case errors.As(err, &wrong):
		return codeConfig
	}
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			return s.code
		}
	}
	if errors.As(err, &broken) {
		return codeProtocol
	}
	return codeInternal
}

// subjectOf names what an error is about: a variable or a peer.
func subjectOf(err error) string {
	var wrong *ps.ConfigError
	var op *ps.OpError
	switch {
	case errors.As(err, &wrong):
		return wrong.Key
	case errors.As(err, &op):
		return op.Peer
	}
	return ""
}

// result is what a Go half returns. 0 allocations without an error.
func result(e *cError, err error) cCode {
	if err == nil {
		return codeOK
	}
	return fail(e, err)
}

// fail writes an error to the caller's struct, if there is one, and returns its code.
func fail(e *cError, err error) cCode {
	code := codeOf(err)
	if e == nil {
		return code
	}
	e.code, e.reserved = code, 0
	write(unsafe.Slice((*byte)(unsafe.Pointer(&e.subject[0])), len(e.subject)), subjectOf(err))
	write(unsafe.Slice((*byte)(unsafe.Pointer(&e.message[0])), len(e.message)), err.Error())
	return code
}

// write copies as much of a text as fits, whole characters only, and ends it with 0.
func write(dst []byte, text string) {
	n := min(len(text), len(dst)-1)
	for n > 0 && n < len(text) && !utf8.RuneStart(text[n]) {
		n--
	}
	copy(dst, text[:n])
	dst[n] = 0
}

// guard ends a panic at the boundary. Deferred by every Go half.
func guard(e *cError, code *cCode) {
	if r := recover(); r != nil {
		*code = fail(e, panicked(r))
	}
}

// shielded calls f, on a goroutine of this package, where a panic would end the process: it is the error of who waits for
// f, and is written to standard error, for nobody may.
func shielded(what string, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicked(r)
			fmt.Fprintf(os.Stderr, "stepvan: %s: %v\n", what, err)
		}
	}()
	return f()
}

func panicked(r any) error {
	return &coded{codeInternal, fmt.Errorf("panic: %v\n%s", r, debug.Stack())}
}
