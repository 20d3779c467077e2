package wire

// Ops of the register channel, server to worker.
const (
	// OpAnnounce lists keys of the receiving worker for which the server has registered memory. A worker that has seen
	// the announcement says so with Header.Generation of its later requests. The server receives those in place. If a
	// descriptor names a grant, the worker may write its pushes of that key there.
	OpAnnounce uint8 = 1
	// OpWithdraw lists keys whose registration has ended. A worker that may have written into one of their grants
	// answers with OpFence, after what it has written.
	OpWithdraw uint8 = 2
)

// MaxAnnounced is the number of keys in one announcement; more are sent as several.
const MaxAnnounced = 1024

// Announcement is the meta of OpAnnounce and OpWithdraw: descriptors made by KeyOf, as many as Header.Pushes says.
// Header.Generation is the generation of the registration.
type Announcement struct{ Keys []Descriptor }

// Decode reads the meta of the announcement that h heads. An error is a *stepvan.ProtocolError.
func (a *Announcement) Decode(h *Header, meta []byte) error {
	if h.Op != OpAnnounce && h.Op != OpWithdraw {
		return bad("op", offOp, "%d is not an announcement", h.Op)
	}
	if h.Total != 0 || h.Pulls != 0 {
		return bad("total", offTotal, "an announcement with %d bytes of payload and %d pulls", h.Total, h.Pulls)
	}
	if h.Pushes > MaxAnnounced {
		return bad("pushes", offPushes, "%d keys announced at once, at most %d", h.Pushes, MaxAnnounced)
	}
	l := list{rest: meta}
	a.Keys = l.decode(a.Keys[:0], h.Pushes)
	return l.end(0, 0)
}
