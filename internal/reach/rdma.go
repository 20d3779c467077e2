package reach

import (
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/sparing"
	"github.com/stepvan/stepvan/rdma"
	"github.com/stepvan/stepvan/rdma/device"
	"github.com/stepvan/stepvan/van"
)

// newRDMA makes the van on the devices that the settings choose. The error is a reason in the line of a connection.
func newRDMA(e *Endpoint, p van.Placer, _ func()) (van.Van, error) {
	s := e.o.Settings
	found, inventory, err := DevicesHere(s, nil)
	if err != nil {
		return nil, err
	}
	switch {
	case len(inventory.Devices) == 0:
		return nil, errors.New("no device")
	case len(found.Choices) == 0:
		return nil, errors.New(found.Why(inventory))
	}
	v, err := rdma.New(rdma.Options{
		Placer: p, Limits: Limits(s), Devices: found.Devices(), Source: sourceOf(s, found),
		Pending: visitorLimit(s, files()), Starved: e.o.Starved,
		Paths: rdma.PathOptions{
			Count: s.RDMAQPs, Ports: portsOf(s, found), SplitLAG: s.SplitQPLag, Changed: tellPaths(&e.o.Log),
		},
		Windows: s.RDMAWindows, TrafficClass: s.RDMATraffic, AckTimeout: ackTimeout(s.HeartbeatTimeout),
	})
	if err != nil {
		return nil, err
	}
	for _, line := range found.Remarks() {
		e.o.Log.Info().Msg("RDMA: " + line)
	}
	for _, c := range found.Choices {
		e.extra.sources = append(e.extra.sources, c.Source)
	}
	return v, nil
}

// tellPaths writes lines about paths of connections.
func tellPaths(log *zerolog.Logger) func(rdma.PathChange) {
	lines := sparing.New(20, time.Minute, func(left int) {
		log.Warn().Msgf("RDMA: paths have failed or come back %d more times within a minute", left)
	})
	return func(c rdma.PathChange) {
		switch {
		case !lines.Allow():
		case c.Err != nil:
			log.Warn().Msgf("%v: payload takes the other paths until this one stands again", c.Err)
		default:
			log.Info().Msgf("path %d of %d to %s over rdma stands again", c.Path, c.Of, c.Peer)
		}
	}
}

// Bounds of an acknowledgement timeout, which is 4.096 us times 2 to its power. A device repeats a request six times,
// and may wait up to four times as long as it was told.
const (
	leastAckTimeout, usualAckTimeout = 8, 14
	ackUnit                          = 4096 * time.Nanosecond
	ackTries                         = 7
)

// ackTimeout lets a device notice a peer that does not answer before the heartbeats would. 0 is the van's default.
func ackTimeout(heartbeats time.Duration) int {
	if heartbeats == 0 {
		return 0
	}
	code := usualAckTimeout
	for code > leastAckTimeout && ackTries*(ackUnit<<code) > heartbeats {
		code--
	}
	return code
}

// sourceOf is the address at which connections begin, where the settings name a part of the machine. Otherwise the
// route to the peer decides.
func sourceOf(s *config.Settings, found *device.Selection) netip.Addr {
	if s.RDMADevices == "" && s.RDMAGIDIndex < 0 && (s.Interface == "" || s.Interface == device.Auto) {
		return netip.Addr{}
	}
	return found.Choices[0].Source
}

// portsOf lists the addresses of the ports over which one connection goes, if there are several.
func portsOf(s *config.Settings, found *device.Selection) (ports []netip.Addr) {
	n := min(s.RDMAPorts, len(found.Choices))
	if n < 2 {
		return nil
	}
	for _, c := range found.Choices[:n] {
		ports = append(ports, c.Source)
	}
	return ports
}

// listenRDMA listens at the address of each port that the node uses, the best one first. The port is any: those of
// rdma_cm are apart from those of TCP.
func (e *Endpoint) listenRDMA() (bound []string, err error) {
	if len(e.extra.sources) == 0 {
		return e.Link.Listen("rdma://")
	}
	for _, source := range e.extra.sources {
		one, err := e.Link.Listen("rdma://" + net.JoinHostPort(source.String(), "0"))
		if err != nil {
			return nil, err
		}
		bound = append(bound, one...)
	}
	return bound, nil
}

// UnusedDevices names the RDMA devices of this machine, if the settings leave the choice of the van to stepvan. With
// them a connection over TCP deserves a warning.
func (e *Endpoint) UnusedDevices() (names []string) {
	if e.o.Settings.Van != config.VanAuto {
		return nil
	}
	if e.o.Devices != nil {
		return e.o.Devices()
	}
	inventory, err := device.ThisMachine().Read()
	if err != nil {
		return nil
	}
	for _, d := range inventory.Devices {
		names = append(names, d.Name)
	}
	return names
}
