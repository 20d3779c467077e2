package ps

import (
	"context"
	"errors"
	"math/bits"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/shmvan"
)

// sharing is the shared memory of one member. It stands beside the van of the site, which
// carries the conversation with the scheduler, and tensors where memory cannot be shared: within a
// machine over Unix sockets, where these can be reached.
type sharing struct {
	made   bool
	absent error // why there is none though the settings would have it
}

// wantsShm reports whether the settings let this member share memory. The scheduler has no tensors.
func (m *member) wantsShm() bool {
	if _, inside := m.site.(*process); inside || m.role == RoleScheduler {
		return false
	}
	return m.node.settings.Van == config.VanAuto || m.node.settings.Van == config.VanShm
}

// vans are the transports of the member's link.
func (m *member) vans() []link.VanMaker {
	if !m.wantsShm() {
		return []link.VanMaker{m.site.van}
	}
	return []link.VanMaker{m.shmVan, m.site.van}
}

// shmVan makes the shared memory van. Where it cannot be had, only STEPVAN_VAN=shm takes that for an error.
func (m *member) shmVan(p van.Placer, wake func()) (van.Van, error) {
	v, err := m.node.options.shm(m, p, wake)
	if err == nil {
		m.shm.made = true
		return v, nil
	}
	if m.node.settings.Van == config.VanShm {
		return nil, shmRefused(err)
	}
	m.shm.absent = err
	var relative *shm.RelativeError
	if errors.As(err, &relative) { // a mistake, unlike what a machine forbids
		m.log.Warn().Msg("memory is not shared with nodes of this machine: " + relative.Error())
	}
	return nil, nil
}

func newShm(m *member, p van.Placer, _ func()) (van.Van, error) {
	dir, err := PrivateDir()
	if err != nil {
		return nil, err
	}
	return shmvan.New(shmvan.Options{
		Placer: p, Limits: limitsOf(m.node.settings), Dir: dir, Files: memories{m.node.memory, m.pool},
		Pending: visitorsOf(m.node.settings, files()), Starved: m.node.starved,
		NoForeign: !m.node.settings.PeerMemory, Grants: powerOfTwo(m.node.settings.Grants),
	})
}

// powerOfTwo is the least one that is not below n, which is above 0.
func powerOfTwo(n int) int { return 1 << bits.Len(uint(n-1)) }

func shmRefused(err error) error {
	return &stepvan.ConfigError{Key: vanName, Value: string(config.VanShm),
		Reason: "memory cannot be shared here: " + err.Error() + "; stepvan doctor says more; or set auto"}
}

// listen has the member listen for workers, and returns what they dial, best first.
func (m *member) listen(ctx context.Context) ([]string, error) {
	var own []string
	if m.shm.made {
		bound, err := m.listenShm()
		if err != nil && m.node.settings.Van == config.VanShm {
			return nil, shmRefused(err)
		}
		own, m.shm.absent = append(own, bound...), err
	}
	if m.node.settings.Van == config.VanShm {
		return own, nil
	}
	own = append(own, m.listenNear()...)
	more, err := m.site.listenData(ctx, m.link)
	return append(own, more...), err
}

// listenNear listens for workers of this machine with which no memory can be shared, and that see this user's
// directory: a container that forbids memory files, root. Who may choose no van but TCP does without, and so
// does who has no such directory, or one with too long a name.
func (m *member) listenNear() []string {
	if _, far := m.site.(*network); !far || m.node.settings.Van != config.VanAuto {
		return nil
	}
	_, err := PrivateDir()
	var bound []string
	if err == nil {
		bound, err = listenUnix(m.link, m.node.settings.RootPort)
	}
	if err != nil {
		m.log.Debug().Err(err).Msg("no Unix socket for workers of this machine")
	}
	return bound
}

// listenShm listens for peers of this machine, where killed processes may have left sockets.
func (m *member) listenShm() ([]string, error) {
	shm.Sweep(shm.SocketDir())
	defer shm.HoldSweep(shm.SocketDir())()
	return m.link.Listen("shm://")
}

// memories are the allocators of one member: the program's tensors and the pool.
type memories []*tensor.Allocator

// Locate implements shmvan.Files.
func (m memories) Locate(b []byte) (tensor.Place, bool) {
	for _, a := range m {
		if p, ok := a.Locate(b); ok {
			return p, true
		}
	}
	return tensor.Place{}, false
}

// Watch implements shmvan.Files.
func (m memories) Watch(dropped func(file uint64)) (stop func()) {
	stops := make([]func(), len(m))
	for i, a := range m {
		stops[i] = a.Watch(dropped)
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}
