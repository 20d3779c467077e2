//go:build cgo

package main

import (
	"encoding/binary"
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/devicetest"
)

// onDevice makes a tensor of one float64 in memory of an accelerator.
func (c *cluster) onDevice(a *devicetest.Accelerator, value float64) *cTensor {
	t := c.number(0)
	address := a.Alloc(c.t, 0, 8)
	t.data = *(*unsafe.Pointer)(unsafe.Pointer(&address))
	t.device_kind = cUint16(devicetest.Kind)
	binary.NativeEndian.PutUint64(a.Bytes(address, 8), math.Float64bits(value))
	return t
}

// valueOn is what a tensor of onDevice holds.
func valueOn(a *devicetest.Accelerator, t *cTensor) float64 {
	return math.Float64frombits(binary.NativeEndian.Uint64(a.Bytes(uintptr(t.data), 8)))
}

// Tensors of an accelerator go through all functions of C, and their owners come back once.
func TestTensorsOfAnAccelerator(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{})
	c := newCluster(t)
	x := newExchange(c, 81)
	stream, err := a.NewStream(a.Device(0))
	require.NoError(t, err)
	handle := cUint64(stream.Handle)
	push, pull, buffer, answer := c.onDevice(a, 4), c.onDevice(a, 0), c.onDevice(a, 0), c.onDevice(a, 9)
	x.x.push, x.x.pull = push, pull
	rank := pinned[cUint32](c, 1)
	x.must(goRegisterRecvBuffer(c.server, buffer, 0, rank, x.x.push_keys, 1, -1, x.response, x.e))

	x.must(goPushPullOn(x.worker, handle, x.x, x.handle, x.e))
	x.must(goGetBatch(x.server, 0, 0, -1, x.b, x.e))
	require.EqualValues(t, devicetest.Kind, x.b.push.device_kind)
	require.Equal(t, buffer.data, x.b.push.data)
	require.Equal(t, 4.0, valueOn(a, x.b.push))
	x.must(goRespondOn(x.server, handle, x.b.requests.handler, answer, 1, 82, x.response, x.e))
	x.must(goWaitOn(x.worker, *x.handle, cUint32(devicetest.Kind), 0, handle, -1, x.e))
	x.must(goWait(x.worker, *x.handle, -1, x.e))
	x.must(goResponseWait(x.server, *x.response, -1, x.e))
	require.Equal(t, 9.0, valueOn(a, pull))

	// The push of a request answers it, and so do rows.
	rows := pinned[cInt64](c, 1)
	*rows = 1
	for range 2 {
		x.must(goPushPull(x.worker, x.x, x.handle, x.e))
		x.must(goGetBatch(x.server, 0, 0, -1, x.b, x.e))
		row := *x.b.push
		row.rank, row.shape[0] = 1, 1
		if *rows++; *rows == 2 {
			x.must(goRespond(x.server, x.b.requests.handler, x.b.push, 1, 0, x.response, x.e))
		} else {
			*rows = 1
			x.must(goRespondVecOn(x.server, 0, &row, rows, &x.b.requests.handler, 1, 0, x.response, x.e))
		}
		x.must(goWait(x.worker, *x.handle, -1, x.e))
		x.must(goResponseWait(x.server, *x.response, -1, x.e))
		require.Equal(t, 4.0, valueOn(a, pull))
	}
	require.ElementsMatch(t, []uint64{81, 81, 81, 82}, back())
}

func TestDevicesThatAreRefused(t *testing.T) {
	a := devicetest.New(t, devicetest.Options{})
	c := newCluster(t)
	x := newExchange(c, 81)
	for _, r := range []struct {
		name   string
		change func(*cTensor)
		want   cCode
		text   string
	}{
		{"a number of the host", func(t *cTensor) { t.device_kind, t.device = 0, 1 }, codeInvalid, "device_kind and device"},
		{"no kind", func(t *cTensor) { t.device_kind = 6 }, codeInvalid, "device_kind and device"},
		{"no driver", func(t *cTensor) { t.device_kind = 10 }, codeNotSupported, "got rocm"},
		{"no address", func(t *cTensor) { t.data = nil }, codeInvalid, "are not memory of ext_dev:0"},
		{"memory with a number", func(t *cTensor) { t.memory = 5 }, codeInvalid, "a number names memory of the host"},
		{"another device", func(t *cTensor) { t.device = 1 }, codeInvalid, "(got ext_dev:0, want ext_dev:1)"},
		{"given as the host's", func(t *cTensor) { t.device_kind = 0 }, codeInvalid, "(got ext_dev:0, want cpu)"},
	} {
		t.Run(r.name, func(t *testing.T) {
			push := c.onDevice(a, 1)
			r.change(push)
			other := *x.x
			other.push = push
			require.Equal(t, r.want, goPushPull(c.worker, &other, x.handle, c.e))
			require.Contains(t, chars(&c.e.message), r.text)
		})
	}
	require.Equal(t, codeInvalid, goPushPullOn(c.worker, 99, func() *cExchange { o := *x.x; o.push = c.onDevice(a, 1); return &o }(), x.handle, c.e))
	require.Contains(t, chars(&c.e.message), "stream 0x63 of ext_dev:0")
	require.Empty(t, back())
}
