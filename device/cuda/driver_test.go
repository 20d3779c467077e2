//go:build cgo

package cuda

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/tensor"
)

// fakeLibrary builds testdata/fake.c.
func fakeLibrary(t *testing.T, flags ...string) string {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip(err)
	}
	library := filepath.Join(t.TempDir(), "libcuda.so.1")
	out, err := exec.Command("cc", append(flags, "-std=gnu11", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, "testdata/fake.c")...).CombinedOutput()
	require.NoError(t, err, string(out))
	return library
}

func TestWithoutTheLibrary(t *testing.T) {
	_, err := open("libcuda-that-nobody-has.so.1")
	require.ErrorIs(t, err, stepvan.ErrNotSupported)
	require.ErrorContains(t, err, "libcuda-that-nobody-has.so.1")
	_, err = open("libm.so.6")
	require.ErrorIs(t, err, stepvan.ErrNotSupported)
	require.ErrorContains(t, err, "has no function cuInit")
}

func TestTheDriver(t *testing.T) {
	library := fakeLibrary(t)
	unregister, err := open(library)
	require.NoError(t, err)
	t.Cleanup(unregister)
	d, err := device.Find(tensor.DeviceCUDA)
	require.NoError(t, err)
	gpu := func(i int32) tensor.Device { return tensor.Device{Kind: tensor.DeviceCUDA, ID: i} }
	const memory uintptr = 0x520000000000 // of testdata/fake.c

	for address, want := range map[uintptr]tensor.Device{memory: gpu(0), memory + 1<<15: gpu(1), memory - 1: {}, memory + 1<<16: {}} {
		at, err := d.Locate(address)
		require.NoError(t, err)
		require.Equal(t, want, at)
	}

	s, err := d.NewStream(gpu(1))
	require.NoError(t, err)
	from, to := []byte{1, 2, 3}, make([]byte, 3)
	require.NoError(t, d.Pin(to))
	require.NoError(t, d.FromHost(s, memory+1<<15, from))
	require.NoError(t, d.ToHost(s, to, memory+1<<15))
	e, err := d.Record(s)
	require.NoError(t, err)
	over, err := e.Query()
	require.NoError(t, err)
	require.False(t, over)
	require.NoError(t, d.Follow(s, e))
	require.NoError(t, device.Await(e, nil))
	e.Close()
	require.Equal(t, from, to)

	_, err = d.Record(device.Stream{Device: gpu(0), Handle: s.Handle})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "it does not belong to the primary context of cuda:0")
	_, err = d.NewStream(gpu(2))
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	cpu, err := device.CPU{}.Record(device.Stream{})
	require.NoError(t, err)
	require.ErrorIs(t, d.Follow(s, cpu), stepvan.ErrInvalid)

	f, err := d.Export(gpu(0), memory+100, 5000)
	require.NoError(t, err)
	require.EqualValues(t, 100, f.Offset)
	require.NoError(t, syscall.Close(f.FD))
	_, err = d.Export(gpu(1), memory+1<<15, 10)
	require.ErrorIs(t, err, stepvan.ErrNotSupported)
	require.ErrorContains(t, err, "error 801")
	require.NoError(t, d.Flush(gpu(0)))
	require.NoError(t, d.Flush(gpu(1)))
	require.ErrorIs(t, d.Flush(gpu(2)), stepvan.ErrInvalid)

	require.ErrorContains(t, d.Pin(make([]byte, 13)), "error 700")
	e, err = d.Record(device.Stream{Device: gpu(0)})
	require.NoError(t, err)
	over, err = e.Query()
	require.True(t, over)
	require.ErrorContains(t, err, "cuda: ask for an event: an illegal address (error 700)")
	e.Close()
	require.ErrorContains(t, d.ToHost(device.Stream{Device: gpu(0)}, to, memory), "error 700")
	require.NoError(t, d.Unpin(to))
	require.NoError(t, d.CloseStream(s))
	require.ErrorContains(t, result("look", 9999), "0 streams, 0 events, 0 pinned, depth 0, 1 flushes")
}
