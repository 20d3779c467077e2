package ps

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/shm"
)

// Stop waits until every living node of the cluster has called it, and then leaves the cluster. The scheduler waits
// until all others have left. When ctx ends or STEPVAN_STOP_TIMEOUT passes, Stop leaves without the others, and the
// error names the nodes that have not stopped. When a loss has ended the work of the cluster, the error of a worker or
// server names the instance that died. The scheduler's Stop returns nil when every instance has left or is dead. Its
// log names the dead.
//
// From the call on, barriers and the operations of a worker return [stepvan.ErrClosed]. Requests in flight may still
// arrive, but their handles fail. Further calls of Stop wait for the first one and return nil, or the error of their
// ctx. Everything is closed when Stop returns.
//
// Other goroutines of a server may continue to serve until Stop returns. When none is in [Node.GetBatch] at the call,
// Stop answers the requests without pulls that the program has taken. When the program serves no request for a second,
// the server refuses the requests that wait. So no worker waits for a server that itself waits for that worker.
func (n *Node) Stop(ctx context.Context) error {
	if !n.life.beginStop() {
		select {
		case <-n.life.stopped.Done():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if t := n.settings.StopTimeout; t > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t)
		defer cancel()
	}
	var err error
	if n.life.broken.Load() == nil {
		for _, m := range n.members {
			m.sayGoodbye()
			if m.server != nil {
				m.server.BeginStop()
			}
		}
		err = n.leave(ctx)
	}
	if n.life.broken.Load() != nil {
		return n.stopBroken()
	}
	if errors.Is(err, stepvan.ErrPeerLost) {
		n.life.failed.set(err) // before others hear that this node has left
	}
	if err == nil {
		err = n.life.failure("stop")
	}
	err = errors.Join(err, n.exportTraces())
	n.close()
	n.life.finishStop()
	n.members[0].log.Info().Msgf("%s has stopped", n)
	return err
}

// Close ends the node at once, without [Node.Stop]. So the other nodes take this node for dead. When another goroutine
// is in Stop, Close waits for it. Everything is closed when Close returns. Further calls of Close and Stop return nil
// and have no effect.
func (n *Node) Close() error {
	if !n.life.beginStop() {
		<-n.life.stopped.Done()
		return nil
	}
	if n.life.broken.Load() != nil {
		return n.stopBroken()
	}
	_ = n.each(func(m *member) error { m.abort(); return nil })
	err := errors.Join(n.leaveAtOnce(), n.exportTraces())
	n.close()
	n.life.finishStop()
	n.members[0].log.Warn().Msgf("%s was closed without stop: the others take it for dead", n)
	return err
}

// abort breaks all connections, and then drops what waits. In the other order a server would refuse its requests, and
// the workers would not hear of a death.
func (m *member) abort() {
	_ = m.link.Abort() // always nil
	if m.worker != nil {
		_ = m.worker.Close()
	}
	if m.server != nil {
		_ = m.server.Close()
	}
	if m.peer != nil {
		_ = m.peer.Close() // the others see a death, and hear no farewell
	}
}

// stopBroken ends Stop of a node that a panic has ended. It waits only until everything is closed.
func (n *Node) stopBroken() error {
	<-n.life.closed.Done()
	n.life.finishStop()
	return n.life.failure("stop")
}

// sayGoodbye lets the servers of a worker know that no request follows.
func (m *member) sayGoodbye() {
	if m.worker == nil {
		return
	}
	_ = m.worker.Close() // refuses further requests
	reason := m.reason()
	for _, s := range m.sessions {
		_ = s.Close(reason) // one that is lost needs none
	}
}

// reason is what a worker tells its servers when it leaves: why the node has ended, or why one of the servers has gone.
// The program may have stopped because of that server, before the scheduler has reported the loss.
func (m *member) reason() string {
	cause := m.node.Err()
	for _, s := range m.sessions {
		if err := s.Err(); cause == nil && (errors.Is(err, stepvan.ErrPeerLost) || errors.Is(err, link.ErrLeft)) {
			cause = err
		}
	}
	return leaveReason(cause)
}

// leaveReason is what peers are told when a node leaves: the loss that made it, if any, with the name of the instance
// that was lost first. They must not take this node for the cause.
func leaveReason(loss error) string {
	if loss == nil {
		return "it has stopped"
	}
	name := link.FirstCause(loss)
	var of *stepvan.OpError
	if name == "" && errors.As(loss, &of) {
		name, _, _ = strings.Cut(of.Peer, " (") // where it is follows
	}
	if name == "" {
		return loss.Error()
	}
	return link.Because(name, loss.Error())
}

// leave waits for the cluster and leaves it.
func (n *Node) leave(ctx context.Context) error {
	return n.each(func(m *member) error {
		if m.cluster == nil { // the start failed before
			return nil
		}
		if m.peer != nil {
			m.peer.Flush(ctx)
		}
		return m.cluster.Stop(ctx)
	})
}

// leaveAtOnce leaves the cluster without the others.
func (n *Node) leaveAtOnce() error {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	return n.leave(gone)
}

// each calls f for every member at once, and joins the errors. One that fails does not hurry the other.
func (n *Node) each(f func(*member) error) error {
	results := make([]error, len(n.members))
	tasks := make([]func(context.Context) error, len(n.members))
	for i, m := range n.members {
		tasks[i] = func(context.Context) error {
			results[i] = f(m)
			return nil
		}
	}
	_ = n.inParallel(context.Background(), tasks...) // a panic has ended the node
	return errors.Join(results...)
}

// close ends everything, after the start failed or the cluster was left.
func (n *Node) close() { n.closing.Do(n.closeAll) }

func (n *Node) closeAll() {
	if n.storages != nil {
		n.storages.Close()
	}
	_ = n.each(func(m *member) error { m.close(); return nil })
	if slices.ContainsFunc(n.members, func(m *member) bool { return m.net != nil && m.net.UsesSocketDir() }) {
		shm.Sweep(shm.SocketDir()) // a process that was killed just before the start may still have been alive then
	}
	n.starvedLines.End()
	if err := n.memory.Close(); err != nil {
		n.members[0].log.Debug().Err(err).Msg("tensors of the program are still out; they stay usable")
	}
	if err := n.placed.release(); err != nil {
		n.members[0].log.Warn().Err(err).Msg("STEPMESH_BIND_CPU_CORE: threads stay bound")
	}
}

func (m *member) close() {
	if m.worker != nil {
		_ = m.worker.Close()
	}
	if m.server != nil {
		_ = m.server.Close()
	}
	if m.peer != nil {
		_ = m.peer.Close()
	}
	if m.net != nil {
		m.net.Close(leaveReason(m.node.Err()))
		m.telling.Wait()
	}
}

// abandon ends a node that did not start, or whose companions did not; the others are told why.
func (n *Node) abandon(why error) {
	n.life.beginStop()
	for _, m := range n.members {
		if m.link != nil && why != nil {
			m.link.Goodbye("it did not start: " + strings.TrimPrefix(why.Error(), "start: "))
		}
	}
	_ = n.leaveAtOnce() // the cause of the abandonment is what counts
	n.close()
	n.life.ended.set(nil)
}
