package shmvan

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
)

// patience is after how long a test gives up.
const patience = 20 * time.Second

// party is a van that a test drives.
type party struct {
	t    testing.TB
	v    *shmVan
	room []byte // where payload goes
}

// Place implements van.Placer.
func (p *party) Place(_ van.Endpoint, h *wire.Header, _ []byte, dst [][]byte) ([][]byte, error) {
	return append(dst, p.room[:h.Payload]), nil
}

func newParty(t testing.TB, o Options) *party {
	p := &party{t: t, room: make([]byte, 16<<20)}
	o.Placer = p
	if o.Dir == "" {
		o.Dir = testDir()
	}
	v, err := New(o)
	require.NoError(t, err)
	p.v = v.(*shmVan)
	t.Cleanup(func() { require.NoError(t, v.Close()) })
	return p
}

func (p *party) listen() string {
	addr, err := p.v.Listen("")
	require.NoError(p.t, err)
	return addr
}

func (p *party) dial(addr string) *endpoint {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ep, err := p.v.Dial(ctx, addr)
	require.NoError(p.t, err)
	return bare(ep)
}

func bare(ep van.Endpoint) *endpoint {
	if g, ok := ep.(granter); ok {
		return g.endpoint
	}
	return ep.(*endpoint)
}

// until polls until an event of the kind comes, and returns it.
func (p *party) until(k van.EventKind) van.Event {
	p.t.Helper()
	var found van.Event
	p.eventually("an event", func() bool {
		var ev [1]van.Event
		if p.v.Poll(ev[:], true) == 1 && ev[0].Kind == k {
			found = ev[0]
			return true
		}
		return false
	})
	return found
}

// eventually repeats f until it is true.
func (p *party) eventually(what string, f func() bool) {
	p.t.Helper()
	for began := time.Now(); time.Since(began) < patience; {
		for range 1000 {
			if f() {
				return
			}
		}
	}
	require.FailNow(p.t, "waited too long for "+what)
}

// pair connects two vans.
func pair(t testing.TB, o Options) (a, b *party, x, y *endpoint) {
	a, b = newParty(t, o), newParty(t, o)
	x = a.dial(b.listen())
	y = bare(b.until(van.EventAccepted).Endpoint)
	return a, b, x, y
}

// message has a payload in segments.
func message(op van.OpID, payload ...[]byte) *van.Message {
	h := wire.Header{Kind: wire.KindData, Sequence: uint64(op)}
	for _, p := range payload {
		h.Payload += uint64(len(p))
	}
	h.Total = h.Payload
	head := make([]byte, wire.HeaderSize)
	h.Encode(head, nil)
	return &van.Message{Op: op, Head: head, Payload: payload}
}

// shared allocates memory that peers can map.
func shared(t testing.TB, n int) []byte {
	r, err := memory().Alloc(n)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r.Bytes()
}

// rights of the tests
const everything = van.RightRead | van.RightWrite

var _ Files = (*tensor.Allocator)(nil)

// count is how many entries a directory of /proc has.
func count(t testing.TB, dir string) int {
	l, err := os.ReadDir(dir)
	require.NoError(t, err)
	return len(l)
}
