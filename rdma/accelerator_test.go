package rdma

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/devicetest"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
)

// Software devices reach no accelerator. Both ways to register its memory say so, and nothing stays registered.
func TestSoftwareDevicesReachNoAccelerator(t *testing.T) {
	m := rdma(t)
	a := devicetest.New(t, devicetest.Options{})
	x := a.Tensor(t, 0, tensor.Uint8, make([]byte, 8192), 8192)
	v, err := New(Options{Placer: refuseAll{}, Source: m.addr[0]})
	require.NoError(t, err)
	defer v.Close()
	r := v.(van.AcceleratorRegistrar)
	f, err := a.Export(a.Device(0), x.Address(), 8192)
	require.NoError(t, err)
	defer syscall.Close(f.FD)
	require.ErrorIs(t, r.RegisterAccelerator(x.Addresses(), f.FD, f.Offset), stepvan.ErrNotSupported)
	require.ErrorIs(t, r.RegisterAccelerator(x.Addresses(), -1, 0), stepvan.ErrNotSupported)
	require.ErrorIs(t, r.Deregister(x.Addresses()), stepvan.ErrInvalid)
}
