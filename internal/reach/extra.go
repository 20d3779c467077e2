package reach

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/van"
)

// Maker makes a van of an endpoint.
type Maker func(e *Endpoint, p van.Placer, wake func()) (van.Van, error)

// extraVan stands beside the base van. It carries tensors where the settings, the machine and the peer allow it.
type extraVan struct {
	name   config.Van // also the scheme of its addresses
	cannot string     // what is said first when it is missing: "memory cannot be shared"
	make   Maker
	made   bool
	absent error // why the van is missing, or has no address, though the settings allow it
}

// extraVans are the vans beside the base van.
type extraVans struct {
	shm, rdma extraVan
	sources   []netip.Addr // where RDMA listens, the best port first; empty where another maker made the van
	settings  *config.Settings
	role      stepvan.Role
	inside    bool // the nodes are in one process, and need none
	log       zerolog.Logger
}

func newExtraVans(o *Options, inside bool) extraVans {
	orElse := func(m, usual Maker) Maker {
		if m == nil {
			return usual
		}
		return m
	}
	return extraVans{
		shm:      extraVan{name: config.VanShm, cannot: "memory cannot be shared", make: orElse(o.Shm, newShm)},
		rdma:     extraVan{name: config.VanRDMA, cannot: "RDMA cannot be used", make: orElse(o.RDMA, newRDMA)},
		settings: o.Settings, role: o.Role, inside: inside, log: o.Log,
	}
}

// allowed are those that the settings let this instance have, best first. The scheduler handles no tensors.
func (x *extraVans) allowed() (out []*extraVan) {
	if x.inside || x.role == stepvan.RoleScheduler {
		return nil
	}
	for _, v := range []*extraVan{&x.shm, &x.rdma} {
		if x.settings.Carries(v.name) {
			out = append(out, v)
		}
	}
	return out
}

// better are those that come before the van that was taken. A Unix socket reaches only this machine, where RDMA is not
// taken by choice.
func (x *extraVans) better(van string) []*extraVan {
	all := x.allowed()
	taken := func(v *extraVan) bool { return string(v.name) == van || van == "unix" && v == &x.rdma }
	if i := slices.IndexFunc(all, taken); i >= 0 {
		return all[:i]
	}
	return all
}

// demanded reports whether no other van may stand in for v.
func (x *extraVans) demanded(v *extraVan) bool {
	for _, other := range x.allowed() {
		if other != v && other.absent == nil {
			return false
		}
	}
	return x.settings.Van != config.VanAuto
}

// refused is the error when the settings demand v, and it is missing.
func (x *extraVans) refused(v *extraVan) error {
	return &stepvan.ConfigError{Key: vanName, Value: string(x.settings.Van),
		Reason: v.cannot + " here: " + withoutKind(v.absent) + "; stepvan doctor says more; or set auto"}
}

// make makes the van v of an endpoint. It is an error if that fails and the settings demand it.
func (x *extraVans) make(e *Endpoint, v *extraVan, p van.Placer, wake func()) (van.Van, error) {
	made, err := v.make(e, p, wake)
	if v.made, v.absent = err == nil, err; v.made {
		return made, nil
	}
	if x.demanded(v) {
		return nil, x.refused(v)
	}
	var relative *shm.RelativeError
	var wrong *stepvan.ConfigError
	switch {
	case errors.As(err, &wrong): // a setting names what the machine does not have
		return nil, wrong
	case errors.As(err, &relative): // a mistake of the user, unlike what a machine forbids
		x.log.Warn().Msg("memory is not shared with nodes of this machine: " + relative.Error())
	case v == &x.rdma && x.settings.Van == config.VanShmRDMA && x.role != stepvan.RoleWorker: // a worker says it when it needs it
		x.log.Info().Msgf("%s here (%s), so instances of other machines do not reach this %s: stepvan doctor says more; STEPVAN_VAN=auto allows TCP", v.cannot, withoutKind(err), x.role)
	}
	return nil, nil
}

// listen listens on v, if there is one. It is an error if that fails and the settings demand it.
func (x *extraVans) listen(v *extraVan, listen func() ([]string, error)) (bound []string, err error) {
	if !v.made {
		return nil, nil
	}
	if bound, v.absent = listen(); v.absent != nil && x.demanded(v) {
		return nil, x.refused(v)
	}
	return bound, nil
}
