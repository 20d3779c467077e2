//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/capi/internal/numbers"
	"github.com/stepvan/stepvan/ps"
)

func TestCodes(t *testing.T) {
	wrap := func(err error) error {
		return &stepvan.OpError{Op: "x", Peer: "worker 3", Err: fmt.Errorf("y: %w", err)}
	}
	for _, c := range []struct {
		err  error
		want cCode
	}{
		{nil, codeOK},
		{context.DeadlineExceeded, codeTimeout},
		{context.Canceled, codeClosed},
		{stepvan.ErrClosed, codeClosed},
		{stepvan.ErrNotSupported, codeNotSupported},
		{stepvan.ErrWouldBlock, codeWouldBlock},
		{stepvan.ErrStale, codeStale},
		{stepvan.ErrPeerLost, codePeerLost},
		{stepvan.ErrBusy, codeBusy},
		{stepvan.ErrInvalid, codeInvalid},
		{stepvan.ErrRemote, codeRemote},
		{stepvan.ErrNoMemory, codeNoMemory},
		{&stepvan.ProtocolError{Field: "magic"}, codeProtocol},
		{errors.Join(&stepvan.ConfigError{Key: "A"}, &stepvan.ConfigError{Key: "B"}), codeConfig},
		{&coded{codeExpired, context.DeadlineExceeded}, codeExpired},
		{errors.New("?"), codeInternal},
		{&stepvan.InternalError{Op: "x"}, codeInternal},
		{fmt.Errorf("%w: %w", stepvan.ErrPeerLost, &stepvan.InternalError{Op: "x"}), codeInternal},
	} {
		require.Equal(t, c.want, codeOf(c.err), c.err)
		if c.err != nil {
			require.Equal(t, c.want, codeOf(wrap(c.err)), c.err)
		}
	}
}

func chars[T any](field *T) string {
	b := unsafe.Slice((*byte)(unsafe.Pointer(field)), unsafe.Sizeof(*field))
	text, _, _ := strings.Cut(string(b), "\x00")
	return text
}

func TestErrorsAreWritten(t *testing.T) {
	var e cError
	require.Equal(t, codePeerLost, fail(&e, &stepvan.OpError{Op: "wait", Peer: "server 1", Err: stepvan.ErrPeerLost}))
	require.Equal(t, codePeerLost, e.code)
	require.Equal(t, "server 1", chars(&e.subject))
	require.Contains(t, chars(&e.message), "peer lost")
	require.Equal(t, codeConfig, fail(&e, &stepvan.ConfigError{Key: "DMLC_ROLE", Reason: "is missing"}))
	require.Equal(t, "DMLC_ROLE", chars(&e.subject))
	require.Equal(t, codeInvalid, fail(nil, stepvan.ErrInvalid))
	e = cError{message: e.message}
	require.Equal(t, codeOK, result(&e, nil))
	require.Zero(t, e.code)
}

func TestLongTextsAreCutBetweenCharacters(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""}, {"abcdefg", "abcdefg"}, {"abcdefgh", "abcdefg"}, {"abcdefü", "abcdef"}, {"abcde€", "abcde"}, {"\x80\x80\x80\x80\x80\x80\x80\x80", ""},
	} {
		var b [8]byte
		write(b[:], c.text)
		require.Equal(t, c.want, chars(&b), c.text)
	}
}

func TestPanicsEndAtTheBoundary(t *testing.T) {
	var e cError
	f := func() (code cCode) {
		defer guard(&e, &code)
		panic("boom")
	}
	require.Equal(t, codeInternal, f())
	require.Contains(t, chars(&e.message), "panic: boom")
}

// A call that panics may have left its node in any state, so it ends the node, with all that waits.
func TestPanicsOfCallsEndTheNode(t *testing.T) {
	c := newCluster(t)
	n, _ := nodes.Get(numbers.ID(c.worker))
	waited := make(chan cCode)
	go func() { waited <- goBarrier(c.worker, roleWorker|roleServer, 1, -1, nil) }()
	n.worker = new(ps.Worker) // whose methods panic
	var done cInt32
	require.Equal(t, codeInternal, goDone(c.worker, 5, &done, c.e))
	require.Contains(t, chars(&c.e.message), "worker 0: stepvan_done: panic: ")
	require.Empty(t, chars(&c.e.subject))
	require.Equal(t, codeInternal, <-waited)
	require.Equal(t, codeInternal, goHealth(c.worker, c.e))
	require.Equal(t, codeInternal, goStop(c.worker, -1, c.e))
	require.Eventually(t, func() bool { return goHealth(c.server, c.e) == codePeerLost }, 20*time.Second, time.Millisecond)
	require.Equal(t, codePeerLost, goBarrier(c.server, roleWorker|roleServer, 1, -1, c.e))
	require.Equal(t, "worker 0", strings.SplitN(chars(&c.e.subject), " (", 2)[0])
	c.each(func(id cUint64, e *cError) { goClose(id, e) })
}

func TestNamesOfCalls(t *testing.T) {
	require.Equal(t, "_register_recv_buffer", snake("RegisterRecvBuffer"))
	require.Equal(t, "call", callName())
}
