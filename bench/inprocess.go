package bench

import (
	"context"
	"errors"
	"net"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/ps"
)

// runInProcess runs a measurement with all nodes in this process.
func runInProcess(ctx context.Context, o *Options) (*Report, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer o.interrupt(cancel)()
	nodes, err := ps.StartAll(ctx, o.nodeSettings(), ps.WithNetwork(ps.NewNetwork(ps.NetworkOptions{})), ps.WithLogger(zerolog.Nop()))
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	c, copying := newConductor(o), newCopyLimit(o.spec())
	ended := make(chan error, len(nodes))
	scheduler, members := nodes[0], nodes[1:]
	go func() { ended <- scheduler.Stop(ctx) }()
	var ours []*line
	for _, n := range members {
		here, there := net.Pipe()
		m := &member{node: n, line: newLine(there), copying: copying}
		go func() { ended <- m.run(ctx) }()
		ours = append(ours, newLine(here))
	}
	r, err := conductPipes(c, ours)
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

func conductPipes(c *conductor, lines []*line) (*Report, error) {
	defer c.close()
	for _, l := range lines {
		if err := c.introduce(l); err != nil {
			return nil, err
		}
	}
	return c.conduct()
}

// nodeSettings lists those of the scheduler, the servers and the workers.
func (o *Options) nodeSettings() []ps.Settings {
	base := ps.DefaultSettings()
	base.NumWorker, base.NumServer, base.RootURI = o.Workers, o.Servers, "127.0.0.1"
	base.Van, base.Batch, base.Progress = config.VanMem, config.BatchAny, config.Progress(o.Progress)
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

// causeOf prefers why ctx was ended to what came of it.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
