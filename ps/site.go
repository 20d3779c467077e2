package ps

import (
	"context"
	"strconv"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/memvan"
	"github.com/stepvan/stepvan/van/tcpvan"
)

// site is where the nodes of a cluster meet: a network, this machine, or this process.
type site interface {
	// van makes the transport that leads to the scheduler, and to peers with which no memory can be shared.
	van(p van.Placer, wake func()) (van.Van, error)
	// listenScheduler has n listen as the scheduler, and returns its port.
	listenScheduler(ctx context.Context, n *link.Transport) (int, error)
	// scheduler lists the addresses of the scheduler.
	scheduler() []string
	// listenData has n listen for workers, and returns the addresses that reach it from there.
	listenData(ctx context.Context, n *link.Transport) ([]string, error)
	// meeting says what the nodes of a cluster must have in common to find each other, where that is not plain.
	meeting() string
}

// newSite makes the site of a node. starved is told when no descriptor is left for a peer that connects.
func newSite(s *Settings, o *options, starved func(error)) site {
	tcp := tcpvan.Options{
		Limits: limitsOf(s), Rails: min(s.Rails, tcpvan.MaxRails), SmallBytes: int(s.SmallBytes), Local: s.Local,
		Pending: visitorsOf(s, files()), Starved: starved, Stall: s.HeartbeatTimeout,
	}
	switch {
	case o.network != nil && (s.Van == config.VanMem || s.Van == config.VanAuto):
		return &process{port: s.RootPort, net: o.network, opts: memvan.Options{Limits: limitsOf(s)}}
	case s.Local:
		return &machine{port: s.RootPort, tcp: tcp}
	}
	return &network{settings: s, tcp: tcp}
}

// process is a site within one process.
type process struct {
	port int
	net  *memvan.Network
	opts memvan.Options
}

func (p *process) van(pl van.Placer, wake func()) (van.Van, error) {
	o := p.opts
	o.Placer, o.Wake = pl, wake
	return memvan.New(p.net, o)
}

const memScheduler = "mem://scheduler:"

func (p *process) listenScheduler(_ context.Context, n *link.Transport) (int, error) {
	bound, err := n.Listen(memScheduler + strconv.Itoa(p.port))
	if err != nil {
		return 0, &stepvan.ConfigError{Key: rootPort, Value: strconv.Itoa(p.port), Reason: err.Error()}
	}
	return strconv.Atoi(strings.TrimPrefix(bound[0], memScheduler))
}

func (p *process) meeting() string { return "" }

func (p *process) scheduler() []string { return []string{memScheduler + strconv.Itoa(p.port)} }

func (p *process) listenData(_ context.Context, n *link.Transport) ([]string, error) {
	return n.Listen("mem://data:0")
}

// Names of settings in errors.
const (
	rootURI   = "DMLC_PS_ROOT_URI"
	rootPort  = "DMLC_PS_ROOT_PORT"
	dataPort  = "DMLC_PORT"
	nodeHost  = "DMLC_NODE_HOST"
	netDevice = "DMLC_INTERFACE"
	vanName   = "STEPVAN_VAN"
)
