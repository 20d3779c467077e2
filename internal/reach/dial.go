package reach

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/postoffice"
)

// Dial opens the session with one peer.
func (e *Endpoint) Dial(ctx context.Context, p postoffice.Peer) (*link.Session, error) {
	addrs, err := e.usable(p)
	if err != nil {
		return nil, err
	}
	s, err := e.dialUntilHeard(ctx, addrs)
	if err != nil {
		return nil, e.unreachable(p, addrs, err)
	}
	id := s.Peer()
	if id.ID != p.ID || id.Incarnation != p.Incarnation {
		_ = s.Close("expected another node here") // it ends with the link in any case
		return nil, errs.Invalid("%q answers at %s: two nodes share the address: check DMLC_NODE_HOST and DMLC_PORT there", id.Name, s.Address())
	}
	return s, nil
}

const (
	// mostIntroductions is how often an instance introduces itself to one that it dials. One that has many visitors
	// may end the session before it has read the introduction. The pauses between the tries take some 8 s together.
	mostIntroductions = 20
	firstPause        = 20 * time.Millisecond
	lastPause         = 500 * time.Millisecond
)

// dialUntilHeard dials until the other side has read the introduction of this instance.
func (e *Endpoint) dialUntilHeard(ctx context.Context, addrs []string) (s *link.Session, err error) {
	pause := firstPause
	for range mostIntroductions {
		s, err = e.Link.Dial(ctx, addrs)
		if err == nil || !errors.Is(err, stepvan.ErrPeerLost) || errors.Is(err, link.ErrLeft) {
			break
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, lastPause)
		case <-ctx.Done():
			return nil, err
		}
	}
	return s, err
}

// usable are those addresses of p that the settings of this node allow and that can lead there.
func (e *Endpoint) usable(p postoffice.Peer) ([]string, error) {
	allowed := without(p.Addresses, func(a string) bool { return !e.allows(link.Scheme(a)) })
	if len(allowed) == 0 {
		return nil, e.noCommonVan(p)
	}
	visible := without(allowed, e.hiddenSocket)
	if len(visible) == 0 {
		return nil, hiddenSocketError(allowed[0])
	}
	if p.Host == "" || p.Host == HostName() || e.o.Settings.Local {
		return visible, nil
	}
	reachable := without(visible, isLoopback)
	if len(reachable) == 0 {
		return nil, errs.Invalid("it tells others to reach it at %s, which is every machine's own: set DMLC_PS_ROOT_URI there to a scheduler address that all machines reach, or DMLC_NODE_HOST to its own", visible[0])
	}
	return reachable, nil
}

func without(addrs []string, drop func(addr string) bool) []string {
	return slices.DeleteFunc(slices.Clone(addrs), drop)
}

// allows reports whether STEPVAN_VAN lets this node use addresses of a scheme.
func (e *Endpoint) allows(scheme string) bool {
	switch e.o.Settings.Van {
	case config.VanAuto:
		return true
	case config.VanTCP:
		return scheme == "tcp" || scheme == "unix" && e.o.Settings.Local
	}
	return e.o.Settings.Carries(config.Van(scheme))
}

// hiddenSocket finds Unix sockets that this process does not see, or may not connect to: those of another machine,
// container or user. With DMLC_LOCAL=1 there is nothing else, and the other side may only have to start.
func (e *Endpoint) hiddenSocket(addr string) bool {
	return link.Scheme(addr) == "unix" && !e.o.Settings.Local && !shm.Listening(strings.TrimPrefix(addr, "unix://"))
}

// hiddenSocketError is the error of a peer that has nothing but Unix sockets which this process does not reach.
func hiddenSocketError(addr string) error {
	return errs.Invalid("its only address is %s, a socket that this process does not see or may not connect to. It was started with DMLC_LOCAL=1 on another machine, in another container, or by another user: set DMLC_LOCAL=0 there, or start both where they share the socket's directory", addr)
}

// isLoopback finds addresses that lead every machine to itself.
func isLoopback(addr string) bool {
	host, _, _ := net.SplitHostPort(strings.TrimPrefix(addr, "tcp://"))
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// noCommonVan is the error of two nodes whose settings have no van in common.
func (e *Endpoint) noCommonVan(p postoffice.Peer) error {
	own := string(e.o.Settings.Van)
	return &stepvan.ConfigError{Key: vanName, Value: own,
		Reason: "it offers " + strings.Join(schemes(p.Addresses), ", ") + " only: set STEPVAN_VAN=auto or " + own + " there, or auto here"}
}

// unreachable says why no address led to p, where the settings allow no TCP and no other van can be used. Other
// errors explain themselves.
func (e *Endpoint) unreachable(p postoffice.Peer, addrs []string, err error) error {
	var none *link.UnreachableError
	found := schemes(addrs)
	if slices.ContainsFunc(found, func(s string) bool { return s != "shm" && s != "rdma" }) || !errors.As(err, &none) {
		return err
	}
	own, where := e.o.Settings.Van, "on both"
	if own == config.VanAuto {
		own, where = config.Van(strings.Join(found, "+")), "at "+p.Name()
	}
	var why []string
	for _, v := range e.extra.allowed() {
		if own == v.name || own == config.VanShmRDMA {
			why = append(why, v.cannot+" ("+v.why(none.Passed)+")")
		}
	}
	return &stepvan.ConfigError{Key: vanName, Value: string(own), Reason: strings.Join(why, ", ") + ": set STEPVAN_VAN=auto " + where}
}

// schemes lists the kinds of some addresses, each once, in order.
func schemes(addrs []string) []string {
	var out []string
	for _, a := range addrs {
		if s := link.Scheme(a); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// HostName is the name of this machine for messages: "" where it has none.
func HostName() string {
	name, _ := os.Hostname()
	return name
}
