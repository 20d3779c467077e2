package stress

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/ps"
)

// lives are the clusters of the warm-up and of the proof.
func lives() (warm, proof int) {
	if *long {
		return 100, 1000
	}
	return 10, 40 / slowness
}

// Whole clusters, one after the other in one process: nodes start, connect, exchange and stop.
func TestLivesOfOneProcessStayFlatSoak(t *testing.T) {
	each(t, vans(), func(t *testing.T, van vanKind) {
		c := shape{workers: 1, servers: 1, work: work{Loads: []load{small}}, edit: brief}
		live := func(n int) {
			for range n {
				h := startLocalCluster(t, van, c)
				h.exchange(3)
				h.end()
			}
		}
		warm, proof := lives()
		live(warm)
		was, err := takeStock()
		require.NoError(t, err)
		before := steady(t)()
		live(proof)
		require.Empty(t, was.leaks())
		requireFlat(t, "the process", before, steady(t))
	})
}

// Workers run in one process, scheduler and servers in another. Both processes outlive the clusters.
func TestLivesOfProcessesStayFlatSoak(t *testing.T) {
	each(t, vansOfMachines(), func(t *testing.T, van vanKind) {
		c := shape{workers: 1, servers: 1, work: work{Loads: []load{small}}, edit: brief}
		dir := private(t)
		host := spawn(t, c.settings(van, ps.RoleServer, 0, 1), job{Program: "host", Work: c.work}, "TMPDIR="+dir)
		guest := spawn(t, c.settings(van, ps.RoleWorker, 0, 1), job{Program: "guest", Work: c.work}, "TMPDIR="+dir)
		live := func(n int) {
			for range n {
				host.tell(command{Do: doCycle})
				guest.tell(command{Do: doCycle, Port: host.await(evPort, nil).Count})
				require.Empty(t, guest.await(evRan, nil).Text)
				require.Empty(t, host.await(evRan, nil).Text)
			}
		}
		warm, proof := lives()
		live(warm)
		both := []*child{host, guest}
		before := []vitals{host.sample(), guest.sample()}
		live(proof)
		for i, p := range both {
			requireFlat(t, p.name, before[i], p.sample)
			p.tell(command{Do: doStop})
			require.Empty(t, p.end())
		}
		require.Empty(t, files(t, dir))
	})
}

// cycle runs one life per command until the stop command.
func (c *childProgram) cycle(live func(command) error) error {
	was, err := takeStock()
	if err != nil {
		return err
	}
	for cmd := range c.commands {
		switch cmd.Do {
		case doStop:
			c.report(event{Kind: evEnded, Leaks: was.leaks()})
			return nil
		case doSample:
			c.sample()
		case doCycle:
			text := ""
			if err := live(cmd); err != nil {
				text = err.Error()
			}
			c.report(event{Kind: evRan, Text: text})
		}
	}
	return nil
}

// host lives the lives of schedulers and servers.
func (c *childProgram) host(ctx context.Context) error {
	server, _, err := config.FromProcess()
	if err != nil {
		return err
	}
	scheduler := server
	scheduler.Role, scheduler.NodeRank, scheduler.RootPort, server.RootPort = ps.RoleScheduler, -1, 0, 0
	return c.cycle(func(command) error {
		nodes, err := ps.StartAll(ctx, []ps.Settings{scheduler, server}, ps.OnListen(c.listening))
		if err != nil {
			return err
		}
		a, err := newAnswerer(nodes[1], &c.job.Work, c.report)
		if err != nil {
			return err
		}
		if err := nodes[1].Barrier(ctx, ps.Servers|ps.Workers, true); err != nil {
			return err
		}
		over := make(chan struct{})
		a.start(ctx, func() { close(over) })
		<-over
		for _, n := range []*ps.Node{nodes[1], nodes[0]} {
			if err := n.Stop(ctx); err != nil {
				return err
			}
		}
		return a.close()
	})
}

// guest lives the lives of workers.
func (c *childProgram) guest(ctx context.Context) error {
	s, _, err := config.FromProcess()
	if err != nil {
		return err
	}
	return c.cycle(func(cmd command) error {
		s.RootPort = cmd.Port
		n, err := ps.Start(ctx, s)
		if err != nil {
			return err
		}
		events := make(chan event, 1)
		a, err := newAsker(n, &c.job.Work, func(e event) { events <- e })
		if err != nil {
			return err
		}
		if err := n.Barrier(ctx, ps.Servers|ps.Workers, true); err != nil {
			return err
		}
		working, rest := context.WithCancel(ctx)
		defer rest()
		a.start(working)
		a.do(command{Do: doRun, Count: 3})
		if e := <-events; e.Kind != evRan {
			return fmt.Errorf("%+v", e)
		}
		rest()
		if err := n.Stop(ctx); err != nil {
			return err
		}
		return a.close()
	})
}
