package sys

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestRetryRepeatsInterruptedCalls(t *testing.T) {
	left := 3
	err := Retry(func() error {
		if left--; left > 0 {
			return unix.EINTR
		}
		return unix.EIO
	})
	require.Equal(t, unix.EIO, err)
	require.Zero(t, left)
}
