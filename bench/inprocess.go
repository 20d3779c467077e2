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
	"github.com/stepvan/stepvan/ps"
)

// runInProcess runs a measurement with all nodes in this process.
func runInProcess(ctx context.Context, o *Options, s *seat) (*Report, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer o.interrupt(cancel)()
	nodes, err := ps.StartAll(ctx, o.nodeSettings(), ps.WithNetwork(ps.NewNetwork(ps.NetworkOptions{})), ps.WithLogger(zerolog.Nop()))
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	c := newConductor(o, s)
	ended := make(chan error, len(nodes))
	scheduler, members := nodes[0], nodes[1:]
	go func() { ended <- scheduler.Stop(ctx) }()
	var ours []*line
	for _, n := range members {
		here, there, pairErr := linePair()
		if pairErr != nil {
			err = pairErr
			ended <- nil
			continue
		}
		m := &member{node: n, line: newLine(there)}
		go func() { ended <- m.run(ctx) }()
		ours = append(ours, newLine(here))
	}
	var r *Report
	if err == nil {
		r, err = conductLines(ctx, c, ours)
	}
	if err != nil {
		cancel(err)
	}
	for range nodes {
		err = errors.Join(err, <-ended)
	}
	for _, n := range nodes {
		_ = n.Stop(ctx) // those that an error has kept from it; ctx has ended then
	}
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	return r, nil
}

// linePair makes both ends of a line. Unlike net.Pipe it has a buffer: who writes may
// end before the other reads on, as with a line between processes.
func linePair() (here, there net.Conn, err error) {
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

func conductLines(ctx context.Context, c *conductor, lines []*line) (*Report, error) {
	defer c.close()
	for _, l := range lines {
		if err := c.introduce(l); err != nil {
			return nil, err
		}
	}
	return c.conduct(ctx)
}

// nodeSettings lists those of the scheduler, the servers and the workers.
func (o *Options) nodeSettings() []ps.Settings {
	base := ps.DefaultSettings()
	base.NumWorker, base.NumServer, base.RootURI = o.Workers, o.Servers, "127.0.0.1"
	base.Batch, base.Progress = config.BatchAny, o.waiting()
	base.HeartbeatTimeout = patience
	base.Van, base.Local = o.setting(), o.Van == Unix
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

// waiting is how the nodes wait, in the words of settings. Where workers of batch slept, it would cost the server a system call to
// wake each.
func (o *Options) waiting() config.Progress {
	if o.Workload == Batch && o.Progress == progressAuto && !o.inside() {
		return config.Progress(progressSpin)
	}
	return config.Progress(o.Progress)
}

// setting is the van in the words of settings. Unix sockets are tcp's on this machine.
func (o *Options) setting() config.Van {
	switch o.Van {
	case Mem:
		return config.VanMem
	case Shm:
		return config.VanShm
	}
	return config.VanTCP
}

// causeOf prefers why ctx was ended to what came of it.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
