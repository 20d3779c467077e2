package sys

import (
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestMappedFindsAMissingPage(t *testing.T) {
	page := unix.Getpagesize()
	b, err := unix.Mmap(-1, 0, 3*page, unix.PROT_READ, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	require.True(t, Mapped(b[10:]))
	require.NoError(t, unix.Munmap(b))
	require.False(t, Mapped(b[10:20]))
	require.True(t, Mapped(make([]byte, 100)))
}

func TestReadProcessReadsThisOne(t *testing.T) {
	from, to := []byte("memory"), make([]byte, 6)
	n, err := ReadProcess(os.Getpid(), to, uint64(uintptr(unsafe.Pointer(&from[0]))))
	if err != nil {
		t.Skipf("the kernel does not let this process read memory so: %v", err)
	}
	require.Equal(t, from, to[:n])
	_, err = ReadProcess(os.Getpid(), to, 0)
	require.ErrorIs(t, err, unix.EFAULT)
}
