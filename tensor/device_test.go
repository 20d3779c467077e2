package tensor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// The numbers and names are DLPack's: other libraries give and take them.
func TestKindsOfDeviceAreThoseOfDLPack(t *testing.T) {
	kinds := map[DeviceKind]string{
		1: "cpu", 2: "cuda", 3: "cuda_host", 4: "opencl", 7: "vulkan", 8: "metal", 9: "vpi", 10: "rocm", 11: "rocm_host",
		12: "ext_dev", 13: "cuda_managed", 14: "oneapi", 15: "webgpu", 16: "hexagon", 17: "maia",
	}
	for k := range DeviceKind(20) {
		require.Equal(t, kinds[k] != "", k.Valid(), "%d", k)
		require.Equal(t, k == 1 || k == 3 || k == 11, k.IsHost(), "%d", k)
		if k.Valid() {
			require.Equal(t, kinds[k], k.String())
		}
	}
	require.Equal(t, "device kind 5", DeviceKind(5).String())
	require.Equal(t, "cuda:3", Device{DeviceCUDA, 3}.String())
	require.Equal(t, "cpu:0", Device{}.String())
	require.True(t, Device{}.IsHost())
}

func TestRegionsSayWhatHoldsThem(t *testing.T) {
	a, err := NewAllocator(Options{})
	require.NoError(t, err)
	x, err := a.Zeros(Float32, 8)
	require.NoError(t, err)
	heap, err := FromSlice([]float32{1})
	require.NoError(t, err)
	cpu := Device{Kind: DeviceCPU}
	require.Equal(t, []Device{cpu, cpu, cpu}, []Device{x.Region().Device(), x.Device(), heap.Device()})
	require.NoError(t, x.CheckHost())
	require.NoError(t, heap.CheckHost())
	require.NoError(t, x.Region().Close())
	require.ErrorIs(t, x.CheckHost(), stepvan.ErrClosed)
	require.NoError(t, a.Close())
}

// Nothing touches memory of a device. The address here is one that no process has.
func TestMemoryOfADevice(t *testing.T) {
	gpu := Device{DeviceCUDA, 1}
	const at = 1 << 60
	x, err := FromDevice(gpu, at, Float32, ShapeOf(4, 8), nil)
	require.NoError(t, err)
	require.Equal(t, gpu, x.Device())
	require.Equal(t, gpu, x.Region().Device())
	require.Equal(t, 128, x.Len())
	require.Equal(t, 128, x.Region().Len())
	require.NoError(t, x.Check())
	require.ErrorIs(t, x.CheckHost(), stepvan.ErrNotSupported)
	require.ErrorContains(t, x.CheckHost(), "got cuda:1, want cpu")
	require.Nil(t, x.Bytes())
	require.Nil(t, x.Region().Bytes())
	_, err = As[float32](x)
	require.ErrorIs(t, err, stepvan.ErrNotSupported)

	rows, err := x.Slice(1, 3)
	require.NoError(t, err)
	require.EqualValues(t, at+32, rows.Address())
	same, err := FromRegion(x.Region(), 32, Uint8, ShapeOf(64))
	require.NoError(t, err)
	require.Equal(t, rows.Address(), same.Address())
	require.Nil(t, same.Bytes())
	_, err = FromRegion(x.Region(), 1, Float32, ShapeOf(1))
	require.ErrorIs(t, err, stepvan.ErrInvalid, "not aligned")
	_, err = FromRegion(x.Region(), 0, Uint8, ShapeOf(129))
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.NoError(t, rows.Retain())
	require.ErrorIs(t, x.Region().Close(), stepvan.ErrBusy)
	rows.Release()
	require.NoError(t, x.Region().Close())
	require.ErrorIs(t, x.CheckHost(), stepvan.ErrClosed)
}

func TestWhatIsNoMemoryOfADevice(t *testing.T) {
	for name, c := range map[string]struct {
		device  Device
		address uintptr
		shape   Shape
	}{
		"memory of the host":    {Device{DeviceCPU, 0}, 4096, ShapeOf(1)},
		"pinned memory":         {Device{DeviceCUDAHost, 0}, 4096, ShapeOf(1)},
		"the zero device":       {Device{}, 4096, ShapeOf(1)},
		"an unknown kind":       {Device{5, 0}, 4096, ShapeOf(1)},
		"a negative kind":       {Device{-1, 0}, 4096, ShapeOf(1)},
		"a negative number":     {Device{DeviceCUDA, -1}, 4096, ShapeOf(1)},
		"no address":            {Device{DeviceCUDA, 0}, 0, ShapeOf(1)},
		"an address that wraps": {Device{DeviceCUDA, 0}, ^uintptr(3), ShapeOf(2)},
		"no alignment":          {Device{DeviceCUDA, 0}, 4097, ShapeOf(1)},
	} {
		_, err := FromDevice(c.device, c.address, Float32, c.shape, nil)
		require.ErrorIs(t, err, stepvan.ErrInvalid, name)
	}
}
