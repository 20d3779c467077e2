package particle

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
)

// ID is the number of a particle, from 0 on. The driver gives it, and it is the same at all loops.
type ID int64

// None stands for no particle.
const None ID = -1

// Place is where a particle lives.
type Place struct {
	Particle ID
	Rank     stepvan.Rank
	Device   int
}

// Hook handles a message to a particle. It runs while no other hook of its device does, except while it waits with
// [Call.Wait]. An error reaches the future of the caller as a [*HookError], and so does a panic.
type Hook func(c *Call, args Value) (Value, error)

// particle is one that lives at this loop. Loop.mu guards it.
type particle struct {
	id     ID
	device *device
	hooks  map[string]Hook // nil in a program that pulls
	sharer Hook
	share  *share // nil: there is no view of it
}

// takes reports whether there is a hook for a message. Names with a dot are operations of a program that pulls.
func (x *particle) takes(name string, pull bool) bool {
	_, ok := x.hooks[name]
	return ok || pull && strings.HasPrefix(name, ".")
}

// Create creates a particle at a device of a loop, at the driver alone. The future is done when all loops know of it.
// Messages to the particle may be sent at once from here, and from elsewhere after that. Errors, also of the future:
//
//   - [stepvan.ErrInvalid]: this is not the driver, or there is no such loop or device;
//   - [stepvan.ErrPeerLost], [stepvan.ErrClosed]: a loop has ended before it has acknowledged.
func (l *Loop) Create(rank stepvan.Rank, device int) (ID, *Future, error) {
	l.mu.Lock()
	defer l.unlock()
	if err := l.checkOver("create"); err != nil {
		return None, nil, err
	}
	if l.rank != l.opt.Driver {
		return None, nil, errs.Invalid("create: this peer is not the driver (got peer %d, want %d): call it there", l.rank, l.opt.Driver)
	}
	r := l.remotes[rank]
	devices, known := l.opt.Devices, true
	if rank != l.rank {
		if r == nil {
			return None, nil, errs.Invalid("create: peer %d: it has no loop: give one of the ranks of Options", rank)
		}
		devices, known = r.hello.devices, r.known
	}
	if device < 0 || device >= maxDevices || known && device >= devices {
		return None, nil, errs.Invalid("create: device %d: the loop of peer %d has none (want 0 to %d): count from 0", device, rank, devices-1)
	}
	for _, other := range l.remotes {
		if other.lost != nil {
			return None, nil, other.lost
		}
	}
	p := Place{ID(len(l.places)), rank, device}
	l.place(p)
	f := l.newFuture(None, p.Particle, "", r)
	f.acks = len(l.remotes)
	if f.acks == 0 {
		f.finish(nil, nil)
	}
	for _, other := range l.remotes {
		other.send(&outgoing{frame: frame{op: opPlace, number: f.number, to: p.Particle, chain: placeNumber(p)}})
	}
	return p.Particle, f, nil
}

// place notes a particle. Under mu.
func (l *Loop) place(p Place) {
	l.places = append(l.places, p)
	if p.Rank == l.rank && p.Device < len(l.devices) {
		l.particles[p.Particle] = &particle{id: p.Particle, device: l.devices[p.Device], hooks: map[string]Hook{}}
	}
}

// placed handles the word of the driver that there is a particle.
func (r *remote) placed(f *frame) {
	l := r.loop
	p := placeOf(f.to, f.chain)
	reply := frame{op: opPlaced, number: f.number, to: f.to}
	switch {
	case r.rank != l.opt.Driver || p.Particle != ID(len(l.places)) || p.Device < 0 || p.Device >= maxDevices:
		reply = reply.with(fail(codeInvalid, "the loop of %s: particle %d does not come from its driver, peer %d, in its turn", l.name, f.to, l.opt.Driver))
	case p.Rank == l.rank && p.Device >= len(l.devices):
		l.place(p) // the numbers continue
		reply = reply.with(fail(codeInvalid, "the loop of %s has no device %d (want 0 to %d)", l.name, p.Device, len(l.devices)-1))
	default:
		l.place(p)
	}
	r.send(&outgoing{frame: reply})
}

// acknowledged handles the answer to that.
func (r *remote) acknowledged(f *frame) {
	l := r.loop
	x := l.futures[f.number]
	if x == nil || x.acks == 0 || x.to != f.to || slices.Contains(x.acked, r) {
		return
	}
	x.acked = append(x.acked, r)
	if f.code != codeOK {
		x.finish(nil, &stepvan.OpError{Op: "create", Peer: r.name, Err: fmt.Errorf("particle %d: %s: %w", f.to, f.data, stepvan.ErrInvalid)})
		return
	}
	if x.acks--; x.acks == 0 {
		x.finish(nil, nil)
	}
}

// Particles lists the particles that this loop knows of, by their numbers.
func (l *Loop) Particles() []Place {
	l.mu.Lock()
	defer l.unlock()
	return slices.Clone(l.places)
}

// own returns a particle of this loop. Under mu.
func (l *Loop) own(op string, id ID) (*particle, error) {
	p, err := l.find(op, id)
	if err != nil {
		return nil, err
	}
	x := l.particles[id]
	if x == nil {
		return nil, errs.Invalid("%s: particle %d: it does not live here (it is at peer %d): call it there", op, id, p.Rank)
	}
	return x, nil
}

// Handle has a hook run for a message to a particle of this loop. It replaces an earlier one. With [Options].Pull hook
// is nil, and the calls come from [Loop.Next].
func (l *Loop) Handle(id ID, message string, hook Hook) error {
	if message == "" || len(message) > maxName {
		return errs.Invalid("handle: message: its name has a wrong length (got %d, want 1 to %d bytes): give another", len(message), maxName)
	}
	if (hook == nil) != l.opt.Pull {
		return errs.Invalid("handle: hook: give one, unless the loop has Options.Pull")
	}
	l.mu.Lock()
	defer l.unlock()
	x, err := l.own("handle", id)
	if err == nil {
		x.hooks[message] = hook
	}
	return err
}

// HandleShare has a hook run when somebody wants a view of a particle of this loop that shares nothing. It calls
// [Loop.Share].
func (l *Loop) HandleShare(id ID, hook Hook) error {
	l.mu.Lock()
	defer l.unlock()
	x, err := l.own("handle", id)
	if err == nil {
		x.sharer = hook
	}
	return err
}
