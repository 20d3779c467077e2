package shm

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
)

func TestAnonymous(t *testing.T) {
	m, err := Anonymous(12345)
	require.NoError(t, err)
	require.Len(t, m.Bytes(), 12345)
	require.Equal(t, make([]byte, 12345), m.Bytes())
	require.Equal(t, int64(12345), m.Size())
	require.Equal(t, -1, m.FD())
	require.False(t, m.Huge())
	m.Bytes()[12344] = 1
	require.NoError(t, m.Close())
	require.NoError(t, m.Close())

	for _, size := range []int64{0, -1} {
		_, err = Anonymous(size)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
	}
	_, err = Anonymous(math.MaxInt64 / 2)
	require.ErrorIs(t, err, unix.ENOMEM)
}

func TestNoFiles(t *testing.T) {
	for err, want := range map[error]bool{
		unix.EPERM: true, unix.EACCES: true, unix.ENOSYS: true,
		unix.ENOMEM: false, unix.EMFILE: false, unix.EINVAL: false,
	} {
		require.Equal(t, want, NoFiles(fmt.Errorf("creating: %w", err)), "%v", err)
	}
	require.False(t, NoFiles(nil))
}
