package reach

import (
	"context"
	"slices"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/shm"
)

// Listen has the endpoint listen for instances that dial this one, and returns the addresses, best first.
func (e *Endpoint) Listen(ctx context.Context) ([]string, error) {
	near, err := e.extra.listen(&e.extra.shm, func() ([]string, error) { return listenInSocketDir(e.Link, "shm://") })
	if err != nil {
		return nil, err
	}
	far, err := e.extra.listen(&e.extra.rdma, e.listenRDMA)
	if err != nil {
		return nil, err
	}
	bound := slices.Concat(near, e.listenUnixBeside(), far)
	switch e.o.Settings.Van {
	case config.VanShm, config.VanRDMA, config.VanShmRDMA:
		return bound, nil
	}
	more, err := e.base.listenData(ctx, e.Link)
	return append(bound, more...), err
}

// listenUnixBeside also listens on a Unix socket, for instances of this machine with which no memory can be shared: a
// container may forbid memory files. They need to see this user's directory. There is no such socket where the settings
// allow only TCP, where there is no such directory, or where its name is too long.
func (e *Endpoint) listenUnixBeside() []string {
	if _, remote := e.base.(*tcpVan); !remote || e.o.Settings.Van != config.VanAuto {
		return nil
	}
	_, err := SocketDir()
	var bound []string
	if err == nil {
		bound, err = listenUnix(e.Link, e.o.Settings.RootPort)
	}
	if err != nil {
		e.o.Log.Debug().Err(err).Msg("no Unix socket for instances of this machine")
	}
	return bound
}

// listenInSocketDir listens for peers of this machine, in the directory of their sockets. Killed processes may have
// left sockets there.
func listenInSocketDir(t *link.Transport, addr string) ([]string, error) {
	shm.Sweep(shm.SocketDir())
	defer shm.HoldSweep(shm.SocketDir())()
	return t.Listen(addr)
}
