package reach

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

// baseVan is the van that leads to the scheduler, and to peers with which no memory can be shared. Where the nodes of a
// cluster find each other depends on it: on a network, on this machine, or in this process.
type baseVan interface {
	// make makes the van.
	make(p van.Placer, wake func()) (van.Van, error)
	// listenScheduler has t listen as the scheduler, and returns its port.
	listenScheduler(ctx context.Context, t *link.Transport) (int, error)
	// scheduler is the address of the scheduler.
	scheduler() string
	// listenData has t listen for instances that dial this one, and returns the addresses that reach it from there.
	listenData(ctx context.Context, t *link.Transport) ([]string, error)
}

// newBaseVan chooses the base van. starved is called when no descriptor is left for a peer that connects.
func newBaseVan(o *Options) baseVan {
	s := o.Settings
	tcp := tcpvan.Options{
		Limits: Limits(s), Rails: min(s.Rails, tcpvan.MaxRails), SmallBytes: int(s.SmallBytes), Local: s.Local,
		Pending: visitorLimit(s, files()), Starved: o.Starved, Stall: s.HeartbeatTimeout,
	}
	switch {
	case o.Network != nil && (s.Van == config.VanMem || s.Van == config.VanAuto):
		return &processVan{port: s.RootPort, net: o.Network, opts: memvan.Options{Limits: Limits(s)}}
	case s.Local:
		return &unixVan{port: s.RootPort, tcp: tcp}
	}
	return &tcpVan{settings: s, host: ThisHost(), tcp: tcp}
}

// processVan is the base within one process.
type processVan struct {
	port int
	net  *memvan.Network
	opts memvan.Options
}

func (p *processVan) make(pl van.Placer, wake func()) (van.Van, error) {
	o := p.opts
	o.Placer, o.Wake = pl, wake
	return memvan.New(p.net, o)
}

const memScheduler = "mem://scheduler:"

func (p *processVan) listenScheduler(_ context.Context, t *link.Transport) (int, error) {
	bound, err := t.Listen(p.scheduler())
	if err != nil {
		return 0, &stepvan.ConfigError{Key: rootPort, Value: strconv.Itoa(p.port), Reason: err.Error()}
	}
	return strconv.Atoi(strings.TrimPrefix(bound[0], memScheduler))
}

func (p *processVan) scheduler() string { return memScheduler + strconv.Itoa(p.port) }

func (p *processVan) listenData(_ context.Context, t *link.Transport) ([]string, error) {
	return t.Listen("mem://data:0")
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
