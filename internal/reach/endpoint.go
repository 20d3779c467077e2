package reach

import (
	"context"
	"math/bits"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/memvan"
	"github.com/stepvan/stepvan/van/shmvan"
)

// Options of an Endpoint.
type Options struct {
	Settings *config.Settings
	Role     stepvan.Role      // of the instance
	Network  *memvan.Network   // within this process, or nil
	Memory   *tensor.Allocator // of the program
	Near     func(make func()) // makes memory near the cores of the node; nil: anywhere
	Starved  func(error)       // called when no descriptor is left for a peer that connects
	Shm      Maker             // of shared memory; nil: the real one
	RDMA     Maker             // nil: the real one
	Devices  func() []string   // the names of the RDMA devices of the machine; nil: from the kernel
	Link     link.Options      // what the settings do not say
	Log      zerolog.Logger
}

// Endpoint is the link of one instance with its vans: the base van, with shared memory and RDMA beside it where the
// settings and the machine allow that. The base van reaches the scheduler. It carries tensors where no other van can.
type Endpoint struct {
	Link *link.Transport
	Pool *tensor.Allocator // memory of messages that no registered buffer receives

	o     Options
	base  baseVan
	extra extraVans
}

// remindersPerBeat is how often, between two signs of life, a peer may be reminded of what it has not acknowledged. A
// message that has vanished is then noticed long before the peer is taken for dead.
const remindersPerBeat = 4

// Open makes the link of an instance. It neither listens nor dials.
func Open(o Options) (e *Endpoint, err error) {
	s := o.Settings
	e = &Endpoint{o: o, base: newBaseVan(&o)}
	_, inside := e.base.(*processVan)
	e.extra = newExtraVans(&o, inside)
	if e.Pool, err = tensor.NewAllocator(tensor.Options{
		Name: "stepvan " + string(o.Role) + " pool", MaxBytes: int64(s.PoolBytes), MaxBytesSetting: "STEPVAN_POOL_BYTES",
		HugePages: HugePages(s), Near: o.Near,
	}); err != nil {
		return nil, err
	}
	vans := e.vans()
	lo := o.Link
	lo.Vans, lo.Memory, lo.Limits, lo.Reason, lo.Log = vans, e.Pool, Limits(s), e.reasonForPeer, o.Log
	lo.Visitors, lo.Remind = len(vans)*visitorLimit(s, files()), s.HeartbeatInterval/remindersPerBeat
	lo.PieceBytes, lo.CreditBytes = int64(s.PieceBytes), int64(s.CreditBytes)
	if e.Link, err = link.NewTransport(lo); err != nil {
		e.closePool()
		return nil, err
	}
	return e, nil
}

// vans returns what makes the vans of the link, best first.
func (e *Endpoint) vans() (out []link.VanMaker) {
	for _, v := range e.extra.allowed() {
		out = append(out, func(p van.Placer, wake func()) (van.Van, error) { return e.extra.make(e, v, p, wake) })
	}
	return append(out, e.base.make)
}

// Close ends the link, telling peers the reason, and gives back the pool.
func (e *Endpoint) Close(reason string) {
	e.Link.Goodbye(reason)
	_ = e.Link.Close()
	e.closePool()
}

func (e *Endpoint) closePool() {
	if err := e.Pool.Close(); err != nil {
		e.o.Log.Debug().Err(err).Msg("received memory is still in use")
	}
}

// Settings returns the settings of the node.
func (e *Endpoint) Settings() config.Settings { return *e.o.Settings }

// Meeting says what the nodes of a cluster must have in common to find each other, or "".
func (e *Endpoint) Meeting() string {
	if !e.overUnix() {
		return ""
	}
	return "with DMLC_LOCAL=1 nodes meet in " + shm.SocketDir() + ", the directory of one user: start all nodes as the same user and with the same TMPDIR, or unset DMLC_LOCAL"
}

// overUnix reports whether the nodes of the cluster find each other by Unix sockets.
func (e *Endpoint) overUnix() bool {
	_, ok := e.base.(*unixVan)
	return ok
}

// Scheduler lists the addresses of the scheduler.
func (e *Endpoint) Scheduler() []string { return []string{e.base.scheduler()} }

// ListenAsScheduler has the endpoint listen as the scheduler, and returns its port.
func (e *Endpoint) ListenAsScheduler(ctx context.Context) (int, error) {
	return e.base.listenScheduler(ctx, e.Link)
}

// UsesSocketDir reports whether the endpoint has used the directory in which processes of this machine find each other.
func (e *Endpoint) UsesSocketDir() bool {
	return e.overUnix() || e.extra.shm.made
}

// SocketDir is the directory in which nodes of this user find each other on this machine. It makes the directory. An
// error says why it cannot be used.
func SocketDir() (string, error) {
	dir := shm.SocketDir()
	return dir, shm.PrivateDir(dir)
}

// Limits returns the limits of messages.
func Limits(s *config.Settings) wire.Limits {
	return wire.Limits{Meta: uint32(s.MaxHeaderBytes), Message: uint64(s.MaxMessageBytes), Tensors: uint32(s.MaxTensors)}
}

// HugePages says whether memory is in huge pages.
func HugePages(s *config.Settings) tensor.HugePages {
	switch s.Hugepages {
	case config.HugepagesOn:
		return tensor.HugePagesRequired
	case config.HugepagesOff:
		return tensor.HugePagesOff
	}
	return tensor.HugePagesAuto
}

func newShm(e *Endpoint, p van.Placer, _ func()) (van.Van, error) {
	dir, err := SocketDir()
	if err != nil {
		return nil, err
	}
	s := e.o.Settings
	return shmvan.New(shmvan.Options{
		Placer: p, Limits: Limits(s), Dir: dir, Files: e.Memories(),
		Pending: visitorLimit(s, files()), Starved: e.o.Starved, NoForeign: !s.PeerMemory,
		Grants: grantsOf(s, e.o.Role), RingBytes: ringOf(s, e.o.Role),
	})
}

// ringOf is the size of the rings of an instance, where 0 stands for the default of the van. Peers have many
// connections, and large payload does not go through their rings.
func ringOf(s *config.Settings, role stepvan.Role) int {
	if role != stepvan.RolePeer {
		return 0
	}
	return powerOfTwo(int(s.PeerRing))
}

// grantsOf is how many grants the other side of a connection may have. A peer has many connections, and grants whole
// memory files. So it has few grants for each.
func grantsOf(s *config.Settings, role stepvan.Role) int {
	if role != stepvan.RolePeer {
		return powerOfTwo(s.Grants)
	}
	return max(powerOfTwo(s.Grants)/8, leastGrants)
}

// leastGrants is the least that STEPVAN_GRANTS may be.
const leastGrants = 64

// SideBytes is the memory that a connection over shared memory takes at an instance with settings s.
func SideBytes(s *config.Settings) config.Bytes {
	return config.Bytes(shmvan.SideBytes(ringOf(s, s.Role), grantsOf(s, s.Role)))
}

// powerOfTwo is the least one that is not below n, which is above 0.
func powerOfTwo(n int) int { return 1 << bits.Len(uint(n-1)) }

// Memories are the allocators of one instance: that of the program, and the pool.
type Memories []*tensor.Allocator

// Memories finds the memory of an address, in the allocator of the program and in the pool.
func (e *Endpoint) Memories() Memories { return Memories{e.o.Memory, e.Pool} }

// Locate implements shmvan.Files.
func (m Memories) Locate(b []byte) (tensor.Place, bool) {
	for _, a := range m {
		if p, ok := a.Locate(b); ok {
			return p, true
		}
	}
	return tensor.Place{}, false
}

// Find implements registry.Arenas.
func (m Memories) Find(b []byte) (tensor.Place, bool) {
	for _, a := range m {
		if p, ok := a.Find(b); ok {
			return p, true
		}
	}
	return tensor.Place{}, false
}

// Watch implements shmvan.Files.
func (m Memories) Watch(dropped func(file uint64)) (stop func()) {
	return m.each(func(a *tensor.Allocator) (stop func()) { return a.Watch(dropped) })
}

// Keep implements registry.Arenas.
func (m Memories) Keep(keep func(file uint64, unmap func()) bool) (stop func()) {
	return m.each(func(a *tensor.Allocator) (stop func()) { return a.Keep(keep) })
}

// each begins something with each allocator. stop ends all of it.
func (m Memories) each(begin func(*tensor.Allocator) (stop func())) (stop func()) {
	stops := make([]func(), len(m))
	for i, a := range m {
		stops[i] = begin(a)
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}
