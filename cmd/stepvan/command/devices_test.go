package command

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// The machine may have devices or not. Both are shown, and neither is an error.
func TestDevices(t *testing.T) {
	code, out, errOut := run(t, "devices")
	require.Zero(t, code, errOut)
	require.Empty(t, errOut)
	require.NotEmpty(t, out)
	code, out, _ = run(t, "devices", "--json")
	require.Zero(t, code)
	var report map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.Contains(t, report, "selection")
}

func TestDevicesWithAMistake(t *testing.T) {
	t.Setenv("STEPVAN_RDMA_DEVICES", "mlx5_0:first")
	code, _, errOut := run(t, "devices")
	require.Equal(t, 1, code)
	require.Contains(t, errOut, `mistake: STEPVAN_RDMA_DEVICES="mlx5_0:first": the port of "mlx5_0:first" must be a number`)
}
