package bench

import (
	"context"
	"errors"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/launch"
	"github.com/stepvan/stepvan/ps"
)

// runInside runs all nodes in this process. path is the coordinator's socket.
func (o *Options) runInside(ctx context.Context, path string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case s := <-o.Console.Signals: // ends the run with the same error as one of processes
			number, _ := s.(unix.Signal)
			cancel(&launch.Interrupted{Signal: number})
		case <-ctx.Done():
		}
	}()
	nodes, err := ps.StartAll(ctx, o.clusterSettings(), ps.WithNetwork(ps.NewNetwork()), ps.WithLogger(zerolog.Nop()))
	if err != nil {
		return preferCause(ctx, err)
	}
	ended := make(chan error, len(nodes))
	go func() { ended <- nodes[0].Stop(ctx) }() // the scheduler
	for _, n := range nodes[1:] {
		go func() { ended <- runNode(ctx, n, path) }()
	}
	for range nodes {
		if e := <-ended; e != nil {
			err = errors.Join(err, e)
			cancel(e)
		}
	}
	for _, n := range nodes {
		_ = n.Stop(ctx) // after an error, when ctx has ended
	}
	return preferCause(ctx, err)
}

// clusterSettings lists the settings of the scheduler, the servers and the workers.
func (o *Options) clusterSettings() (all []ps.Settings) {
	base := ps.DefaultSettings()
	base.NumWorker, base.NumServer, base.RootURI = o.Workers, o.Servers, "127.0.0.1"
	base.Batch, base.Progress = config.BatchAny, o.progressSetting()
	base.HeartbeatTimeout = heartbeatTimeout
	base.Van, base.Local = o.vanSetting(), o.Van == Unix
	type count struct {
		role  ps.Role
		count int
	}
	roles := []count{{ps.RoleScheduler, 1}, {ps.RoleServer, o.Servers}, {ps.RoleWorker, o.Workers}}
	if o.traits().alike {
		base.NumWorker, base.NumServer, base.NumPeer = 0, 0, o.Workers+o.Servers
		roles = []count{{ps.RoleScheduler, 1}, {ps.RolePeer, base.NumPeer}}
	}
	for _, nodes := range roles {
		for i := range nodes.count {
			base.Role, base.NodeRank = nodes.role, i
			all = append(all, base)
		}
	}
	return all
}

// progressSetting is the value of STEPVAN_PROGRESS. Workers of batch spin: the server would need a
// system call to wake each that sleeps.
func (o *Options) progressSetting() config.Progress {
	if o.Workload == Batch && o.Progress == progressAuto && !o.inOneProcess() {
		return config.Progress(progressSpin)
	}
	return config.Progress(o.Progress)
}

// vanSetting is the value of STEPVAN_VAN. Unix sockets are tcp with DMLC_LOCAL.
func (o *Options) vanSetting() config.Van {
	switch o.Van {
	case Mem:
		return config.VanMem
	case Shm:
		return config.VanShm
	case RDMA:
		return config.VanRDMA
	}
	return config.VanTCP
}

// preferCause returns the cause of the end of ctx, if it has ended, rather than an error.
func preferCause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
