package pairtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/vantest/faults"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/memvan"
	"github.com/stepvan/stepvan/van/shmvan"
	"github.com/stepvan/stepvan/van/tcpvan"
	"github.com/stepvan/stepvan/worker"
)

// WaitLimit is the limit of every wait in these tests. A test reaches it only when something hangs.
const WaitLimit = 20 * time.Second

// Van is a transport to run a cluster over.
type Van struct {
	Name   string
	Shares bool // instances see each other's memory
	Maker  func(instance string, memory *tensor.Allocator) link.VanMaker
	Addr   func(instance string) string // to listen at
	Net    *faults.Network              // of WithFaults
}

// Mem is memvan with a network of its own.
func Mem() Van { return MemVan("mem", memvan.Options{}) }

// OneSided is Mem whose instances reach each other's memory.
func OneSided() Van { return MemVan("one-sided", memvan.Options{OneSided: true}) }

// NoViews is OneSided where only the van writes to the peer's memory, as over RDMA, and nobody sees it.
func NoViews() Van { return MemVan("no-views", memvan.Options{OneSided: true, NoViews: true}) }

// Offload is NoViews with a device that moves the payload.
func Offload() Van {
	return MemVan("offload", memvan.Options{OneSided: true, NoViews: true, Offload: true})
}

// Registered is Offload whose devices reach only registered memory. device returns that of an instance.
func Registered(device func(instance string) *memvan.Device) Van {
	v := Offload()
	v.Name = "registered"
	network := memvan.NewNetwork()
	v.Maker = func(instance string, _ *tensor.Allocator) link.VanMaker {
		return func(p van.Placer, wake func()) (van.Van, error) {
			return memvan.New(network, memvan.Options{
				Placer: p, Wake: wake, Name: instance, OneSided: true, NoViews: true, Offload: true, Device: device(instance),
			})
		}
	}
	return v
}

// FewGrants is OneSided with a limit of grants on each side of a session.
func FewGrants(grants int) Van {
	return MemVan("few-grants", memvan.Options{OneSided: true, Grants: grants})
}

// MemVan is memvan with options and a network of its own.
func MemVan(name string, o memvan.Options) Van {
	network := memvan.NewNetwork()
	return Van{
		Name: name, Shares: o.OneSided && !o.NoViews,
		Maker: func(instance string, _ *tensor.Allocator) link.VanMaker {
			return func(p van.Placer, wake func()) (van.Van, error) {
				o := o
				o.Placer, o.Wake, o.Name = p, wake, instance
				return memvan.New(network, o)
			}
		},
		Addr: func(instance string) string { return "mem://" + strings.ReplaceAll(instance, " ", "-") },
	}
}

// WithFaults returns v, whose Net knows the instances by name and makes them hostile.
func WithFaults(v Van) Van {
	maker := v.Maker
	v.Net = faults.New(faults.Options{})
	v.Maker = func(instance string, memory *tensor.Allocator) link.VanMaker {
		return v.Net.Wrap(instance, maker(instance, memory))
	}
	return v
}

// TCP is tcpvan over loopback.
func TCP() Van { return TCPVan("tcp", tcpvan.Options{}) }

// TCPVan is TCP with options.
func TCPVan(name string, o tcpvan.Options) Van {
	return Van{
		Name: name,
		Maker: func(string, *tensor.Allocator) link.VanMaker {
			return func(p van.Placer, _ func()) (van.Van, error) {
				o := o
				o.Placer = p
				return tcpvan.New(o)
			}
		},
		Addr: func(string) string { return "tcp://127.0.0.1:0" },
	}
}

// Shm is shmvan. The process maps its own memory a second time.
func Shm() Van {
	return ShmVan(shmvan.Options{Dir: filepath.Join(os.TempDir(), fmt.Sprintf("stepvan-%d-test", os.Getuid()))})
}

// ShmVan is Shm with options.
func ShmVan(o shmvan.Options) Van {
	return Van{
		Name: "shm", Shares: true,
		Maker: func(_ string, memory *tensor.Allocator) link.VanMaker {
			return func(p van.Placer, _ func()) (van.Van, error) {
				o := o
				o.Placer, o.Files = p, memory
				return shmvan.New(o)
			}
		},
		Addr: func(string) string { return "shm://" },
	}
}

// Vans returns the vans that tests of every van run over. In a machine with software RDMA that is RDMA alone.
func Vans() []Van {
	if os.Getenv(requireRDMA) != "" {
		return []Van{RDMA()}
	}
	return []Van{Mem(), OneSided(), Offload(), Shm(), TCP()}
}

// Options of a cluster. Zero values mean one worker, one server and memvan.
type Options struct {
	Workers, Servers int
	Van              Van
	Worker           worker.Options
	Server           server.Options
	Link             func(*link.Options) // edits the options of every transport
	Peer             func(*peer.Options) // edits the options of every peer of a cluster
	MaxBytes         int64               // of the memory of each instance; 0: no limit
	Machines         []int               // of each peer: peers of different machines reach each other over TCP alone
}

// Instance is what each worker and server has.
type Instance struct {
	Name      string
	Transport *link.Transport
	Memory    *tensor.Allocator
}

// Worker is a worker with its instance.
type Worker struct {
	Instance
	*worker.Worker
}

// Server is a server with its instance.
type Server struct {
	Instance
	*server.Server
	addr string
	lost losses
}

// Cluster is a set of paired workers and servers.
type Cluster struct {
	Workers []*Worker
	Servers []*Server
	Net     *faults.Network // of Options.Van
}

// New makes a cluster. The end of the test closes it, and fails the test when memory has leaked.
func New(t testing.TB, o Options) *Cluster {
	t.Helper()
	o.Workers, o.Servers = max(o.Workers, 1), max(o.Servers, 1)
	if o.Van.Maker == nil {
		o.Van = Mem()
	}
	c := &Cluster{Net: o.Van.Net}
	for i := range o.Servers {
		c.Servers = append(c.Servers, newServer(t, &o, i))
	}
	for i := range o.Workers {
		c.Workers = append(c.Workers, newWorker(t, &o, i, c.Servers))
	}
	return c
}

// NewInstance makes an instance over the van of o. The end of the test closes it, and fails the test when memory has
// leaked.
func NewInstance(t testing.TB, o Options, name string, id wire.PeerID) Instance {
	t.Helper()
	mem, err := tensor.NewAllocator(tensor.Options{Name: name, MaxBytes: o.MaxBytes})
	require.NoError(t, err)
	lo := link.Options{Vans: []link.VanMaker{o.Van.Maker(name, mem)}, Memory: mem, Log: zerolog.Nop()}
	if o.hasNetwork() {
		lo.Vans = append(lo.Vans, TCP().Maker(name, mem))
	}
	if o.Link != nil {
		o.Link(&lo)
	}
	n, err := link.NewTransport(lo)
	require.NoError(t, err)
	n.SetIdentity(link.Identity{ID: id, Incarnation: 1, Name: name})
	t.Cleanup(func() {
		require.NoError(t, n.Close())
		require.NoError(t, mem.Close(), "%s leaked memory", name)
	})
	return Instance{Name: name, Transport: n, Memory: mem}
}

func serverID(i int) wire.PeerID { return wire.PeerID(1 + i) }
func workerID(i int) wire.PeerID { return wire.PeerID(100_000 + i) }

func newServer(t testing.TB, o *Options, i int) *Server {
	t.Helper()
	name := fmt.Sprintf("server %d", i)
	n := NewInstance(t, *o, name, serverID(i))
	s, err := server.New(n.Transport, o.Server)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	var workers []server.Worker
	for w := range o.Workers {
		workers = append(workers, server.Worker{Rank: stepvan.Rank(w), Name: fmt.Sprintf("worker %d", w), ID: workerID(w)})
	}
	require.NoError(t, s.Join(stepvan.Rank(i), workers))
	lost := losses{peers: make(chan wire.PeerID, 64)}
	n.Transport.Handle(link.ChannelBulk, lost)
	bound, err := n.Transport.Listen(o.Van.Addr(name))
	require.NoError(t, err)
	return &Server{Instance: n, Server: s, addr: bound[0], lost: lost}
}

func newWorker(t testing.TB, o *Options, i int, servers []*Server) *Worker {
	t.Helper()
	name := fmt.Sprintf("worker %d", i)
	n := NewInstance(t, *o, name, workerID(i))
	w := worker.New(n.Transport, o.Worker)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	var list []worker.Server
	for r, s := range servers {
		session, err := n.Transport.Dial(Context(t), []string{s.addr})
		require.NoError(t, err)
		list = append(list, worker.Server{Rank: stepvan.Rank(r), Name: s.Name, Session: session})
	}
	require.NoError(t, w.Join(stepvan.Rank(i), list))
	return &Worker{Instance: n, Worker: w}
}

// Context ends with the test, or after WaitLimit.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), WaitLimit)
	t.Cleanup(cancel)
	return ctx
}

// Floats makes a tensor on the Go heap.
func Floats(t testing.TB, v ...float32) tensor.Tensor {
	t.Helper()
	x, err := tensor.FromSlice(v)
	require.NoError(t, err)
	return x
}

// Values returns the elements of a tensor of float32.
func Values(t testing.TB, x tensor.Tensor) []float32 {
	t.Helper()
	v, err := tensor.As[float32](x)
	require.NoError(t, err)
	return v
}

// Free closes the region of x as soon as no operation holds it.
func Free(t testing.TB, x tensor.Tensor) {
	t.Helper()
	ctx := Context(t)
	err := x.Region().Close()
	for errors.Is(err, stepvan.ErrBusy) && ctx.Err() == nil {
		runtime.Gosched()
		err = x.Region().Close()
	}
	require.NoError(t, err, "an operation holds the tensor for ever")
}

// List returns its arguments, for short calls.
func List(x ...tensor.Tensor) []tensor.Tensor { return x }

// Keys returns its arguments, for short calls.
func Keys(k ...tensor.Key) []tensor.Key { return k }
