package registry

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/devicetest"
	"github.com/stepvan/stepvan/tensor"
)

// reaching is a device that may reach memory of accelerators.
type reaching struct {
	device
	dmabuf, peer error
}

func (d *reaching) RegisterAccelerator(mem []byte, fd int, _ int64) error {
	switch {
	case fd >= 0 && d.dmabuf != nil:
		return d.dmabuf
	case fd < 0 && d.peer != nil:
		return d.peer
	}
	return d.Register(mem)
}

func TestMemoryOfAcceleratorsIsRegistered(t *testing.T) {
	no, broken := fmt.Errorf("not here: %w", stepvan.ErrNotSupported), errors.New("no memlock")
	for name, c := range map[string]struct {
		d      *reaching
		faults devicetest.Faults
		by     string
		err    string
	}{
		"dma-buf":                    {d: &reaching{peer: no}, by: "a dma-buf"},
		"peer":                       {d: &reaching{dmabuf: no}, by: "peer memory"},
		"nothing is exported":        {d: &reaching{}, faults: devicetest.Faults{Export: no}, by: "peer memory"},
		"neither":                    {d: &reaching{dmabuf: no, peer: no}},
		"what others write is late":  {d: &reaching{}, faults: devicetest.Faults{Flush: no}},
		"the system lacks something": {d: &reaching{dmabuf: broken}, err: "no memlock"},
		"and for peers":              {d: &reaching{dmabuf: no, peer: broken}, err: "no memlock"},
		"the export fails":           {d: &reaching{}, faults: devicetest.Faults{Export: broken}, err: "no memlock"},
		"the device is gone":         {d: &reaching{}, faults: devicetest.Faults{Gone: broken}, err: "no memlock"},
	} {
		t.Run(name, func(t *testing.T) {
			a := devicetest.New(t, devicetest.Options{})
			var log strings.Builder
			r := New([]Device{c.d}, zerolog.New(&log))
			x := a.Tensor(t, 0, tensor.Uint8, make([]byte, 100_000), 100_000)
			a.Fail(c.faults)
			held, err := r.Register(x)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.NoError(t, x.Region().Close())
				return
			}
			require.NoError(t, err)
			again, err := r.Register(x)
			require.NoError(t, err)
			require.Equal(t, c.by != "", held.Registered())
			require.Equal(t, c.by != "", r.Covers(x.Addresses()[5:99_999]))
			require.Equal(t, 1, strings.Count(log.String(), "ext_dev:0\""))
			if c.by != "" {
				require.Contains(t, log.String(), c.by)
				h, ok := r.Hold(x.Addresses())
				require.True(t, ok)
				require.NoError(t, held.Close())
				require.NoError(t, again.Close())
				require.Equal(t, 1, c.d.left())
				r.Release(h)
			} else {
				require.Contains(t, log.String(), "no RDMA device reaches this memory")
				require.NoError(t, errors.Join(held.Close(), again.Close()))
			}
			require.NoError(t, r.Close())
			require.Zero(t, c.d.left())
			require.NoError(t, x.Region().Close())
		})
	}
}

func TestADeviceWithoutAccelerators(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{})
	first := new(reaching)
	r := New([]Device{first, new(device)}, zerolog.Nop())
	held, err := r.Register(a.Tensor(t, 0, tensor.Uint8, make([]byte, 10), 10))
	require.NoError(t, err)
	require.False(t, held.Registered())
	require.Zero(t, first.left())
	require.NoError(t, held.Close())
}
