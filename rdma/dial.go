package rdma

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/verbs"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/parts"
)

// resolvePatience is how long the kernel looks for the way to an address.
const resolvePatience = 2 * time.Second

var _ van.Prober = (*rdmaVan)(nil)

// Probe implements van.Prober. It knows only whether addr is one for this van.
func (v *rdmaVan) Probe(addr string) error {
	_, err := parseAddress(addr)
	return err
}

// Dial implements van.Van. Poll may report events of the endpoint before Dial has returned, so a caller could miss
// its EventLost. Such a caller finds out from the first Send, which then fails.
func (v *rdmaVan) Dial(ctx context.Context, text string) (van.Endpoint, error) {
	e, err := v.dial(ctx, text)
	if err != nil {
		return nil, &stepvan.OpError{Op: "dial", Van: vanName, Peer: text, Err: err}
	}
	return e, nil
}

func (v *rdmaVan) dial(ctx context.Context, text string) (*endpoint, error) {
	a, err := parseAddress(text)
	if err != nil {
		return nil, err
	}
	if !v.members.beginCall() {
		return nil, stepvan.ErrClosed
	}
	defer v.members.calls.Done()
	retry := parts.Retry{MayPass: mayAnswerLater, First: 2 * time.Millisecond, Last: 250 * time.Millisecond}
	return parts.Dial(ctx, v.ctx, retry, func(ctx context.Context) (*endpoint, error) { return v.attempt(ctx, a, text) })
}

// mayAnswerLater reports whether the same address may answer later.
func mayAnswerLater(err error) bool {
	var dns *net.DNSError
	var failed *verbs.ConnectionError
	switch {
	case errors.As(err, &dns), isVersion(err), isProtocol(err), errors.Is(err, stepvan.ErrInvalid), errors.Is(err, stepvan.ErrNotSupported):
		return false
	case errors.As(err, &failed):
		return failed.Kind != verbs.AddressError || failed.Status != -int(syscall.ENODEV)
	}
	return true
}

// attempt connects the first path once. The others follow behind the back of the caller.
func (v *rdmaVan) attempt(ctx context.Context, a address, text string) (*endpoint, error) {
	to, err := a.lookup(ctx)
	if err != nil {
		return nil, err
	}
	own := greeting{paths: v.opt.paths()}
	for own.paths > 1 && own.token == 0 {
		own.token = uint64(newGrantID())
		own.token = own.connection()
	}
	d, err := v.connectRail(ctx, route{v.opt.Source, to}, text, own, nil)
	if err != nil {
		return nil, err
	}
	e := d.rail.e
	e.routes = v.routes(to, d.ports)
	for path := 1; path < len(e.routes); path++ {
		c := &connecting{e: e, path: path}
		time.AfterFunc(0, c.try)
	}
	return e, nil
}

// route is from where to where a path goes.
type route struct {
	from netip.Addr // the zero value leaves it to the route
	to   netip.AddrPort
}

// routes pairs the own ports with those of the peer, and has as many paths for each pair as the options say.
func (v *rdmaVan) routes(to netip.AddrPort, peer []netip.AddrPort) (list []route) {
	pairs := min(max(1, len(v.opt.Paths.Ports)), max(1, len(peer)))
	for i := range v.opt.Paths.Count * pairs {
		w := route{v.opt.Source, to}
		if at := i / v.opt.Paths.Count; at > 0 { // a bond chooses its ports by the numbers of paths (rail.takeHello)
			w = route{v.opt.Paths.Ports[at], peer[at]}
		}
		list = append(list, w)
	}
	return list
}

// connectRail connects one path: the first of a connection, or a further one of e.
func (v *rdmaVan) connectRail(ctx context.Context, w route, text string, own greeting, e *endpoint) (*dialing, error) {
	d, err := v.newDialing(own, e)
	if err != nil {
		return nil, err
	}
	defer d.close()
	defer context.AfterFunc(ctx, d.events.interrupt)()
	if err := d.connect(w, text); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	if e == nil {
		d.rail.sayHello() // that of a further rail has gone
	}
	return d, nil
}

// dialing is an attempt to connect, with an event channel of its own until the connection stands.
type dialing struct {
	v        *rdmaVan
	channel  *verbs.EventChannel
	events   *watcher
	id       *verbs.ID
	conn     *connection
	own      greeting
	endpoint *endpoint        // that the path belongs to; nil for the first
	rail     *rail            // once it stands
	ports    []netip.AddrPort // of the peer
}

func (v *rdmaVan) newDialing(own greeting, e *endpoint) (d *dialing, err error) {
	d = &dialing{v: v, own: own, endpoint: e}
	if d.channel, err = v.library.NewEventChannel(); err != nil {
		return nil, errs.Descriptors(err)
	}
	if d.events, err = newWatcher(d.channel.FD()); err == nil {
		d.id, err = d.channel.NewID()
	}
	if err != nil {
		d.close()
		return nil, errs.Descriptors(err)
	}
	return d, nil
}

// close frees what the rail has not taken over.
func (d *dialing) close() {
	if d.rail == nil {
		if d.conn != nil {
			d.conn.close(d.v)
		}
		if d.id != nil {
			_ = d.id.Close()
		}
	}
	if d.events != nil {
		d.events.close()
	}
	_ = d.channel.Close()
}

// connect goes through the steps of rdma_cm.
func (d *dialing) connect(w route, text string) error {
	if err := d.resolve(w); err != nil {
		return err
	}
	number := d.v.members.nextNumber()
	answer, err := d.request(number, d.own.encode())
	if err != nil {
		return err
	}
	return d.stand(number, text, answer)
}

// resolve finds the way to the peer, and so the device.
func (d *dialing) resolve(w route) error {
	v := d.v
	if v.opt.TrafficClass > 0 {
		if err := d.id.SetTypeOfService(uint8(v.opt.TrafficClass)); err != nil {
			return err
		}
	}
	_ = d.id.SetAckTimeout(uint8(v.opt.AckTimeout)) // some devices have one of their own
	from := netip.AddrPortFrom(w.from, 0)
	if _, err := d.do(verbs.AddressResolved, d.id.Resolve(from, w.to, resolvePatience)); err != nil {
		return err
	}
	_, err := d.do(verbs.RouteResolved, d.id.ResolveRoute(resolvePatience))
	return err
}

// request makes the queue pair and asks the peer for the connection. It returns the private data of the answer.
func (d *dialing) request(number uint32, private []byte) (answer []byte, err error) {
	if d.conn, err = d.v.newConnection(d.id, number, d.own.paths); err != nil {
		return nil, err
	}
	p := d.v.opt.parameters()
	p.Private = private
	ev, err := d.do(verbs.Established, d.id.Connect(p))
	return ev.Parameters.Private, err
}

// do waits for the event of a call that has returned err.
func (d *dialing) do(want verbs.ConnectionEventKind, err error) (ev verbs.ConnectionEvent, _ error) {
	if err != nil {
		return ev, err
	}
	var ok bool
	werr := d.events.wait(func() bool {
		ev, ok, err = d.channel.Next()
		return ok || err != nil
	})
	switch {
	case werr != nil:
		return ev, werr
	case err != nil:
		return ev, err
	}
	if err := ev.Err(); err != nil {
		var failed *verbs.ConnectionError
		if errors.As(err, &failed) && failed.Kind == verbs.Rejected {
			return ev, refusalOf(failed)
		}
		return ev, err
	}
	if ev.Kind != want {
		return ev, fmt.Errorf("connect: %w: the event is %q (want %q)", stepvan.ErrPeerLost, ev.Kind, want)
	}
	return ev, nil
}

// stand makes the endpoint of a connection that the peer has accepted.
func (d *dialing) stand(number uint32, text string, answer []byte) error {
	var g greeting
	var h hello
	rest, err := g.decode(answer)
	if err == nil {
		d.ports, err = h.decodeAnswer(rest)
	}
	if err != nil {
		return err
	}
	if g.path != d.own.path || g.paths != d.own.paths || g.token != d.own.token {
		return errs.Protocol("private data", 6, "path %d of %d (want %d of %d)", g.path, g.paths, d.own.path, d.own.paths)
	}
	r, err := d.newRail(number, text, h)
	if err != nil {
		return err
	}
	v := d.v
	v.manager.add(r)
	if err := d.id.Migrate(v.manager.channel); err != nil {
		v.manager.remove(d.id)
		return err
	}
	if d.endpoint == nil {
		d.rail = r // the manager may have ended it already, so only the undertaker may free it
		if err := v.members.join(r); err != nil {
			_ = r.e.Close()
			return err
		}
		return nil
	}
	if err = v.members.join(r); err == nil {
		err = d.endpoint.addRail(r)
	}
	if r.loss.listed.Load() {
		d.rail = r // the undertaker frees it
	} else {
		v.manager.dismiss(r)
	}
	return err
}

// newRail makes the rail that the peer has accepted with a hello, and for the first path the endpoint.
func (d *dialing) newRail(number uint32, text string, h hello) (r *rail, err error) {
	e := d.endpoint
	if e == nil {
		e = d.v.newEndpoint(d.conn, number, text, &d.own)
		e.rails.dialled = true
		e.introduced.Store(true)
		r = e.rails.first()
	} else {
		r = newRail(e, d.conn, number, &d.own)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return r, r.takeHello(h)
}
