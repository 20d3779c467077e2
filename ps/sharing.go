package ps

import (
	"context"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/link"
	"github.com/stepvan/stepvan/van"
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

func shmRefused(err error) error {
	return &errs.ConfigError{Key: vanName, Value: string(config.VanShm),
		Reason: "memory cannot be shared here: " + err.Error() + "; stepvan doctor says more; or set auto"}
}

// listen has the member listen for workers, and returns what they dial, best first.
func (m *member) listen(ctx context.Context) ([]string, error) {
	var own []string
	if m.shm.made {
		bound, err := m.link.Listen("shm://")
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

func newShm(*member, van.Placer, func()) (van.Van, error) { return nil, errs.ErrNotSupported }
