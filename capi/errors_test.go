//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/ps"
)

func TestCodes(t *testing.T) {
	wrap := func(err error) error { return &ps.OpError{Op: "x", Peer: "worker 3", Err: fmt.Errorf("y: %w", err)} }
	for _, c := range []struct {
		err  error
		want cCode
	}{
		{nil, codeOK},
		{context.DeadlineExceeded, codeTimeout},
		{context.Canceled, codeClosed},
		{ps.ErrClosed, codeClosed},
		{ps.ErrNotSupported, codeNotSupported},
		{ps.ErrWouldBlock, codeWouldBlock},
		{ps.ErrStale, codeStale},
		{ps.ErrNotRegistered, codeNotRegistered},
		{ps.ErrPeerLost, codePeerLost},
		{ps.ErrBusy, codeBusy},
		{ps.ErrInvalid, codeInvalid},
		{ps.ErrRemote, codeRemote},
		{&ps.ProtocolError{Field: "magic"}, codeProtocol},
		{errors.Join(&ps.ConfigError{Key: "A"}, &ps.ConfigError{Key: "B"}), codeConfig},
		{&coded{codeExpired, context.DeadlineExceeded}, codeExpired},
		{errors.New("?"), codeInternal},
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
	require.Equal(t, codePeerLost, fail(&e, &ps.OpError{Op: "wait", Peer: "server 1", Err: ps.ErrPeerLost}))
	require.Equal(t, codePeerLost, e.code)
	require.Equal(t, "server 1", chars(&e.subject))
	require.Contains(t, chars(&e.message), "peer lost")
	require.Equal(t, codeConfig, fail(&e, &ps.ConfigError{Key: "DMLC_ROLE", Reason: "is missing"}))
	require.Equal(t, "DMLC_ROLE", chars(&e.subject))
	require.Equal(t, codeInvalid, fail(nil, ps.ErrInvalid))
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
