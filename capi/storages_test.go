//go:build cgo

package main

import (
	"context"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/race"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/van/memvan"
)

// deviceCluster is a cluster whose nodes reach registered memory alone, each through a device. reached counts the
// devices that reach memory.
func deviceCluster(t *testing.T, settings ...string) (c *cluster, reached func(of *cTensor) int) {
	var mu sync.Mutex
	var all []*memvan.Device
	network := memvan.NewDeviceNetwork(func() *memvan.Device {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, new(memvan.Device))
		return all[len(all)-1]
	})
	startFrom = func(ctx context.Context, environ []string, opts ...ps.Option) (*ps.Node, error) {
		return ps.StartFrom(ctx, environ, append(opts, ps.WithNetwork(network))...)
	}
	defer func() { startFrom = ps.StartFrom }()
	c = newCluster(t, settings...)
	return c, func(of *cTensor) (n int) {
		for _, table := range registering.all() {
			table.Settle()
		}
		mu.Lock()
		defer mu.Unlock()
		for _, d := range all {
			if d.Reaches((*byte)(of.data), int(of.bytes)) {
				n++
			}
		}
		return n
	}
}

// numbers makes a tensor of n float64 that C holds.
func (c *cluster) numbers(n int, value float64) *cTensor {
	list := unsafe.Slice(pinned[float64](c, n), n)
	for i := range list {
		list[i] = value
	}
	x := cTensor{data: unsafe.Pointer(&list[0]), bytes: cUint64(8 * n), dtype: 13, rank: 1}
	x.shape[0] = cInt64(n)
	of := pinned[cTensor](c, 1)
	*of = x
	return of
}

const largeNumbers = 8192

// largeExchange is an exchange of 64 KiB each way, in memory with numbers.
func largeExchange(c *cluster) (x *exchange, memory []cUint64) {
	x = newExchange(c, 0)
	x.x.push, x.x.pull, x.answer = c.numbers(largeNumbers, 4), c.numbers(largeNumbers, 0), c.numbers(largeNumbers, 0)
	for _, t := range []*cTensor{x.x.push, x.x.pull, x.answer} {
		memory = append(memory, c.wrapped(t))
	}
	return x, memory
}

func (c *cluster) wrapped(t *cTensor) cUint64 {
	number := pinned[cUint64](c, 1)
	c.ok(goWrap(t.data, t.bytes, 0, number, c.e))
	t.memory = *number
	return *number
}

// check is round with another value, and looks at the answer.
func (x *exchange) check(value float64) {
	x.t.Helper()
	*(*float64)(x.x.push.data) = value
	x.round()
	require.Equal(x.t, 2*value, *(*float64)(x.x.pull.data))
}

func TestMemoryThatIsNamedAgainIsRegistered(t *testing.T) {
	c, reached := deviceCluster(t)
	registers := pinned[cInt32](c, 1)
	for node, want := range map[cUint64]cInt32{c.worker: 1, c.server: 1, c.scheduler: 0} {
		c.ok(goRegisters(node, registers, c.e))
		require.Equal(t, want, *registers)
	}
	x, memory := largeExchange(c)
	x.check(1)
	require.Zero(t, reached(x.x.push)+reached(x.x.pull)+reached(x.answer))
	x.check(2)
	for i, of := range []*cTensor{x.x.push, x.x.pull, x.answer} {
		require.Equal(t, 1, reached(of), i)
	}
	x.check(3)
	for i, of := range []*cTensor{x.x.push, x.x.pull, x.answer} {
		c.ok(goFree(memory[i], c.e))
		require.Zero(t, reached(of), "%d: before the memory goes", i)
	}
	require.Equal(t, codeStale, goPushPull(c.worker, x.x, x.handle, c.e))
	for _, of := range []*cTensor{x.x.push, x.x.pull, x.answer} {
		c.wrapped(of) // at the same address
	}
	x.check(4)
	require.Zero(t, reached(x.x.push)+reached(x.x.pull)+reached(x.answer), "it is another memory")
	x.check(5)
	require.Equal(t, 1, reached(x.answer))
	x.check(6)
}

// A part of a memory names all of it. Several exchanges are needed: tensors of one exchange count once.
func TestAMemoryIsRegisteredWhole(t *testing.T) {
	c, reached := deviceCluster(t)
	x := newExchange(c, 0)
	x.answer = c.numbers(largeNumbers/4, 0)
	all := c.numbers(largeNumbers, 4)
	number := c.wrapped(all)
	part := func(from int) *cTensor {
		p := c.numbers(largeNumbers/4, 0)
		p.data, p.memory = unsafe.Add(all.data, 8*from), number
		return p
	}
	x.x.push, x.x.pull = part(0), part(largeNumbers/2)
	x.check(1)
	require.Zero(t, reached(all))
	x.x.push = part(largeNumbers / 4)
	x.check(2)
	require.Equal(t, 1, reached(all))
	c.ok(goFree(number, c.e))
	require.Zero(t, reached(x.x.push))
}

func TestOnlyTheProgramRegisters(t *testing.T) {
	c, reached := deviceCluster(t, "STEPVAN_REGISTER=explicit")
	registers := pinned[cInt32](c, 1)
	*registers = 1
	c.ok(goRegisters(c.worker, registers, c.e))
	require.Zero(t, *registers)
	x, _ := largeExchange(c)
	for i := range 4 {
		x.check(float64(i))
	}
	require.Zero(t, reached(x.x.push)+reached(x.answer))
	number := pinned[cUint64](c, 1)
	c.ok(goRegister(c.worker, x.x.push, 0, number, c.e))
	require.Equal(t, 1, reached(x.x.push))
	c.ok(goRegister(c.server, x.answer, 0, number, c.e))
	require.Equal(t, 1, reached(x.answer))
	x.check(9)
}

func TestMemoryIsRegisteredUpToALimit(t *testing.T) {
	c, reached := deviceCluster(t, "STEPVAN_REGISTER_BYTES=1MiB")
	x, _ := largeExchange(c)
	large := c.numbers(1<<17+1, 4)
	c.wrapped(large)
	small := x.x.push
	for i := range 6 {
		x.x.push = large
		x.check(float64(i))
		x.x.push = small
		x.check(float64(i))
	}
	require.Zero(t, reached(large))
	require.Equal(t, 1, reached(small))
}

// Budget: 0 allocations also where memory is counted.
func TestNamedMemoryAllocatesNothing(t *testing.T) {
	c, _ := deviceCluster(t)
	x, _ := largeExchange(c)
	for range 300 {
		x.round()
	}
	got := testing.AllocsPerRun(200, x.round)
	if !race.Enabled {
		require.Less(t, got, 1.0)
	}
}
