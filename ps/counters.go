package ps

import (
	"errors"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/reach"
)

// Counters tell what the RDMA devices of this node have done for a peer: see [Connection].
type Counters = link.Counters

// Traffic is how many messages have gone over a connection.
type Traffic = link.Traffic

// sessionLost is called by the driver. It logs what the devices have done for a peer whose connection has failed, and
// what their ports say of it. A goroutine reads the latter, since that may take milliseconds.
func (m *member) sessionLost(s *link.Session, c *Counters, err error) {
	if c == nil || errors.Is(err, link.ErrLeft) || !errors.Is(err, stepvan.ErrPeerLost) {
		return
	}
	van, who := s.Van(), s.String()
	m.telling.Go(func() {
		e := m.log.Warn().Stringer("counters", c)
		if ports := reach.PortCounters(c.Devices); ports != "" {
			e.Str("ports", ports)
		}
		e.Msgf("the connection with %s over %s is lost: %v", who, van, err)
	})
}
