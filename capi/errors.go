//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/capi/internal/numbers"
	"github.com/stepvan/stepvan/peer"
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

// missing is the error of a number that names nothing in a table: it never did, or its value has ended, perhaps with
// its node.
func missing[T any](t *numbers.Table[T], what, ended string, id cUint64) error {
	switch t.Fate(numbers.ID(id)) {
	case numbers.Unknown:
		return &coded{codeStale, fmt.Errorf("%d is not the number of a %s", id, what)}
	case numbers.Swept:
		return &coded{codeClosed, fmt.Errorf("%s %d ended with its node, which was closed", what, id)}
	}
	return &coded{codeStale, fmt.Errorf("%s %d %s", what, id, ended)}
}

func tooSmall(n int, capacity cUint64) error {
	return &coded{codeTooSmall, fmt.Errorf("the array is too small (got room for %d, want %d): call again with a larger one", capacity, n)}
}

func isNull(what string) error { return invalid("%s must not be NULL", what) }

// sentinels in the order in which they decide: the first that an error wraps.
var sentinels = []struct {
	err  error
	code cCode
}{
	{stepvan.ErrRefused, codeRefused},
	{stepvan.ErrPeerLost, codePeerLost},
	{stepvan.ErrStale, codeStale}, // also where a peer says so
	{stepvan.ErrRemote, codeRemote},
	{stepvan.ErrWouldBlock, codeWouldBlock},
	{stepvan.ErrBusy, codeBusy},
	{stepvan.ErrInvalid, codeInvalid},
	{context.DeadlineExceeded, codeTimeout},
	{stepvan.ErrNotSupported, codeNotSupported},
	{stepvan.ErrClosed, codeClosed},
	{context.Canceled, codeClosed},
	{stepvan.ErrNoMemory, codeNoMemory},
}

func codeOf(err error) cCode {
	var c *coded
	var wrong *stepvan.ConfigError
	var broken *stepvan.ProtocolError
	var mistake *stepvan.InternalError
	switch {
	case err == nil:
		return codeOK
	case errors.As(err, &mistake):
		return codeInternal
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
	var wrong *stepvan.ConfigError
	var op *stepvan.OpError
	var mistake *stepvan.InternalError
	var differs *peer.MismatchError
	switch {
	case errors.As(err, &mistake):
		return "" // a mistake of this library is not about a peer
	case errors.As(err, &wrong):
		return wrong.Key
	case errors.As(err, &op):
		return op.Peer
	case errors.As(err, &differs):
		return differs.Peer
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

// guardNode is guard for a call that names a node, which the panic ends, too.
func guardNode(id cUint64, e *cError, code *cCode) {
	if r := recover(); r != nil {
		*code = fail(e, panickedAt(id, r))
	}
}

// guardOf is guardNode for a node that is known.
func guardOf(n *node, e *cError, code *cCode) {
	if r := recover(); r != nil {
		*code = fail(e, n.panicked(r, callName()))
	}
}

func panickedAt(id cUint64, r any) error {
	n, ok := nodes.Get(numbers.ID(id))
	if !ok {
		return panicked(r)
	}
	return n.panicked(r, callName())
}

// panicked ends a node after a panic. Called where the stack of the panic still is.
func (n *node) panicked(r any, op string) (err error) {
	defer func() {
		if again := recover(); again != nil {
			err = panicked(r) // a panic from a broken node
		}
	}()
	live := n.live.Load()
	if live == nil {
		return panicked(r)
	}
	return live.Panicked(r, op)
}

// callName is the function of stepvan.h whose Go half is on the stack: "stepvan_push_pull" of goPushPull.
func callName() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	for {
		f, more := frames.Next()
		if half, ok := strings.CutPrefix(f.Function[strings.LastIndexByte(f.Function, '.')+1:], "go"); ok && half != "" && unicode.IsUpper(rune(half[0])) {
			return "stepvan" + snake(half)
		}
		if !more {
			return "call"
		}
	}
}

// snake is "_push_pull" of "PushPull".
func snake(name string) string {
	var b strings.Builder
	for _, r := range name {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// shielded is the function shielded for a goroutine of a node. A panic ends the node, too.
func (n *node) shielded(what string, f func() error) error {
	return shielded(what, func() (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = n.panicked(r, what)
			}
		}()
		return f()
	})
}

// shielded calls f on a goroutine of this package, where a panic would end the process. It returns the panic as an
// error. It also writes it to standard error, because C may never wait for f.
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
