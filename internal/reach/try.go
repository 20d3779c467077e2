package reach

import (
	"context"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/postoffice"
	"github.com/stepvan/stepvan/tensor"
)

// TryPair connects a server and a worker with settings s within this process, for a moment. It tells what would carry
// tensors between nodes of this machine and user, and why. Role, sizes and addresses of s do not matter. TryPair leaves
// nothing open. It returns the errors of a start.
func TryPair(ctx context.Context, s config.Settings) (van, reason string, err error) {
	s.Role, s.RootURI, s.NodeHost, s.Interface, s.Port = stepvan.RoleJoint, "127.0.0.1", "", "", 0
	if err := refused(&s, false, nil); err != nil {
		return "", "", err
	}
	server, end, err := openToTry(&s, stepvan.RoleServer)
	if err != nil {
		return "", "", err
	}
	defer end()
	worker, end, err := openToTry(&s, stepvan.RoleWorker)
	if err != nil {
		return "", "", err
	}
	defer end()
	own, err := server.Listen(ctx)
	if err != nil {
		return "", "", err
	}
	p := postoffice.Peer{Addresses: own, Host: HostName()}
	addrs, err := worker.usable(p)
	if err != nil {
		return "", "", err
	}
	session, err := worker.Link.Dial(ctx, addrs)
	if err != nil {
		return "", "", worker.unreachable(p, addrs, err)
	}
	van, reason = worker.Explain(session)
	return van, reason, nil
}

// TryScheduler connects with the scheduler of s for a moment, and returns nil when it is one. It registers nothing
// there. The error is [stepvan.ErrRemote] when a node answers that is not a scheduler.
func TryScheduler(ctx context.Context, s config.Settings) error {
	s.Van = config.VanTCP // the van to the scheduler, and no other
	worker, end, err := openToTry(&s, stepvan.RoleWorker)
	if err != nil {
		return err
	}
	defer end()
	session, err := worker.Link.Dial(ctx, worker.Scheduler())
	if err != nil {
		return err
	}
	if session.Peer().ID != postoffice.SchedulerID {
		return errs.Invalid("the node of stepvan that answers at %s is not a scheduler", session.Address())
	}
	return session.Close("it was a look whether the scheduler is there")
}

// openToTry opens an endpoint that admits all peers and logs nothing. end closes it.
func openToTry(s *config.Settings, role stepvan.Role) (e *Endpoint, end func(), err error) {
	memory, err := tensor.NewAllocator(tensor.Options{Name: "stepvan try", HugePages: HugePages(s)})
	if err != nil {
		return nil, nil, err
	}
	e, err = Open(Options{
		Settings: s, Role: role, Memory: memory, Starved: func(error) {}, Log: zerolog.Nop(),
		Link: link.Options{Admit: func(link.Identity) error { return nil }},
	})
	if err != nil {
		_ = memory.Close()
		return nil, nil, err
	}
	return e, func() {
		e.Close("it was a try")
		_ = memory.Close()
	}, nil
}
