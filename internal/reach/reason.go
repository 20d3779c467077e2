package reach

import (
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/link"
)

// Explain tells what carries the tensors of a session, and why: "shm", "rdma", "tcp", "unix" (Unix sockets) or "mem".
// The reason names each van that was passed over. The side that has dialled knows best, since it chose: a worker, or
// either of two peers. The other side quotes what it says.
func (e *Endpoint) Explain(s *link.Session) (van, reason string) {
	van = s.Van()
	if van == "tcp" && strings.HasPrefix(s.Address(), "unix:") {
		van = "unix"
	}
	if s.Dialled() != "" {
		return van, e.extra.vanReason(van, s.PassedOver())
	}
	return van, e.extra.peerReason(van, s.Peer().Reason)
}

// reasonForPeer is link.Options.Reason: what the peer at an address is told.
func (e *Endpoint) reasonForPeer(address string, passed []link.PassedOver) string {
	return e.extra.vanReason(link.Scheme(address), passed)
}

// vanReason says why this node, which has dialled, has taken a van.
func (x *extraVans) vanReason(van string, passed []link.PassedOver) string {
	if r, ok := x.localReason(van); ok {
		return r
	}
	var parts []string
	for _, v := range x.better(van) {
		parts = append(parts, v.reason(v.why(passed)))
	}
	return strings.Join(parts, ", ")
}

// peerReason says why a peer that has dialled this node has taken a van. said is what the peer says of it. The peer
// does not know why this node has not offered a van.
func (x *extraVans) peerReason(van, said string) string {
	if r, ok := x.localReason(van); ok {
		return r
	}
	if said == "" {
		return "shm: the " + x.dialler() + " cannot use shared memory (see its log)"
	}
	reported := false
	for _, v := range x.better(van) {
		if v.absent == nil {
			reported = true
			continue
		}
		said = strings.Replace(said, v.reason(notOffered), v.reason(withoutKind(v.absent)), 1)
	}
	if reported {
		said += ", reported by the " + x.dialler()
	}
	return said
}

// dialler is the role of the instances that dial this one.
func (x *extraVans) dialler() string {
	if x.role == stepvan.RolePeer {
		return string(stepvan.RolePeer)
	}
	return string(stepvan.RoleWorker)
}

// localReason is a reason that this node knows by itself.
func (x *extraVans) localReason(van string) (reason string, ok bool) {
	switch {
	case van == "mem":
		return "same process", true
	case van == "shm":
		return "same machine", true
	case x.settings.Van != config.VanAuto && x.settings.Van != config.VanShmRDMA:
		return "STEPVAN_VAN=" + string(x.settings.Van), true
	}
	return "", false
}

const notOffered = "not offered there"

// why says why v was not taken.
func (v *extraVan) why(passed []link.PassedOver) string {
	if v.absent != nil {
		return withoutKind(v.absent)
	}
	for _, o := range passed {
		if link.Scheme(o.Address) == string(v.name) {
			return shortReason(o)
		}
	}
	return notOffered
}

func (v *extraVan) reason(why string) string { return string(v.name) + ": " + why }

// shortReason leaves out the address, which differs between peers that are alike otherwise.
func shortReason(o link.PassedOver) string {
	_, local, _ := strings.Cut(o.Address, "://")
	_, path, _ := strings.Cut(local, "/")
	text := strings.ReplaceAll(withoutKind(o.Err), " with "+local, "")
	if path != "" {
		text = strings.ReplaceAll(text, " /"+path, "")
	}
	return text
}

// withoutKind leaves out the kind of error, which says nothing to people.
func withoutKind(err error) string {
	return strings.TrimSuffix(err.Error(), ": "+stepvan.ErrNotSupported.Error())
}
