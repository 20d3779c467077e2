package device_test

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/internal/devicetest"
	"github.com/stepvan/stepvan/tensor"
)

func TestDriversAreFoundByTheirKind(t *testing.T) {
	require.False(t, device.Any())
	for _, host := range []tensor.DeviceKind{0, tensor.DeviceCPU, tensor.DeviceCUDAHost} {
		d, err := device.Find(host)
		require.NoError(t, err)
		require.Equal(t, device.CPU{}, d)
	}
	a := devicetest.New(t, devicetest.Options{})
	require.True(t, device.Any())
	d, err := device.Find(devicetest.Kind)
	require.NoError(t, err)
	require.Same(t, a, d)
	_, err = device.Find(tensor.DeviceCUDA)
	require.ErrorIs(t, err, stepvan.ErrNotSupported)
	require.ErrorContains(t, err, "got cuda, want one of cpu, ext_dev")
	for _, kind := range []tensor.DeviceKind{devicetest.Kind, tensor.DeviceCPU, tensor.DeviceROCMHost, 99} {
		_, err = device.Register(kind, a)
		require.ErrorIs(t, err, stepvan.ErrInvalid, kind)
	}
	_, err = device.Register(tensor.DeviceROCM, nil)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	stop, err := device.Register(tensor.DeviceROCM, a)
	require.NoError(t, err)
	stop()
	stop()
	_, err = device.Find(tensor.DeviceROCM)
	require.ErrorIs(t, err, stepvan.ErrNotSupported)
}

// A mistake in the kind of memory is an error, whichever way round.
func TestMemoryIsWhatItsTensorSays(t *testing.T) {
	host, err := tensor.FromSlice([]float32{1, 2})
	require.NoError(t, err)
	foreign := func(at uintptr, n int64) tensor.Tensor {
		x, err := tensor.FromPointer(*(*unsafe.Pointer)(unsafe.Pointer(&at)), tensor.Uint8, tensor.ShapeOf(n), nil)
		require.NoError(t, err)
		return x
	}
	on := func(d tensor.Device, at uintptr, n int64) tensor.Tensor {
		x, err := tensor.FromDevice(d, at, tensor.Uint8, tensor.ShapeOf(n), nil)
		require.NoError(t, err)
		return x
	}
	memory := []byte{1}
	own := uintptr(unsafe.Pointer(unsafe.SliceData(memory)))

	nobody := on(tensor.Device{Kind: devicetest.Kind}, own, 1)
	require.ErrorIs(t, device.CheckAccelerator(&nobody), stepvan.ErrNotSupported)

	a := devicetest.New(t, devicetest.Options{Devices: 2})
	at := a.Alloc(t, 1, 100)
	for _, c := range []struct {
		name  string
		x     tensor.Tensor
		check func(*tensor.Tensor) error
		want  string
	}{
		{"device as device", on(a.Device(1), at, 100), device.CheckAccelerator, ""},
		{"empty", on(a.Device(1), 1, 0), device.CheckAccelerator, ""},
		{"another device", on(a.Device(0), at, 100), device.CheckAccelerator, "got ext_dev:1, want ext_dev:0"},
		{"host as device", on(a.Device(0), own, 1), device.CheckAccelerator, "got cpu:0, want ext_dev:0"},
		{"beyond the end", on(a.Device(1), at, 101), device.CheckAccelerator, "got cpu:0, want ext_dev:1"},
		{"device as host", foreign(at, 100), device.CheckHost, "got ext_dev:1, want cpu"},
		{"host as host", foreign(own, 1), device.CheckHost, ""},
		{"heap", host, device.CheckHost, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.check(&c.x)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, stepvan.ErrInvalid)
			require.ErrorContains(t, err, c.want)
		})
	}
	mem := foreign(own, 1)
	require.Zero(t, testing.AllocsPerRun(100, func() { err = errors.Join(err, device.CheckHost(&mem)) }))
	gone := errors.New("it fell off the bus")
	a.Fail(devicetest.Faults{Gone: gone})
	x := on(a.Device(1), at, 100)
	require.ErrorIs(t, device.CheckAccelerator(&x), gone)
}

func TestTheProcessorCopiesAtOnce(t *testing.T) {
	var cpu device.Driver = device.CPU{}
	s, err := cpu.NewStream(tensor.Device{Kind: tensor.DeviceCPU})
	require.NoError(t, err)
	a, b, c := []byte{1, 2, 3}, make([]byte, 3), make([]byte, 3)
	require.NoError(t, cpu.ToHost(s, b, uintptr(unsafe.Pointer(unsafe.SliceData(a)))))
	require.NoError(t, cpu.FromHost(s, uintptr(unsafe.Pointer(unsafe.SliceData(c))), b))
	require.Equal(t, a, c)
	e, err := cpu.Record(s)
	require.NoError(t, err)
	require.NoError(t, cpu.Follow(s, e))
	require.NoError(t, device.Await(e, nil))
	e.Close()
	require.NoError(t, cpu.Pin(a))
	require.NoError(t, cpu.Unpin(a))
	require.NoError(t, cpu.CloseStream(s))
	_, err = cpu.Export(s.Device, 1, 1)
	require.ErrorIs(t, err, stepvan.ErrNotSupported)
}
