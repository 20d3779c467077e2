package rdma

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// lie sends a slot of the test's choice over a rail, with the number that is due.
func (r *rail) lie(p prefix, body []byte) {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	i := r.queue.takeBuffer()
	n := copy(r.queue.buffer(i)[prefixBytes:], body)
	if p.isRecord() {
		p.number = r.credit.records.take()
	} else {
		r.credit.messages.take()
	}
	r.queue.addSlot(i, &p, n, false)
	r.queue.post()
}

// A peer that lies about what went over which rail loses its connection.
func TestHostileRails(t *testing.T) {
	if rdma(t).iWARP() {
		return // it has one path
	}
	loss := func(rail, messages, records int) prefix {
		return prefix{kind: kindRecord, flags: flagLoss, head: uint32(rail), payload: uint64(messages) | uint64(records)<<32}
	}
	message := func(r *rail, number uint32) {
		r.lie(prefix{kind: kindMessage, number: number, head: wire.HeaderSize}, headOf(9, 0))
	}
	for name, a := range map[string]struct {
		do   func(d *duo, r *rail)
		want string
	}{
		"the loss of a rail that is not there": {func(_ *duo, r *rail) { r.lie(loss(7, 0, 0), nil) }, "rail 7 is shut, and was not open"},
		"the loss of the rail itself":          {func(_ *duo, r *rail) { r.lie(loss(0, 0, 0), nil) }, "rail 0 is shut, and was not open"},
		"more messages than were sent":         {func(_ *duo, r *rail) { r.lie(loss(1, 1000, 1), nil) }, "1000 messages are said to have come over rail 1"},
		"more records than were sent":          {func(_ *duo, r *rail) { r.lie(loss(1, 0, 50), nil) }, "50 records are said to have come over rail 1"},
		"fewer messages than before": {func(d *duo, r *rail) {
			d.stream(1, 200, func(int) {})
			r.lie(loss(1, 0, 0), nil)
		}, "0 messages are said to have come over rail 1"},
		"a number far ahead": {func(_ *duo, r *rail) { message(r, 5000) }, "message slot 5000 (want one of 256 from 1 on, once)"},
		"a number that was taken": {func(d *duo, r *rail) {
			d.stream(0, 3, func(int) {})
			message(r, 2)
		}, "message slot 2 (want one of 256 from 4 on, once)"},
		"a number twice": {func(_ *duo, r *rail) {
			message(r, 2)
			message(r, 2)
		}, "message slot 2 (want one of 256 from 1 on, once)"},
		"a part with bytes": {func(_ *duo, r *rail) {
			r.lie(prefix{kind: kindStripe, number: 1}, []byte{1})
		}, "1 bytes in a slot that follows a part"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDuo(t, Options{Paths: PathOptions{Count: 2, ReturnTime: never}})
			d.ready(2)
			a.do(d, d.ends[0].rails.all()[0])
			require.ErrorContains(t, d.event(1, van.EventLost).Err, a.want)
			d.event(1, van.EventDetached)
		})
	}
}

// A peer that does not say what has come over a lost rail is lost itself.
func TestSilenceAboutALostRail(t *testing.T) {
	if rdma(t).iWARP() {
		return // it has one path
	}
	d := newDuo(t, Options{PendingTime: 300 * time.Millisecond, Paths: PathOptions{Count: 2, ReturnTime: never}})
	d.ready(2)
	require.NoError(t, d.ends[1].rails.all()[0].conn.qp.Fail())
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		for _, ev := range d.events[:d.vans[1].Poll(d.events[:], false)] {
			if ev.Kind == van.EventLost {
				require.ErrorContains(t, ev.Err, "does not say what has come over rail 0")
				return
			}
		}
	}
	t.Fatal("nothing happened")
}

// Further rails are only for connections that are there, and for paths that have none.
func TestRailsOfNoConnection(t *testing.T) {
	if rdma(t).iWARP() {
		return // it has one path
	}
	s := newSite(t, Options{Paths: PathOptions{Count: 2}})
	known := s.good.(*endpoint).token
	of := s.v.members.all(func(r *rail) bool { return r.e.token == known })[0].e
	require.Eventually(t, func() bool {
		s.v.poller.takeCompletions()
		return of.rails.count((*rail).usable) == 2
	}, patience, time.Millisecond)
	for name, g := range map[string]greeting{
		"another connection": {path: 1, paths: 2, token: known + 1<<attemptBits},
		"another number":     {path: 1, paths: 3, token: known},
		"a path twice":       {path: 1, paths: 2, token: known},
		"a path once more":   {path: 1, paths: 2, token: known + 7},
		"no token":           {path: 1, paths: 2},
		"too many":           {path: 1, paths: maxPaths + 1, token: known},
		"beyond the end":     {path: 2, paths: 2, token: known},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := s.peer.newDialing(g, nil)
			require.NoError(t, err)
			defer d.close()
			a, err := parseAddress(s.addr)
			require.NoError(t, err)
			to, err := a.lookup(t.Context())
			require.NoError(t, err)
			require.ErrorContains(t, d.connect(route{s.peer.opt.Source, to}, s.addr), "it does not understand this program")
			s.unharmed()
		})
	}
}

// Peers that nobody knows have no more further rails than there may be such peers.
func TestRailsOfVisitorsAreBounded(t *testing.T) {
	m := rdma(t)
	if m.iWARP() {
		return // it has one path
	}
	tell, heard := changes()
	o := Options{Pending: 3, Source: m.addr[0], Paths: PathOptions{Count: 3, ReturnTime: never, Changed: tell}}
	listens, dials := newVan(t, o), newVan(t, o)
	addr, err := listens.Listen(m.addr[1].String() + ":0")
	require.NoError(t, err)
	a, err := parseAddress(addr)
	require.NoError(t, err)
	attempt := func() *endpoint {
		e, err := dials.attempt(t.Context(), a, addr)
		require.NoError(t, err)
		return e
	}
	stands := func(e *endpoint) {
		require.Eventually(t, func() bool { return len(e.rails.all()) == 3 }, patience, time.Millisecond)
	}
	first := attempt()
	stands(first)
	attempt()
	require.ErrorContains(t, (<-heard).Err, "too many unknown peers")
	known := listens.members.all(func(r *rail) bool { return r.e.token == first.token })[0].e
	known.Settle()
	stands(attempt())
}

// Windows serve one path, so a side with windows refuses more.
func TestPathsAndWindows(t *testing.T) {
	m := rdma(t)
	if m.iWARP() {
		_, err := New(Options{Placer: refuseAll{}, Paths: PathOptions{Count: 2}})
		require.ErrorContains(t, err, "iWARP, which takes one path")
		return
	}
	_, err := New(Options{Placer: refuseAll{}, Windows: true, Paths: PathOptions{Count: 2}})
	require.ErrorContains(t, err, "memory windows serve one queue pair each (got 2, want 1)")
	_, err = New(Options{Placer: refuseAll{}, Paths: PathOptions{Count: 9}})
	require.ErrorContains(t, err, "Options.Paths")
	listens, dials := newVan(t, Options{Windows: true}), newVan(t, Options{Source: m.addr[0], Paths: PathOptions{Count: 2}})
	addr, err := listens.Listen(m.addr[1].String() + ":0")
	require.NoError(t, err)
	a, err := parseAddress(addr)
	require.NoError(t, err)
	_, err = dials.attempt(t.Context(), a, addr)
	require.ErrorContains(t, err, "it takes one path")
}
