package tensor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClasses(t *testing.T) {
	last, lastSize := -1, int64(0)
	for n := int64(0); n < 1<<16; n++ {
		c, size := classOf(n)
		require.GreaterOrEqual(t, size, n)
		if n > 4*granule {
			require.LessOrEqual(t, size, n+n/4+1, n)
		}
		require.Zero(t, size%granule, n)
		if c != last {
			require.Equal(t, last+1, c, "at %d", n)
			require.Equal(t, max(lastSize+1, 1), max(n, 1), "a class ends where its size does")
		} else {
			require.Equal(t, lastSize, size)
		}
		last, lastSize = c, size
	}
	c, size := classOf(1 << maxClassLog)
	require.Equal(t, classCount-1, c)
	require.Equal(t, int64(1)<<maxClassLog, size)
	c, size = classOf(1<<maxClassLog + 1)
	require.Equal(t, noClass, c)
	require.Equal(t, int64(1)<<maxClassLog+1, size)
}
