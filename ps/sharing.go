package ps

import (
	"context"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/link"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/shmvan"
)

// sharing is the shared memory of one member. It stands beside the van of the site, which
// carries the conversation with the scheduler, and tensors where memory cannot be shared.
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
	return nil, nil
}

func newShm(m *member, p van.Placer, _ func()) (van.Van, error) {
	dir, err := PrivateDir()
	if err != nil {
		return nil, err
	}
	return shmvan.New(shmvan.Options{
		Placer: p, Limits: limitsOf(m.node.settings), Dir: dir, Files: memories{m.node.memory, m.pool},
	})
}

func shmRefused(err error) error {
	return &errs.ConfigError{Key: vanName, Value: string(config.VanShm),
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
	more, err := m.site.listenData(ctx, m.link)
	return append(own, more...), err
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
