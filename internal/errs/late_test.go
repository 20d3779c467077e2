package errs

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLate(t *testing.T) {
	for want, cause := range map[string]error{
		"gave up after 1.235s":       fmt.Errorf("wrapped: %w", context.DeadlineExceeded),
		"was cancelled after 1.235s": context.Canceled,
	} {
		err := GaveUp(1234567*time.Microsecond, cause)
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, cause)
		require.Equal(t, want[:4] == "gave", err.(interface{ Timeout() bool }).Timeout())
	}
	require.EqualError(t, Late("nobody came", context.DeadlineExceeded), "nobody came")
}
