package ps

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/shm"
)

// dial opens the session with one server.
func (m *member) dial(ctx context.Context, p Peer) (*link.Session, error) {
	fail := func(err error) (*link.Session, error) {
		return nil, &stepvan.OpError{Op: "connect " + m.office.Self().String(), Peer: p.String(), Err: err}
	}
	ways, err := m.ways(p)
	if err != nil {
		return fail(err)
	}
	s, err := m.introduce(ctx, ways)
	if err != nil {
		return fail(m.wayless(p, ways, err))
	}
	id := s.Peer()
	if id.Node != p.ID || id.Incarnation != p.Incarnation {
		_ = s.Close("expected another node here") // it ends with the link in any case
		return fail(errs.Invalid("%q answers at %s: two nodes share the address: check DMLC_NODE_HOST and DMLC_PORT there", id.Name, s.Address()))
	}
	return s, nil
}

const (
	// mostIntroductions is how often a worker introduces itself to a server: one that many strangers visit may put it out
	// before it has read who comes. Between the tries there are pauses, of some 8 s together.
	mostIntroductions = 20
	firstPause        = 20 * time.Millisecond
	lastPause         = 500 * time.Millisecond
)

// introduce dials until a server that is alive has heard who dials.
func (m *member) introduce(ctx context.Context, ways []string) (s *link.Session, err error) {
	pause := firstPause
	for range mostIntroductions {
		s, err = m.link.Dial(ctx, ways)
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

// ways are those addresses of p that the settings of this node allow and that can lead there.
func (m *member) ways(p Peer) ([]string, error) {
	allowed := slices.DeleteFunc(slices.Clone(p.Addresses), func(a string) bool { return !m.allows(link.Scheme(a)) })
	if len(allowed) == 0 {
		return nil, m.disagreement(p)
	}
	seen := slices.DeleteFunc(slices.Clone(allowed), m.beyond)
	if len(seen) == 0 {
		return nil, outOfSight(allowed[0])
	}
	own := seen
	if p.Host != "" && p.Host != hostName() && !m.node.settings.Local {
		own = slices.DeleteFunc(slices.Clone(seen), toItself)
	}
	if len(own) == 0 {
		return nil, errs.Invalid("it tells others to reach it at %s, which is every machine's own: set DMLC_PS_ROOT_URI there to an address of the scheduler that all machines reach, or DMLC_NODE_HOST to its own", seen[0])
	}
	return own, nil
}

// allows reports whether STEPVAN_VAN lets this node use addresses of a scheme.
func (m *member) allows(scheme string) bool {
	switch m.node.settings.Van {
	case config.VanAuto:
		return true
	case config.VanTCP:
		return scheme == "tcp" || scheme == "unix" && m.node.settings.Local
	}
	return scheme == string(m.node.settings.Van)
}

// beyond finds Unix sockets that this process does not see, or may not connect to: those of another machine, container or user.
// Where there is nothing else the server may only have to come.
func (m *member) beyond(addr string) bool {
	return link.Scheme(addr) == "unix" && !m.node.settings.Local && !shm.Listening(strings.TrimPrefix(addr, "unix://"))
}

// outOfSight is the error of a peer that has nothing but Unix sockets, which this process does not reach.
func outOfSight(addr string) error {
	return errs.Invalid("it is to be reached at %s only, a socket that this process does not see or may not connect to: it was started with DMLC_LOCAL=1 on another machine, in another container, or by another user; set DMLC_LOCAL=0 there, or start both where they share the directory of the socket", addr)
}

// toItself finds addresses that lead every machine to itself.
func toItself(addr string) bool {
	host, _, _ := net.SplitHostPort(strings.TrimPrefix(addr, "tcp://"))
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// disagreement is the error of two nodes whose settings have no van in common.
func (m *member) disagreement(p Peer) error {
	own := string(m.node.settings.Van)
	return &stepvan.ConfigError{Key: vanName, Value: own,
		Reason: "it offers " + strings.Join(schemes(p.Addresses), ", ") + " only: set STEPVAN_VAN=auto or " + own + " there, or auto here"}
}

// wayless explains that none of the ways led to p. Only shared memory needs it: it is the one
// that a setting can demand where it cannot be.
func (m *member) wayless(p Peer, ways []string, err error) error {
	var none *link.UnreachableError
	if only := schemes(ways); len(only) != 1 || only[0] != "shm" || !errors.As(err, &none) {
		return err
	}
	why := briefly(none.Passed[0])
	if m.shm.absent != nil {
		why = plain(m.shm.absent)
	}
	where := "at " + p.Name()
	if m.node.settings.Van == config.VanShm {
		where = "on both"
	}
	return &stepvan.ConfigError{Key: vanName, Value: string(config.VanShm),
		Reason: "memory cannot be shared (" + why + "): set STEPVAN_VAN=auto " + where}
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
