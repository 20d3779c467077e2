package tcpvan

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/sys"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// pending holds accepted connections that have not said yet what they are, or whose
// other rails are missing. Their number and time are bounded. Guarded by tcpVan.accepting.
type pending struct {
	v    *tcpVan
	list []*pendingConn // oldest first
}

// pendingConn is one of them.
type pendingConn struct {
	v     *tcpVan
	fd    int
	slot  int
	peer  string
	since time.Time
	buf   [preambleSize]byte
	n     int  // bytes in buf
	said  bool // hello is complete and waits for the other rails
	hello preamble
	done  bool // no longer pending
}

// admit takes over an accepted socket.
func (p *pending) admit(fd int, peer string) {
	v := p.v
	k := &pendingConn{v: v, fd: fd, peer: peer, since: time.Now()}
	v.mu.Lock()
	slot, err := v.set.add(fd, k, connMask)
	v.mu.Unlock()
	if err != nil {
		_ = unix.Close(fd)
		return
	}
	k.slot = slot
	p.list = append(p.list, k)
	if len(p.list) == 1 {
		v.expiry.set(v.opts.PendingTime)
	}
	k.read()
}

// expire refuses those that took too long.
func (p *pending) expire() {
	for len(p.list) > 0 {
		left := p.v.opts.PendingTime - time.Since(p.list[0].since)
		if left > 0 {
			p.v.expiry.set(left)
			return
		}
		p.list[0].refuse()
	}
}

// closeAll closes all of them.
func (p *pending) closeAll() {
	for len(p.list) > 0 {
		p.list[0].refuse()
	}
	p.v.expiry.stop()
}

// checkPending acts when the timer went off.
func (v *tcpVan) checkPending() {
	if v.expiry.take() {
		v.accepting.Lock()
		v.pending.expire()
		v.accepting.Unlock()
	}
}

// ready implements watched.
func (k *pendingConn) ready(mask uint32) {
	switch {
	case k.done:
	case !k.said:
		k.read()
	case mask&hangUp != 0:
		k.refuse() // without this rail the endpoint will never be
	}
}

// read takes what the connection says first, up to a whole preamble.
func (k *pendingConn) read() {
	for k.n < preambleSize {
		n, e := sys.Recv(k.fd, k.buf[k.n:], 0)
		switch {
		case e == sys.Again:
			return
		case e != 0 || n == 0:
			k.refuse() // gone without having been a peer
			return
		}
		k.n += n
		if b := k.buf[:k.n]; !startsWith(b, preambleMagic) && (k.n >= versionEnd || !startsWith(b, wire.Magic)) {
			k.promote(flawOf(b))
			return
		}
	}
	if err := k.hello.decode(k.buf[:]); err != nil {
		k.promote(err)
		return
	}
	k.said = true
	k.pair()
}

// refuse closes the connection.
func (k *pendingConn) refuse() {
	k.detach()
	_ = unix.Close(k.fd)
}

// detach ends k without closing its socket.
func (k *pendingConn) detach() {
	k.done = true
	p := &k.v.pending
	p.list = slices.DeleteFunc(p.list, func(o *pendingConn) bool { return o == k })
	k.v.mu.Lock()
	k.v.set.remove(k.slot, k.fd)
	k.v.mu.Unlock()
}

// promote makes an endpoint of one rail from a connection that did not open with a good preamble. The endpoint reads
// the bytes that came as its first ones. With a flaw it is lost as soon as it is announced, and gets no buffers.
func (k *pendingConn) promote(flaw error) {
	k.detach()
	ep := k.v.bareEndpoint([]int{k.fd}, maxThreshold, k.peer)
	if ep.rd.flaw = flaw; flaw == nil {
		ep.allocate()
		ep.rd.w = copy(ep.rd.buf, k.buf[:k.n])
		ep.rd.got = uint64(k.n)
	}
	k.v.welcome(ep, k.since)
}

// pair makes an endpoint when all rails of k are there.
func (k *pendingConn) pair() {
	fds := make([]int, k.hello.count)
	rails := make([]*pendingConn, k.hello.count)
	rails[k.hello.index] = k
	for _, o := range k.v.pending.list {
		if o == k || !o.said || o.hello.nonce != k.hello.nonce || k.hello.count == 1 {
			continue
		}
		if o.hello.count != k.hello.count || o.hello.threshold != k.hello.threshold || rails[o.hello.index] != nil {
			k.refuse() // contradicts a rail that was there before
			return
		}
		rails[o.hello.index] = o
	}
	for i, o := range rails {
		if o == nil {
			return
		}
		fds[i] = o.fd
	}
	for _, o := range rails {
		o.detach()
	}
	k.v.welcome(k.v.newEndpoint(fds, k.hello.threshold, k.peer), k.since)
}

// welcome makes an accepted connection one of the van's.
func (v *tcpVan) welcome(ep *endpoint, since time.Time) {
	ep.unannounced, ep.since = true, since
	if v.join(ep) != nil {
		return // the van is closed
	}
	v.poller.enqueue(ep)
	ep.visit = v.poller.visitors.PushBack(ep)
}

// announce reports an endpoint that was accepted, unless it has ended. It reads from the next Poll on.
func (ep *endpoint) announce() (more bool) {
	if ep.state.Load()&ended != 0 {
		ep.Settle()
		return false
	}
	if ep.v.poller.emit(van.Event{Kind: van.EventAccepted, Endpoint: ep}) {
		ep.unannounced = false
		for _, c := range ep.rails {
			c.readable = true
		}
	}
	return true
}
