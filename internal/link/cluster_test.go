package link_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/pairtest"
)

// bound is the limit of every wait of these tests.
const bound = pairtest.WaitLimit

// echo is a Handler that keeps what arrives and wakes the goroutine that waits for it.
type echo struct {
	link.BaseHandler
	mu      sync.Mutex
	node    *link.Transport
	got     []*link.Inbound
	lost    []error
	aborted int
	arrived progress.Event
	// +checklocks:mu
	deliver func(*link.Inbound) // instead of keeping
	// +checklocks:mu
	place  func(*link.Inbound, [][]byte) ([][]byte, error)
	opened chan *link.Session
	onLost func(error)
}

func newEcho(n *link.Transport) *echo { return &echo{node: n, opened: make(chan *link.Session, 64)} }

func (h *echo) Opened(s *link.Session) error {
	select {
	case h.opened <- s:
	default: // nobody is interested
	}
	return nil
}

func (h *echo) Place(m *link.Inbound, dst [][]byte) ([][]byte, error) {
	h.mu.Lock()
	place := h.place
	h.mu.Unlock()
	if place != nil {
		return place(m, dst)
	}
	return dst, nil
}

// Receive keeps m, with copies of what is valid only now, or gives it to h.deliver, which releases it.
func (h *echo) Receive(m *link.Inbound) (kept bool) {
	h.mu.Lock()
	deliver := h.deliver
	if deliver == nil {
		m.Meta, m.Payload = slices.Clone(m.Meta), slices.Clone(m.Payload)
		h.got = append(h.got, m)
	}
	h.mu.Unlock()
	if deliver != nil {
		deliver(m)
	} else {
		h.node.Engine().Set(&h.arrived)
	}
	return true
}

func (h *echo) Abort(*link.Inbound, error) { h.mu.Lock(); h.aborted++; h.mu.Unlock() }

func (h *echo) Lost(_ *link.Session, err error) {
	h.mu.Lock()
	h.lost = append(h.lost, err)
	onLost := h.onLost
	h.mu.Unlock()
	if onLost != nil {
		onLost(err)
	}
	h.node.Engine().Set(&h.arrived)
}

// await waits until cond holds. It calls cond with the handler's lock held.
func (h *echo) await(t testing.TB, cond func() bool) {
	t.Helper()
	ctx := pairtest.Context(t)
	for {
		h.arrived.Reset()
		h.mu.Lock()
		ok := cond()
		h.mu.Unlock()
		if ok {
			return
		}
		require.NoError(t, h.node.Engine().Wait(ctx, &h.arrived), "condition not reached")
	}
}

func (h *echo) use(place func(*link.Inbound, [][]byte) ([][]byte, error), deliver func(*link.Inbound)) {
	h.mu.Lock()
	h.place, h.deliver = place, deliver
	h.mu.Unlock()
}

func (h *echo) take(t testing.TB) *link.Inbound {
	t.Helper()
	h.await(t, func() bool { return len(h.got) > 0 })
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.got[0]
	h.got = h.got[1:]
	return m
}

// signal is a Completer to wait for.
type signal struct {
	node *link.Transport
	ev   progress.Event
	err  error
}

func (s *signal) Done(_ *link.Outbound, err error) { s.err = err; s.node.Engine().Set(&s.ev) }

func (s *signal) wait(t testing.TB) error {
	t.Helper()
	require.NoError(t, s.node.Engine().Wait(pairtest.Context(t), &s.ev), "message was never done")
	return s.err
}

func unixKind(dir string) pairtest.Van {
	k := pairtest.TCP()
	k.Name = "unix"
	var n atomic.Int32
	k.Addr = func(name string) string { return fmt.Sprintf("unix://%s/%s%d", dir, name, n.Add(1)) }
	return k
}

func newNode(t testing.TB, k pairtest.Van, name string, edit func(*link.Options)) *link.Transport {
	t.Helper()
	return pairtest.NewInstance(t, pairtest.Options{Van: k, Link: edit}, name, 0).Transport
}

// pair is two nodes with a session between them.
type pair struct {
	a, b   *link.Transport
	ha, hb [link.Channels]*echo
	sa, sb *link.Session
}

func newPair(t testing.TB, k pairtest.Van, edit func(*link.Options)) *pair {
	t.Helper()
	p := &pair{a: newNode(t, k, "a", edit), b: newNode(t, k, "b", edit)}
	for _, c := range []int{int(link.ChannelControl), int(link.ChannelRequest), int(link.ChannelBulk)} {
		p.ha[c], p.hb[c] = newEcho(p.a), newEcho(p.b)
		p.a.Handle(uint16ch(c), p.ha[c])
		p.b.Handle(uint16ch(c), p.hb[c])
	}
	bound, err := p.b.Listen(k.Addr("b"))
	require.NoError(t, err)
	p.sa, err = p.a.Dial(pairtest.Context(t), bound)
	require.NoError(t, err)
	select {
	case p.sb = <-p.hb[link.ChannelRequest].opened:
	case <-pairtest.Context(t).Done():
		t.Fatal("the listener never saw the session")
	}
	return p
}

func pattern(n int, seed byte) []byte {
	const period = 1 << 16
	b := make([]byte, n)
	for i := range min(n, period) {
		b[i] = byte(i*7+i>>8) + seed
	}
	for done := period; done < n; done *= 2 {
		copy(b[done:], b[:done])
	}
	return b
}

func describe(i int) string { return fmt.Sprintf("message %d", i) }
