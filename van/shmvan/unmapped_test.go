package shmvan

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/shm"
)

// EFAULT does not say whose memory is gone; the error does.
func TestWhoseMemoryIsGoneIsTold(t *testing.T) {
	_, _, _, y := pair(t, Options{})
	if !y.receiver.canRead {
		t.Skip("this kernel does not let processes read each other's memory")
	}
	m, err := shm.Anonymous(8 << 20) // the kernel puts mappings at its end first, so that nothing gets the place of its beginning
	require.NoError(t, err)
	gone := m.Bytes()[:1<<16]
	require.NoError(t, m.Close())
	there := make([]byte, 1<<16)
	y.receiver.arrival = arrival{dst: [][]byte{there}}
	err = y.receiver.readForeign(segment{at: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(gone)))), n: 1 << 16})
	require.ErrorIs(t, err, stepvan.ErrPeerLost)
	require.ErrorContains(t, err, "peer lost: it has unmapped the memory of a tensor in use, 65536 bytes at 0x")

	y.receiver.arrival = arrival{dst: [][]byte{gone}}
	err = y.receiver.readForeign(segment{at: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(there)))), n: 1 << 16})
	require.ErrorIs(t, err, stepvan.ErrPeerLost)
	require.ErrorContains(t, err, "this process has unmapped the memory of a tensor in use, 65536 bytes at 0x")
}
