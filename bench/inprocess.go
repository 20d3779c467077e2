package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/launch"
	"github.com/stepvan/stepvan/ps"
)

// runInProcess runs a measurement with all nodes in this process.
func runInProcess(ctx context.Context, o *Options, t *turn) (*Report, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer o.interrupt(cancel)()
	nodes, err := ps.StartAll(ctx, o.clusterSettings(), ps.WithNetwork(ps.NewNetwork(ps.NetworkOptions{})), ps.WithLogger(zerolog.Nop()))
	if err != nil {
		return nil, preferCause(ctx, err)
	}
	c := newCoordinator(o, t)
	ended := make(chan error, len(nodes))
	scheduler, members := nodes[0], nodes[1:]
	go func() { ended <- scheduler.Stop(ctx) }()
	var ours []*controlConn
	for _, n := range members {
		here, there, pairErr := connPair()
		if pairErr != nil {
			err = pairErr
			ended <- nil
			continue
		}
		m := &nodeRunner{node: n, line: newControlConn(there)}
		go func() { ended <- m.run(ctx) }()
		ours = append(ours, newControlConn(here))
	}
	var r *Report
	if err == nil {
		r, err = coordinateConns(ctx, c, ours)
	}
	if err != nil {
		cancel(err)
	}
	for range nodes {
		err = errors.Join(err, <-ended)
	}
	for _, n := range nodes {
		_ = n.Stop(ctx) // after an error, when ctx has ended
	}
	if err != nil {
		return nil, preferCause(ctx, err)
	}
	return r, nil
}

// connPair makes both ends of a connection. Unlike net.Pipe it has a buffer: one side may write and
// end before the other reads, as between processes.
func connPair() (here, there net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socket pair: %w", err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "line")
		c, connErr := net.FileConn(f)
		f.Close()
		ends[i], err = c, errors.Join(err, connErr)
	}
	return ends[0], ends[1], err
}

func coordinateConns(ctx context.Context, c *coordinator, lines []*controlConn) (*Report, error) {
	defer c.close()
	for _, l := range lines {
		if err := c.registerNode(l); err != nil {
			return nil, err
		}
	}
	return c.run(ctx)
}

// clusterSettings lists the settings of the scheduler, the servers and the workers.
func (o *Options) clusterSettings() []ps.Settings {
	base := ps.DefaultSettings()
	base.NumWorker, base.NumServer, base.RootURI = o.Workers, o.Servers, "127.0.0.1"
	base.Batch, base.Progress = config.BatchAny, o.progressSetting()
	base.HeartbeatTimeout = heartbeatTimeout
	base.Van, base.Local = o.vanSetting(), o.Van == Unix
	all := []ps.Settings{base}
	all[0].Role = ps.RoleScheduler
	add := func(role ps.Role, count int) {
		for i := range count {
			s := base
			s.Role, s.NodeRank = role, i
			all = append(all, s)
		}
	}
	add(ps.RoleServer, o.Servers)
	add(ps.RoleWorker, o.Workers)
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
	}
	return config.VanTCP
}

// preferCause returns the cause of the end of ctx, if it has ended, rather than err.
func preferCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// interrupt cancels the run in this process at the first signal, with the same error as a run of
// processes, until release is called.
func (o *Options) interrupt(cancel context.CancelCauseFunc) (release func()) {
	over := make(chan struct{})
	go func() {
		select {
		case s := <-o.Signals:
			number, _ := s.(unix.Signal)
			cancel(&launch.Interrupted{Signal: number})
		case <-over:
		}
	}()
	return func() { close(over) }
}
