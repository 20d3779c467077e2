package stepvan_test

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func TestAClosedNodeReadsPlainly(t *testing.T) {
	require.EqualError(t, stepvan.ErrClosed, "stepvan: closed")
	require.ErrorIs(t, stepvan.ErrClosed, net.ErrClosed)
}

func TestAValueOfASettingIsCut(t *testing.T) {
	err := &stepvan.ConfigError{Key: "DMLC_ROLE", Value: strings.Repeat("b", 200_000), Reason: "must be a role"}
	require.Less(t, len(err.Error()), 400)
	require.ErrorContains(t, err, "(200000 bytes)")
	require.ErrorContains(t, err, "must be a role")
}
