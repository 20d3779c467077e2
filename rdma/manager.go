package rdma

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/verbs"
	"github.com/stepvan/stepvan/van/parts"
)

// manager takes the events of rdma_cm for the connections that stand and those that come, on a goroutine of its own:
// peers can connect and leave while nobody polls.
type manager struct {
	v       *rdmaVan
	channel *verbs.EventChannel
	events  *watcher
	running sync.WaitGroup

	mu        sync.Mutex
	listeners []*verbs.ID
	rails     map[*verbs.ID]*rail
	ended     bool
}

func (m *manager) start() (err error) {
	m.rails = map[*verbs.ID]*rail{}
	if m.channel, err = m.v.library.NewEventChannel(); err != nil {
		return err
	}
	if m.events, err = newWatcher(m.channel.FD()); err != nil {
		return err
	}
	m.running.Go(m.run)
	return nil
}

func (m *manager) run() {
	_ = m.events.wait(func() bool {
		for {
			e, ok, err := m.channel.Next()
			switch {
			case err != nil:
				m.failAll(lossOf(fmt.Errorf("rdma_cm reports no more events: %w", err)))
				return true
			case !ok:
				return false
			}
			m.take(&e)
		}
	})
}

// failAll ends all connections, whose ends would no longer be noticed.
func (m *manager) failAll(err error) {
	m.mu.Lock()
	list := slices.Collect(maps.Values(m.rails))
	m.mu.Unlock()
	for _, r := range list {
		r.fail("receive", err)
	}
}

// stopListening closes the listeners. The connections stay.
func (m *manager) stopListening() {
	m.mu.Lock()
	list := m.listeners
	m.listeners, m.ended = nil, true
	m.mu.Unlock()
	for _, id := range list {
		_ = id.Close()
	}
}

// stop ends the goroutine.
func (m *manager) stop() {
	m.events.close()
	m.running.Wait()
}

func (m *manager) free() {
	if m.events != nil {
		m.stop()
	}
	if m.channel != nil {
		_ = m.channel.Close()
	}
}

// add has the manager pass on the events of a connection.
func (m *manager) add(r *rail) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rails[r.conn.id] = r
}

func (m *manager) remove(id *verbs.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.rails, id)
}

func (m *manager) find(id *verbs.ID) *rail {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rails[id]
}

// take handles an event.
func (m *manager) take(ev *verbs.ConnectionEvent) {
	if ev.Kind == verbs.ConnectRequest {
		m.accept(ev)
		return
	}
	r := m.find(ev.ID)
	if r == nil {
		return
	}
	switch err := ev.Err(); {
	case ev.Kind == verbs.Disconnected:
		m.v.poller.takeCompletions() // one in error says more
		r.fail("receive", parts.ErrClosedByPeer)
	case ev.Kind == verbs.DeviceRemoved:
		r.fail("receive", lossOf(fmt.Errorf("%s: the device was removed: look at the log of the kernel", r.conn.device.name())))
	case err != nil:
		r.fail("receive", lossOf(err))
	}
}

// accept takes a peer, or refuses it with a reason.
func (m *manager) accept(ev *verbs.ConnectionEvent) {
	v := m.v
	err := m.receivePeer(ev)
	if err == nil {
		return
	}
	own := greeting{paths: 1}
	peer := ev.ID.Peer().String()
	_ = ev.ID.Reject(append(own.encode(), reasonOf(err)))
	_ = ev.ID.Close()
	if v.opt.Starved != nil && !isPeersFault(err) && v.ctx.Err() == nil {
		v.opt.Starved(&stepvan.OpError{Op: "accept", Van: vanName, Peer: peer, Err: err})
	}
}

// receivePeer makes the endpoint of a peer that asks for a connection, and accepts it.
func (m *manager) receivePeer(ev *verbs.ConnectionEvent) error {
	v := m.v
	var g greeting
	rest, err := g.decode(ev.Parameters.Private)
	if err == nil {
		err = onlyZeros(rest)
	}
	if err != nil {
		return err
	}
	if v.onePath && g.paths > 1 {
		return errPaths
	}
	if g.isFirst() && !v.visitors.makeRoom() {
		return errCrowded
	}
	number := v.members.nextNumber()
	c, err := v.newConnection(ev.ID, number, g.paths)
	if err != nil {
		return err
	}
	r, err := m.admit(ev, c, number, &g)
	if err != nil {
		c.close(v)
		return err
	}
	h := c.hello()
	p := v.opt.parameters()
	p.Private = h.appendTo(g.encode())
	if g.paths > 1 && g.isFirst() {
		p.Private = m.appendPorts(p.Private, ev.ID.Local())
	}
	if err := ev.ID.Accept(p); err != nil {
		r.fail("accept", err) // the undertaker frees it
	}
	return nil
}

// admit makes the rail of a peer that connects: the first one of an endpoint, or a further one.
func (m *manager) admit(ev *verbs.ConnectionEvent, c *connection, number uint32, g *greeting) (*rail, error) {
	v := m.v
	if !g.isFirst() {
		return m.admitRail(c, number, g)
	}
	e := v.newEndpoint(c, number, ev.ID.Peer().String(), g)
	e.unannounced, e.since = true, time.Now()
	r := e.rails.first()
	if err := v.members.join(r); err != nil {
		return nil, err
	}
	m.add(r)
	v.visitors.add(e)
	return r, nil
}

// admitRail adds a rail to the endpoint that its token names.
func (m *manager) admitRail(c *connection, number uint32, g *greeting) (*rail, error) {
	of := m.v.members.all(func(r *rail) bool {
		return r.e.several() && !r.e.rails.dialled && r.e.token == g.connection() && r.e.paths == g.paths
	})
	if len(of) == 0 {
		return nil, errs.Protocol("private data", 8, "there is no connection %#x of %d paths", g.token, g.paths)
	}
	if !m.v.visitors.hasRoomFor(of[0].e) {
		return nil, errCrowded
	}
	r := newRail(of[0].e, c, number, g)
	if err := m.v.members.join(r); err != nil {
		return nil, err
	}
	m.add(r)
	err := of[0].e.addRail(r)
	if !r.loss.listed.Load() {
		m.dismiss(r)
		return nil, err
	}
	time.AfterFunc(m.v.opt.PendingTime, func() { m.v.visitors.expireRail(r) })
	return r, nil
}

// dismiss has nothing find a rail that was not listed, so that its memory may go.
func (m *manager) dismiss(r *rail) {
	v := m.v
	m.remove(r.conn.id)
	v.members.forget(r)
	v.poller.lock() // a completion may have found it
	defer v.polling.Store(false)
	clear(v.poller.last[:])
}

// parameters of all connections. Retries beyond 6 are for ever with some devices. A receiver that is not ready is a
// mistake, and not repeated.
func (o *Options) parameters() verbs.ConnectionParameters {
	return verbs.ConnectionParameters{ReadsIn: 4, ReadsOut: 4, Retries: uint8(o.Retries), NotReadyRetries: 0}
}

// The reason of a refusal follows the greeting.
const (
	reasonOther   = 0
	reasonCrowded = 1
	reasonSpeech  = 2 // what the peer said
	reasonSystem  = 3
	reasonPaths   = 4
)

func reasonOf(err error) byte {
	switch {
	case errors.Is(err, errCrowded):
		return reasonCrowded
	case errors.Is(err, errPaths):
		return reasonPaths
	case isPeersFault(err):
		return reasonSpeech
	}
	return reasonSystem
}

// refusalOf is the error of a peer that has refused the connection.
func refusalOf(refused *verbs.ConnectionError) error {
	var g greeting
	rest, err := g.decode(refused.Private)
	switch {
	case err != nil && isVersion(err):
		return err
	case err != nil || len(rest) == 0:
		return refused
	}
	why := []string{
		"for no reason that it says", "since too many unknown peers connect to it", "since it does not understand this program", "since its system lacks what a connection needs: see its log",
		"since it takes one path, and this side wants several (Options.Paths): it has memory windows, or iWARP"}
	if int(rest[0]) >= len(why) {
		return refused
	}
	return fmt.Errorf("%w: the peer refuses, %s", refused, why[rest[0]])
}

func isPeersFault(err error) bool {
	return errors.Is(err, errCrowded) || isVersion(err) || isProtocol(err) || errors.Is(err, errPaths)
}

var errPaths = errors.New("memory windows and iWARP serve one path")
