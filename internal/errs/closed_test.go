package errs

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func TestClosedReadsPlainly(t *testing.T) {
	err := Closed("get_batch: nobody is left")
	require.EqualError(t, err, "get_batch: nobody is left")
	require.ErrorIs(t, err, stepvan.ErrClosed)
	require.ErrorIs(t, err, net.ErrClosed)
}
