package bus

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

// socket has an agent listen, and returns the path.
func (x *town) socket(t testing.TB, agent int) string {
	t.Helper()
	path := filepath.Join(privateDir(t), "agent.sock")
	l, err := x.agents[agent].Listen(path)
	require.NoError(t, err)
	require.Equal(t, path, l.Path())
	return path
}

// privateDir is a folder that only this user can enter.
func privateDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bus")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func dialed(t testing.TB, path string, rank int) *Client {
	t.Helper()
	c, err := Dial(within(t), path, ClientOptions{Rank: rank})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(within(t))) })
	return c
}

// filled makes a tensor in memory that the agent sees. Its elements count from first.
func filled(t testing.TB, c *Client, first float32, rows, columns int64) ([]float32, tensor.Tensor) {
	t.Helper()
	x, err := c.Empty(within(t), tensor.Float32, rows, columns)
	require.NoError(t, err)
	data, err := tensor.As[float32](x)
	require.NoError(t, err)
	for i := range data {
		data[i] = first + float32(i)
	}
	return data, x
}

// Clients behind a socket do what others do, and their tensors lie in memory that the agent sees.
func TestClientsBehindASocket(t *testing.T) {
	for _, van := range []pairtest.Van{pairtest.Mem(), pairtest.OneSided(), pairtest.Shm()} {
		t.Run(van.Name, func(t *testing.T) {
			x := newTown(t, van, 2, Options{})
			rows, columns := on([]int{2}, layout.Shard(0)), on([]int{2}, layout.Shard(1))
			one, two := x.socket(t, 0), x.socket(t, 1)
			a := &job{"training", &rows, []*Client{dialed(t, one, 0), dialed(t, one, 1)}}
			b := &job{"inference", &columns, []*Client{dialed(t, two, 0), dialed(t, two, 1)}}
			openEverywhere(t, "p", a, b)
			all := map[*job][]tensor.Strided{}
			var from, to [][]float32
			var held []tensor.Tensor
			for i := range 2 {
				s, v := filled(t, a.clients[i], float32(100*i), 2, 4)
				from, held = append(from, s), append(held, v)
				all[a] = append(all[a], v.Strided())
				d, w := filled(t, b.clients[i], -1, 4, 2)
				to, held = append(to, d), append(held, w)
				all[b] = append(all[b], w.Strided())
			}
			noErrors(t, registerAll(t, "step", "p", all))
			for range 3 {
				from[0][1]++
				noErrors(t, transferAll(t, "step", a, b))
				for r := range 4 {
					for c := range 4 {
						require.InDelta(t, from[r/2][r%2*4+c], to[c/2][r*2+c%2], 0)
					}
				}
			}
			r, err := a.clients[0].Do(within(t), &QueryStatus{BatchID: "step", StateName: StateStatus})
			require.NoError(t, err)
			require.Equal(t, Status{State: Done, Round: 3}, r)
			cleanupAll(t, "step", a, b)
			for i, v := range held {
				require.NoError(t, []*Client{a.clients[0], b.clients[0], a.clients[1], b.clients[1]}[i].Free(v))
			}
			eventually(t, func() bool {
				x.agents[0].mu.Lock()
				defer x.agents[0].mu.Unlock()
				for _, s := range x.agents[0].clients {
					if len(s.memories.shared) > 0 {
						return false
					}
				}
				return true
			})
			x.nothingLeft(t)
		})
	}
}

// What a client behind a socket does wrong, and the end of its agent, are errors as they are in one process.
func TestErrorsBehindASocket(t *testing.T) {
	x := newTown(t, pairtest.Mem(), 1, Options{Queue: 5})
	path := x.socket(t, 0)
	c := dialed(t, path, 0)
	_, err := c.Do(within(t), &Transfer{BatchID: "none", Type: Send})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, `Transfer: batch "none"`)
	_, err = c.Do(within(t), &Transfer{BatchID: "none", Type: "both"})
	require.ErrorContains(t, err, "transfer_type: unknown")
	_, mine := floats(t, 1, 2, 2)
	err = c.Register(within(t), "step", []Tensor{{"p", mine}})
	require.ErrorContains(t, err, "its memory is not shared with the agent: take it from Client.Empty")
	_, err = c.Empty(within(t), tensor.Float32, 0)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	_, err = c.Empty(within(t), tensor.Float32, 1<<50)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = c.Do(short, (&job{name: "training", clients: make([]*Client, 1)}).command("p", "inference"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var calls []*Call
	for i := range 5 {
		call, err := c.Start((&job{name: "training", clients: make([]*Client, 1)}).command(string(rune('a'+i)), "inference"))
		require.NoError(t, err)
		calls = append(calls, call)
	}
	_, err = c.Start(&QueryStatus{BatchID: "x", StateName: StateStatus})
	require.ErrorIs(t, err, stepvan.ErrWouldBlock)
	require.NoError(t, x.agents[0].Close(within(t)))
	for _, call := range calls {
		_, err := call.Wait(within(t))
		require.Error(t, err)
	}
	eventually(t, func() bool {
		_, err := c.Start(&QueryStatus{BatchID: "x", StateName: StateStatus})
		return err != nil
	})
	_, err = c.Do(within(t), &QueryStatus{BatchID: "x", StateName: StateStatus})
	require.ErrorIs(t, err, stepvan.ErrPeerLost)
	require.ErrorContains(t, err, "agent at "+path)
	_, err = Dial(short, path, ClientOptions{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "there is no agent")
}

// A client in the process of its agent lends memory at an address, and one in another process may not.
func TestMemoryAtAnAddress(t *testing.T) {
	x := newTown(t, pairtest.Mem(), 1, Options{})
	region, err := x.peers[0].Memory.Alloc(64)
	require.NoError(t, err)
	defer func() { require.NoError(t, region.Close()) }()
	address := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(region.Bytes()))))
	for _, here := range []bool{true, false} {
		s, err := x.agents[0].connect(0)
		require.NoError(t, err)
		w := &frameWriter{} // without a socket its frames stay in the queue
		w.wake = sync.NewCond(&w.mu)
		g := &guest{s: s, here: here, w: w}
		for _, ask := range [][2]uint64{{address, 64}, {0, 64}, {1 << 62, 64}, {address, 1 << 62}} {
			g.lend(7, ask[0], ask[1])
			f, ok := g.w.next()
			require.True(t, ok)
			kind, in := readFrame(f.b[4:])
			require.EqualValues(t, frameMemory, kind)
			require.EqualValues(t, 7, in.nextNumber(math.MaxUint64))
			why, number := in.failure().err(), in.nextNumber(math.MaxUint64)
			require.NoError(t, in.err)
			if !here || ask != [2]uint64{address, 64} {
				require.ErrorIs(t, why, stepvan.ErrInvalid)
				continue
			}
			require.NoError(t, why)
			h := TensorHandle{Memory: number, Offset: 16, DType: tensor.Float32, Shape: tensor.ShapeOf(3), Strides: []int64{2}}
			b, err := h.Encode()
			require.NoError(t, err)
			v, err := s.memories.find(b)
			require.NoError(t, err)
			m := v.Memory()
			require.EqualValues(t, address+16, m.Address())
			g.free(number)
			_, err = s.memories.find(b)
			require.ErrorIs(t, err, stepvan.ErrStale)
		}
		require.NoError(t, s.close(within(t), errClosedClient))
	}
}

// An agent survives whatever comes from a socket.
func TestHostileClients(t *testing.T) {
	x := newTown(t, pairtest.Mem(), 1, Options{})
	path := x.socket(t, 0)
	hello := msgp.AppendUint64(msgp.AppendUint64(beginFrame(frameHello, 2), frameVersion), 1)
	binary.LittleEndian.PutUint32(hello, uint32(len(hello)-4))
	command := func(name string, b []byte) []byte {
		f := msgp.AppendString(msgp.AppendString(beginFrame(frameCommand, 4), name), "")
		f = msgp.AppendBytes(msgp.AppendUint64(f, 0), b)
		binary.LittleEndian.PutUint32(f, uint32(len(f)-4))
		return f
	}
	for _, b := range [][]byte{
		{}, {1, 0, 0, 0}, {0, 0, 0, 0}, {255, 255, 255, 255}, {4, 0, 0, 0, 0x80, 0x04, 0x95, 0x10},
		append(append([]byte{}, hello...), hello...), append(append([]byte{}, hello...), 0, 0, 0x40, 6), // a hundred MiB
	} {
		conn, err := net.Dial("unix", path)
		require.NoError(t, err)
		_, err = conn.Write(b)
		require.NoError(t, err)
		if len(b) < len(hello) {
			require.NoError(t, conn.(*net.UnixConn).CloseWrite())
		}
		_ = conn.SetReadDeadline(time.Now().Add(pairtest.WaitLimit))
		_, err = bufio.NewReader(conn).ReadBytes(0xc1) // no frame has it
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the agent ends the connection")
		_ = conn.Close()
	}
	// Commands that cannot be read have a completion, and the session continues.
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	defer conn.Close()
	unknown, err := Encode(&Transfer{BatchID: "b", Type: Send, BaseCommand: BaseCommand{Semaphore: "two"}})
	require.NoError(t, err)
	unknown = bytes.Replace(unknown, []byte("Transfer"), []byte("Reboot!!"), 1)
	for _, b := range [][]byte{hello, command("one", []byte("\x80\x04\x95pickle.")), command("two", unknown), command("three", unknown[:20])} {
		_, err := conn.Write(b)
		require.NoError(t, err)
	}
	r := bufio.NewReader(conn)
	for i, want := range []string{"", "one", "two", "three"} {
		b, err := receiveFrame(r)
		require.NoError(t, err)
		kind, f := readFrame(b)
		if i == 0 {
			require.EqualValues(t, frameHello, kind)
			continue
		}
		require.EqualValues(t, frameCompletion, kind)
		name, res := decodeCompletion(f)
		require.NoError(t, f.err)
		require.Equal(t, want, name)
		require.Error(t, res.err)
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(encodeCompletion("s", result{Status{State: Done, Round: 4, Err: stepvan.ErrPeerLost, Signal: true}, stepvan.ErrBusy})[4:])
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, x := readFrame(b)
		if x.err != nil || kind != frameCompletion {
			return
		}
		if name, r := decodeCompletion(x); x.err == nil {
			kind, again := readFrame(encodeCompletion(name, r)[4:])
			require.NoError(t, again.err)
			require.EqualValues(t, frameCompletion, kind)
		}
	})
}
