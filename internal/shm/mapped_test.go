package shm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestUnmappedMemoryIsNamed(t *testing.T) {
	b, err := unix.Mmap(-1, 0, 4*unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	there := make([]byte, 100)
	part := b[10:]
	require.NoError(t, Unmapped([][]byte{there, nil, part}))
	require.NoError(t, unix.Munmap(b))
	err = Unmapped([][]byte{there, nil, part})
	require.ErrorIs(t, err, unix.EFAULT)
	require.ErrorContains(t, err, fmt.Sprintf("%d bytes at %p: keep it", len(part), &part[0]))
	require.NoError(t, Unmapped([][]byte{there, nil}))
}
