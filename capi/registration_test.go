//go:build cgo

package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/ps"
)

// A registration that a worker does not know of yet has a number to wait with.
func TestRegistrationsThatComeAbout(t *testing.T) {
	recv := new(ps.ReceiveBuffer)
	late := &ps.PendingError{Buffer: recv, Err: fmt.Errorf("worker 0: %w", context.DeadlineExceeded)}
	for name, x := range map[string]struct {
		recv *ps.ReceiveBuffer
		err  error
		want *ps.ReceiveBuffer
	}{
		"known":           {recv, nil, recv},
		"not yet":         {nil, late, recv},
		"not yet, deeper": {nil, fmt.Errorf("node: %w", late), recv},
		"refused":         {nil, stepvan.ErrBusy, nil},
	} {
		require.Same(t, x.want, receiveBufferOf(x.recv, x.err), name)
	}
	require.Equal(t, codeTimeout, codeOf(late))
}
