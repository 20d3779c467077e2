package rdma

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/verbs"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// site is a van under attack, with a good peer.
type site struct {
	t      testing.TB
	v      *rdmaVan
	addr   string
	opt    Options
	good   van.Endpoint // of a peer that keeps the rules
	peer   *rdmaVan
	events []van.Event // that were not looked at
}

func newSite(t testing.TB, o Options) *site {
	t.Helper()
	m := rdma(t)
	o.Source = m.addr[0]
	s := &site{t: t, v: newVan(t, o), peer: newVan(t, o), opt: o}
	var err error
	s.addr, err = s.v.Listen(m.addr[1].String() + ":0")
	require.NoError(t, err)
	s.good, err = s.peer.Dial(t.Context(), s.addr)
	require.NoError(t, err)
	s.next(van.EventAccepted)
	return s
}

func newVan(t testing.TB, o Options) *rdmaVan {
	t.Helper()
	o.Placer = refuseAll{}
	v, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, v.Close()) })
	return v.(*rdmaVan)
}

// attack connects as a peer that keeps no rules. Without a hello the site knows nothing of it.
func (s *site) attack(hello bool) (*raw, van.Endpoint) {
	s.t.Helper()
	r, err := dialRaw(s.opt, s.addr, hello)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = r.Close() })
	if !hello {
		return r, nil
	}
	return r, s.next(van.EventAccepted).Endpoint
}

const patience = 30 * time.Second

// next waits for an event of the kind. Others wait for their turn, except messages, which are released.
func (s *site) next(kind van.EventKind) van.Event {
	s.t.Helper()
	var batch [16]van.Event
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		for i, ev := range s.events {
			if ev.Kind == kind {
				s.events = slices.Delete(s.events, i, i+1)
				return ev
			}
		}
		n := s.v.Poll(batch[:], true)
		for _, ev := range batch[:n] {
			if ev.Kind == van.EventMessage && kind != van.EventMessage {
				ev.Delivery.Release()
				continue
			}
			s.events = append(s.events, ev)
		}
		s.peer.Poll(batch[:], true)
	}
	require.Fail(s.t, "nothing came", "an event of kind %d", kind)
	return van.Event{}
}

// unharmed shows that the good peer is still served.
func (s *site) unharmed() {
	s.t.Helper()
	m := &van.Message{Op: 1, Head: headOf(5, 0)}
	require.NoError(s.t, s.good.Send(m))
	ev := s.next(van.EventMessage)
	require.EqualValues(s.t, 5, ev.Delivery.Header.Request)
	ev.Delivery.Release()
}

func headOf(request uint64, payload int) []byte {
	h := wire.Header{Kind: wire.KindData, Request: request, Payload: uint64(payload), Total: uint64(payload)}
	b := make([]byte, wire.HeaderSize)
	h.Encode(b, nil)
	return b
}

// slot sends a slot with a prefix of the attacker's choice.
func (r *raw) slot(p prefix, body ...byte) {
	b := make([]byte, prefixBytes, prefixBytes+len(body))
	p.encode(b)
	_ = r.post(append(b, body...))
}

// message is a slot with a whole message without payload.
func message(number uint32) (prefix, []byte) {
	return prefix{kind: kindMessage, number: number, head: wire.HeaderSize}, headOf(9, 0)
}

func ids(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }

// Each attack costs its own connection, with an error that says what the peer did.
func TestHostilePeers(t *testing.T) {
	grant := make([]byte, grantBytes)
	(&grant9).encode(grant)
	for name, a := range map[string]struct {
		do   func(r *raw)
		want string
	}{
		"longer than a slot":       {func(r *raw) { _ = r.post(make([]byte, 2*defaultSlotBytes)) }, "queue pair 0x"},
		"shorter than a prefix":    {func(r *raw) { _ = r.post(make([]byte, 7)) }, "slot at byte 0: too short"},
		"a kind that is not there": {func(r *raw) { r.slot(prefix{kind: 9, number: 1}) }, "kind 9"},
		"more messages than credit": {func(r *raw) {
			for i := range 19 {
				p, body := message(uint32(i + 1))
				r.slot(p, body...)
			}
		}, "message slot 17, and credit for 16"},
		"numbers that run backwards": {func(r *raw) {
			for range 2 {
				p, body := message(1)
				r.slot(p, body...)
			}
		}, "message slot 1 (want 2)"},
		"records that run backwards": {func(r *raw) { r.slot(prefix{kind: kindRecord, number: 1, flags: flagCredit}) }, "record 1 (want 2)"},
		"credit for what was not sent": {func(r *raw) {
			p, body := message(1)
			p.messages = 1000
			r.slot(p, body...)
		}, "1000 messages are said to be consumed (want at most 0)"},
		"records for what was not sent": {func(r *raw) {
			r.slot(prefix{kind: kindRecord, number: 2, flags: flagCredit, records: 7})
		}, "7 records are said to be consumed"},
		"a second hello":             {func(r *raw) { r.slot(prefix{kind: kindHello, number: 2}) }, "a second hello"},
		"a record without meaning":   {func(r *raw) { r.slot(prefix{kind: kindRecord, number: 2, flags: 0x80}) }, "flags 0x80"},
		"a part without a beginning": {func(r *raw) { r.slot(prefix{kind: kindPart, number: 1}, 1, 2, 3) }, "without a beginning"},
		"a message that is interrupted": {func(r *raw) {
			r.slot(prefix{kind: kindMessage, number: 1, head: 1000}, 1, 2, 3)
			p, body := message(2)
			r.slot(p, body...)
		}, "interrupted"},
		"an empty part": {func(r *raw) {
			r.slot(prefix{kind: kindMessage, number: 1, head: 1000}, 1, 2, 3)
			r.slot(prefix{kind: kindPart, number: 2})
		}, "an empty part"},
		"a head without end": {func(r *raw) { r.slot(prefix{kind: kindMessage, number: 1, head: 1 << 31}, 1) }, "head at byte 16"},
		"bytes behind the end": {func(r *raw) {
			p, body := message(1)
			r.slot(p, append(body, 1)...)
		}, "1 bytes behind the end"},
		"a payload that the head does not have": {func(r *raw) {
			p, body := message(1)
			p.payload = 100
			r.slot(p, body...)
		}, "length differs"},
		"more beside a written payload than it has": {func(r *raw) {
			p, body := message(1)
			p.flags, p.payload = flagWritten, 100
			r.slot(p, body...)
		}, "length differs"},
		"half a grant": {func(r *raw) {
			p, body := message(1)
			p.count = 7
			r.slot(p, body...)
		}, "7 grants in 128 bytes"},
		"a grant twice": {func(r *raw) {
			p, body := message(1)
			p.count = 2
			r.slot(p, slices.Concat(grant, grant, body)...)
		}, "ID 0x9 is taken"},
		"a grant around the end of memory": {func(r *raw) {
			p, body := message(1)
			p.count = 1
			wraps := slices.Clone(grant)
			binary.LittleEndian.PutUint64(wraps[8:], 1<<64-1)
			r.slot(p, slices.Concat(wraps, body)...)
		}, "grant at byte 16"},
		"the withdrawal of what was not granted": {func(r *raw) {
			r.slot(prefix{kind: kindRecord, number: 2, flags: flagWithdraw, count: 1}, ids(77)...)
		}, "grant 0x4d is withdrawn, and was not given"},
		"an answer to nothing": {func(r *raw) {
			r.slot(prefix{kind: kindRecord, number: 2, flags: flagAnswer, count: 1}, ids(77)...)
		}, "grant 0x4d is left alone, and was not withdrawn"},
		"a record that is too short": {func(r *raw) {
			r.slot(prefix{kind: kindRecord, number: 2, flags: flagWithdraw, count: 3}, ids(77)...)
		}, "3 grants in 8 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, Options{Credits: 1})
			r, e := s.attack(true)
			a.do(r)
			lost := s.next(van.EventLost)
			require.Equal(t, e, lost.Endpoint)
			require.ErrorContains(t, lost.Err, a.want)
			require.ErrorContains(t, lost.Err, e.Peer())
			s.next(van.EventDetached)
			s.unharmed()
		})
	}
}

var grant9 = grant{Grant: van.Grant{ID: 9, Length: 100, Rights: van.RightWrite}, address: 1 << 20}

// A peer that withdraws what it grants, and takes no answers, does not fill the memory of this side.
func TestGrantsWithoutEnd(t *testing.T) {
	s := newSite(t, Options{})
	r, e := s.attack(true)
	r.e.in.broken = true // it takes no answers
	const each = (defaultSlotBytes - prefixBytes - wire.HeaderSize) / grantBytes
	in := e.(*endpoint).rails.first()
	var events [16]van.Event
	poll := func(come func() bool) {
		require.Eventually(t, func() bool {
			for _, ev := range events[:s.v.Poll(events[:], true)] {
				if ev.Delivery != nil {
					ev.Delivery.Release()
				}
				if ev.Kind == van.EventLost {
					s.events = append(s.events, ev)
				}
			}
			return come() || len(s.events) > 0
		}, patience, time.Microsecond)
	}
	g := grant9
	for round := uint32(1); len(s.events) == 0 && round <= 2*maxGrants/each; round++ {
		var grants, withdrawn []byte
		for range each {
			g.ID++
			grants = append(grants, make([]byte, grantBytes)...)
			g.encode(grants[len(grants)-grantBytes:])
			withdrawn = append(withdrawn, ids(uint64(g.ID))...)
		}
		p, body := message(round)
		p.count = each
		r.slot(p, append(grants, body...)...)
		r.slot(prefix{kind: kindRecord, number: round + 1, flags: flagWithdraw, count: each}, withdrawn...)
		poll(func() bool { return in.records > round })
	}
	require.ErrorContains(t, s.next(van.EventLost).Err, "more than 65536 grants")
	s.unharmed()
}

// A peer may write anything to the word of credit. It is read when credit has run out.
func TestAWordOfCreditForWhatWasNotSent(t *testing.T) {
	s := newSite(t, Options{})
	r, e := s.attack(true)
	r.e.mu.Lock()
	r.e.rails.first().teller.messages.Store(1000)
	r.e.rails.first().addWord()
	r.e.rails.first().queue.post()
	r.e.mu.Unlock()
	for {
		if err := e.Send(&van.Message{Op: 1, Head: headOf(1, 0)}); err != nil {
			require.ErrorContains(t, err, "1000 messages are said to be consumed")
			break
		}
	}
	require.ErrorContains(t, s.next(van.EventLost).Err, "1000 messages are said to be consumed")
	s.unharmed()
}

// A key that this side never gave reaches nothing, and costs the connection.
func TestAGuessedKey(t *testing.T) {
	s := newSite(t, Options{})
	r, _ := s.attack(true)
	r.e.mu.Lock()
	r.e.rails.first().teller.key ^= 0x5a5a00
	r.e.rails.first().addWord()
	r.e.rails.first().queue.post()
	r.e.mu.Unlock()
	if rdma(t).iWARP() {
		s.next(van.EventLost)
		return
	}
	events := make([]van.Event, 4)
	require.Eventually(t, func() bool {
		n := r.van.Poll(events, true)
		return n > 0 && events[0].Kind == van.EventLost
	}, patience, time.Millisecond)
	require.ErrorContains(t, events[0].Err, "status 10")
	require.ErrorIs(t, events[0].Err, stepvan.ErrPeerLost)
	s.next(van.EventLost)
	s.unharmed()
}

func TestPrivateDataOfAnotherProgram(t *testing.T) {
	s := newSite(t, Options{})
	own := greeting{paths: 1}
	good := own.encode()
	for name, private := range map[string][]byte{
		"nothing":         nil,
		"another program": []byte("GET / HTTP/1.1\r\n\r\n"),
		"another version": patched(good, 4, 0xff),
		"another path":    patched(good, 6, 1),
		"too long":        append(slices.Clone(good), 1),
	} {
		t.Run(name, func(t *testing.T) {
			d, err := s.peer.newDialing(greeting{paths: 1}, nil)
			require.NoError(t, err)
			defer d.close()
			a, err := parseAddress(s.addr)
			require.NoError(t, err)
			to, err := a.lookup(t.Context())
			require.NoError(t, err)
			require.NoError(t, d.resolve(route{s.peer.opt.Source, to}))
			_, err = d.request(s.peer.members.nextNumber(), private)
			var refused *verbs.ConnectionError
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, "it does not understand this program")
			s.unharmed()
		})
	}
}

func patched(b []byte, at int, with byte) []byte {
	b = slices.Clone(b)
	b[at] = with
	return b
}

// A peer that says nothing is told of to nobody, and does not stay.
func TestSilenceAfterConnecting(t *testing.T) {
	s := newSite(t, Options{PendingTime: 50 * time.Millisecond})
	s.good.(*endpoint).Settle()
	r, _ := s.attack(false)
	lost := make(chan struct{})
	go func() {
		_, _ = r.Read(nil)
		close(lost)
	}()
	require.Eventually(t, func() bool {
		s.unharmed()
		select {
		case <-lost:
			return true
		default:
			return false
		}
	}, patience, 5*time.Millisecond)
	require.Empty(t, s.events)
}

// Beyond the bound the oldest of the unknown peers makes room, once it had its time. Settled ones stay.
func TestVisitorsAreBounded(t *testing.T) {
	s := newSite(t, Options{Pending: 2, PendingTime: 200 * time.Millisecond})
	settled := s.v.members.all(func(*rail) bool { return true })[0].e
	settled.Settle()
	for range 3 {
		require.Eventually(t, func() bool {
			r, err := dialRaw(s.opt, s.addr, true)
			if err != nil {
				require.ErrorContains(t, err, "too many unknown peers")
				return false
			}
			t.Cleanup(func() { _ = r.Close() })
			return true
		}, patience, 10*time.Millisecond)
	}
	lost := s.next(van.EventLost)
	require.ErrorIs(t, lost.Err, errCrowded)
	require.NotEqual(t, van.Endpoint(settled), lost.Endpoint)
	s.unharmed()
}

// A peer that connects and leaves again and again finds no room before its connections are destroyed.
func TestVisitorsCountUntilTheyAreDestroyed(t *testing.T) {
	s := newSite(t, Options{Pending: 2})
	s.v.members.all(func(*rail) bool { return true })[0].e.Settle()
	var ended []*endpoint
	for range 2 {
		_, e := s.attack(true)
		ended = append(ended, e.(*endpoint))
		e.(*endpoint).state.Or(failed) // the undertaker has not come yet
	}
	_, err := dialRaw(s.opt, s.addr, true)
	require.ErrorContains(t, err, "too many unknown peers")
	for _, e := range ended {
		s.v.undertaker.add(e)
	}
	require.Eventually(t, func() bool {
		r, err := dialRaw(s.opt, s.addr, true)
		if err == nil {
			t.Cleanup(func() { _ = r.Close() })
		}
		return err == nil
	}, patience, time.Millisecond)
}
