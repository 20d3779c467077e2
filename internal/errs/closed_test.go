package errs

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClosedReadsPlainly(t *testing.T) {
	err := Closed("get_batch: nobody is left")
	require.EqualError(t, err, "get_batch: nobody is left")
	require.EqualError(t, ErrClosed, "stepvan: closed")
	for _, err := range []error{ErrClosed, err} {
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorIs(t, err, net.ErrClosed)
	}
}
