package sys

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestAThreadIsBoundToCores(t *testing.T) {
	runtime.LockOSThread() // the thread ends with the test
	mask := make([]uint64, 128)
	words, err := Affinity(0, mask)
	require.NoError(t, err)
	require.Positive(t, words)
	require.NoError(t, SetAffinity(0, mask[:words]))
	require.Equal(t, unix.EINVAL, SetAffinity(0, make([]uint64, words)), "no core at all")
	_, err = Affinity(1<<30, mask)
	require.Equal(t, unix.ESRCH, err, "no such thread")
}
