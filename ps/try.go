package ps

import (
	"context"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/postoffice"
)

// TryPair connects a server and a worker with settings s within this process, for a moment, and tells
// what would carry tensors between nodes of this machine and user, and why. Role, sizes and
// addresses of s do not matter. Nothing is left open. An error is what Start would say.
func TryPair(ctx context.Context, s Settings) (Connection, error) {
	s.Role, s.RootURI, s.NodeHost, s.Interface, s.Port = RoleJoint, "127.0.0.1", "", "", 0
	s.LogLevel = config.LogOff
	o := collect(nil)
	if err := checkBuild(&s, &o); err != nil {
		return Connection{}, err
	}
	n, err := newNode(s, o)
	if err != nil {
		return Connection{}, err
	}
	defer n.close()
	for _, m := range n.members {
		if err := m.open(func(link.Identity) error { return nil }); err != nil {
			return Connection{}, err
		}
	}
	return n.members[0].try(ctx, n.members[1])
}

// TryScheduler connects with the scheduler of s for a moment, and returns nil when it is one. It registers
// nothing there. The error is ErrRemote when a node answers that is none.
func TryScheduler(ctx context.Context, s Settings) error {
	s.Role, s.LogLevel = RoleWorker, config.LogOff
	s.Van, s.BindCPUCore, s.Binding = config.VanTCP, false, config.BindingOff // the way to the scheduler, and no more
	n, err := newNode(s, collect(nil))
	if err != nil {
		return err
	}
	defer n.close()
	m := n.members[0]
	if err := m.open(func(link.Identity) error { return nil }); err != nil {
		return err
	}
	session, err := m.link.Dial(ctx, m.site.scheduler())
	if err != nil {
		return err
	}
	if session.Peer().ID != postoffice.SchedulerID {
		return errs.Invalid("a node of stepvan answers at %s that is no scheduler", session.Address())
	}
	return session.Close("it was a look whether the scheduler is there")
}

// try has a worker dial a server.
func (m *member) try(ctx context.Context, server *member) (Connection, error) {
	own, err := server.listen(ctx)
	if err != nil {
		return Connection{}, err
	}
	p := Peer{Addresses: own, Host: hostName()}
	ways, err := m.ways(p)
	if err != nil {
		return Connection{}, err
	}
	s, err := m.link.Dial(ctx, ways)
	if err != nil {
		return Connection{}, m.wayless(p, ways, err)
	}
	return m.connection(p, s), nil
}
