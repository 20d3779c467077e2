package van

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCursorWalksThroughSegments(t *testing.T) {
	segments := [][]byte{[]byte("abc"), nil, []byte("defgh"), []byte("i")}
	for limit := int64(1); limit < 10; limit++ {
		var c Cursor
		var all []byte
		for c.Segment < len(segments) {
			before := c
			p := c.Next(segments, limit)
			require.LessOrEqual(t, int64(len(p)), limit)
			if len(p) > 0 {
				require.Same(t, &segments[before.Segment][before.Offset], &p[0], "no copy")
			}
			all = append(all, p...)
		}
		require.Equal(t, "abcdefghi", string(all))
		require.Equal(t, Cursor{Segment: len(segments)}, c)
	}
}
