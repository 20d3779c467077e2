package affinity

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The cores that StepMesh gives to each device with its defaults, and with others.
func TestCoresOfDevices(t *testing.T) {
	defaults := Layout{PerSocket: 48, PerDevice: 5, Start: 10}
	for device, want := range []string{"10-14", "15-19", "34-38", "39-43", "58-62", "63-67", "82-86", "87-91", "92-96"} {
		require.Equal(t, want, defaults.Cores(device).String(), device)
	}
	require.Equal(t, "0", Layout{PerSocket: 8, PerDevice: 1}.Cores(0).String())
	require.Equal(t, "5", Layout{PerSocket: 8, PerDevice: 1}.Cores(3).String())
}
