package reach

import (
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/link"
)

// Explain tells what carries the tensors of a session, and why: "shm", "tcp", "unix" (Unix sockets) or "mem". A worker
// knows best, since it chose. A server quotes what its worker says of it.
func (e *Endpoint) Explain(s *link.Session) (van, reason string) {
	van = s.Van()
	if van == "tcp" && strings.HasPrefix(s.Address(), "unix:") {
		van = "unix"
	}
	if s.Dialled() != "" {
		return van, e.vanReason(van, s.PassedOver())
	}
	return van, e.peerReason(van, s.Peer().Reason)
}

// reasonForPeer is link.Options.Reason: what the peer at an address is told.
func (e *Endpoint) reasonForPeer(address string, passed []link.PassedOver) string {
	return e.vanReason(link.Scheme(address), passed)
}

// vanReason says why this node, which has dialled, has taken a van.
func (e *Endpoint) vanReason(van string, passed []link.PassedOver) string {
	if r, ok := e.localReason(van); ok {
		return r
	}
	for _, o := range passed {
		if link.Scheme(o.Address) == "shm" {
			return "shm: " + shortReason(o)
		}
	}
	return "shm: not offered there"
}

// peerReason says why a peer that has dialled this node has taken a van. said is what the peer says of it.
func (e *Endpoint) peerReason(van, said string) string {
	if r, ok := e.localReason(van); ok {
		return r
	}
	if said == "" {
		return "shm: the worker cannot use shared memory (see its log)"
	}
	return said + ", reported by the worker"
}

// localReason is a reason that this node knows by itself.
func (e *Endpoint) localReason(van string) (reason string, ok bool) {
	switch {
	case van == "mem":
		return "same process", true
	case van == "shm":
		return "same machine", true
	case e.o.Settings.Van != config.VanAuto:
		return "STEPVAN_VAN=" + string(e.o.Settings.Van), true
	case e.shm.absent != nil:
		return "shm: " + withoutKind(e.shm.absent), true
	}
	return "", false
}

// shortReason leaves out the address, which differs between peers that are alike otherwise.
func shortReason(o link.PassedOver) string {
	local := strings.TrimPrefix(o.Address, "shm://")
	_, path, _ := strings.Cut(local, "/")
	return strings.NewReplacer(" with "+local, "", " /"+path, "").Replace(withoutKind(o.Err))
}

// withoutKind leaves out the kind of error, which says nothing to people.
func withoutKind(err error) string {
	return strings.TrimSuffix(err.Error(), ": "+stepvan.ErrNotSupported.Error())
}
