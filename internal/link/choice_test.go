package link

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/memvan"
)

// picky is memvan under another name. It decides which addresses are within reach.
type picky struct {
	van.Van
	name  string
	probe func(addr string) error
	dial  func(ctx context.Context) error // before the real one
}

func (p *picky) Caps() van.Caps {
	c := p.Van.Caps()
	c.Name = p.name
	return c
}

func (p *picky) Probe(addr string) error {
	if p.probe == nil {
		return nil
	}
	return p.probe(addr)
}

func (p *picky) Dial(ctx context.Context, addr string) (van.Endpoint, error) {
	if p.dial != nil {
		if err := p.dial(ctx); err != nil {
			return nil, err
		}
	}
	return p.Van.Dial(ctx, addr)
}

const testBound = 20 * time.Second

// choosy makes a node with a van of each name, each on a network of its own.
func choosy(t *testing.T, nets map[string]*memvan.Network, edit map[string]*picky, names ...string) *Transport {
	t.Helper()
	mem, err := tensor.NewAllocator(tensor.Options{Name: t.Name()})
	require.NoError(t, err)
	o := Options{Memory: mem, Log: zerolog.Nop()}
	for _, name := range names {
		o.Vans = append(o.Vans, func(p van.Placer, wake func()) (van.Van, error) {
			v, err := memvan.New(nets[name], memvan.Options{Placer: p, Wake: wake})
			if err != nil {
				return nil, err
			}
			out := &picky{}
			if e := edit[name]; e != nil {
				*out = *e
			}
			out.Van, out.name = v, name
			return out, nil
		})
	}
	n, err := NewTransport(o)
	require.NoError(t, err)
	n.dialer.attempt = 20 * time.Millisecond
	n.SetIdentity(Identity{Name: "node", Incarnation: 1})
	t.Cleanup(func() {
		require.NoError(t, n.Close())
		require.NoError(t, mem.Close())
	})
	return n
}

func TestDialTakesTheFirstWayThereIs(t *testing.T) {
	refused := errors.New("connection refused")
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, c := range map[string]struct {
		offer  []string // vans of the listener, in its order
		have   []string // vans of the dialer
		edit   map[string]*picky
		want   string   // van
		passed []string // "van: a part of the reason"
		err    string   // a part of the error instead
	}{
		"the listener's order counts": {offer: []string{"a", "b"}, have: []string{"b", "a"}, want: "a"},
		"what is not here":            {offer: []string{"a", "b"}, have: []string{"b"}, want: "b", passed: []string{"a: needs the a van"}},
		"out of reach": {
			offer: []string{"a", "b"}, have: []string{"a", "b"}, want: "b", passed: []string{"a: other machine"},
			edit: map[string]*picky{"a": {probe: func(string) error { return errors.New("other machine") }}},
		},
		"what follows is not asked for": {
			offer: []string{"a", "b"}, have: []string{"a", "b"}, want: "a",
			edit: map[string]*picky{"b": {probe: func(string) error { return errors.New("other machine") }}},
		},
		"refused": {
			offer: []string{"a", "b"}, have: []string{"a", "b"}, want: "b", passed: []string{"a: connection refused"},
			edit: map[string]*picky{"a": {dial: func(context.Context) error { return refused }}},
		},
		"no answer": {
			offer: []string{"a", "b", "c"}, have: []string{"a", "b", "c"}, want: "c", passed: []string{"a: no connection within 20ms", "b: no connection within 20ms"},
			edit: map[string]*picky{"a": {dial: hang}, "b": {dial: hang}},
		},
		"one behind that is out of reach is no way": {
			offer: []string{"a", "b"}, have: []string{"a", "b"}, want: "a",
			edit: map[string]*picky{
				"a": {dial: func(ctx context.Context) error {
					if end, _ := ctx.Deadline(); time.Until(end) < testBound/2 {
						return errors.New("was given the time of an attempt only")
					}
					return nil
				}},
				"b": {probe: func(string) error { return refused }},
			},
		},
		"nothing": {
			offer: []string{"a", "b"}, have: []string{"a", "b"}, err: "a: other machine; b: connection refused",
			edit: map[string]*picky{
				"a": {probe: func(string) error { return errors.New("other machine") }},
				"b": {dial: func(context.Context) error { return refused }},
			},
		},
		"nothing but one": {
			offer: []string{"a"}, have: []string{"a"}, err: "connection refused",
			edit: map[string]*picky{"a": {dial: func(context.Context) error { return refused }}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			nets := map[string]*memvan.Network{}
			for _, n := range []string{"a", "b", "c"} {
				nets[n] = memvan.NewNetwork()
			}
			l := choosy(t, nets, nil, c.offer...)
			var addrs []string
			for _, n := range c.offer {
				bound, err := l.Listen(n + "://here")
				require.NoError(t, err)
				addrs = append(addrs, bound...)
			}
			d := choosy(t, nets, c.edit, c.have...)
			ctx, cancel := context.WithTimeout(t.Context(), testBound)
			defer cancel()
			s, err := d.Dial(ctx, addrs)
			if c.err != "" {
				require.Nil(t, s)
				require.ErrorIs(t, err, refused)
				require.ErrorContains(t, err, c.err)
				require.Empty(t, d.Sessions())
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, s.Van())
			require.Equal(t, c.want, Scheme(s.Dialled()))
			require.Equal(t, []*Session{s}, d.Sessions())
			require.Len(t, s.PassedOver(), len(c.passed))
			for i, p := range s.PassedOver() {
				require.Contains(t, Scheme(p.Address)+": "+p.Err.Error(), c.passed[i][:1]+": ")
				require.ErrorContains(t, p.Err, c.passed[i][3:])
			}
		})
	}
}

// Dial tries the last address again until the caller's context ends, and no longer.
func TestDialGivesUpWithTheCaller(t *testing.T) {
	net := memvan.NewNetwork()
	d := choosy(t, map[string]*memvan.Network{"a": net}, nil, "a")
	for _, addrs := range [][]string{{"a://nobody"}, {"a://nobody", "a://neither"}} {
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
		_, err := d.Dial(ctx, addrs)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
}

// A program that asks for debug lines sees each session begin and end, with its van and address.
func TestSessionsAreLogged(t *testing.T) {
	net := memvan.NewNetwork()
	nets := map[string]*memvan.Network{"a": net}
	l, d := choosy(t, nets, nil, "a"), choosy(t, nets, nil, "a")
	var lines lockedBuffer
	opened := make(chan *Session, 1)
	d.options.Log = zerolog.New(&lines).Level(zerolog.DebugLevel)
	d.options.Opened = func(s *Session) { opened <- s }
	_, err := l.Listen("a://here")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), testBound)
	defer cancel()
	s, err := d.Dial(ctx, []string{"a://here"})
	require.NoError(t, err)
	require.Same(t, s, <-opened)
	require.NoError(t, d.Close())
	text := lines.String()
	for _, w := range []string{"session opened", "session lost", `"van":"a"`, `"peer":"node (` + s.Address(), `"dialled":true`, `"reason":`} {
		require.Contains(t, text, w)
	}
}

// lockedBuffer may be written by the driver and read by the test.
type lockedBuffer struct {
	mu sync.Mutex
	// +checklocks:mu
	b bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Dial fails with ErrInvalid when no van of the node knows any of the addresses.
func TestDialNowhere(t *testing.T) {
	net := memvan.NewNetwork()
	d := choosy(t, map[string]*memvan.Network{"a": net}, nil, "a")
	for _, addrs := range [][]string{nil, {"here"}, {"b://here"}, {"b://here", "c://there"}} {
		_, err := d.Dial(t.Context(), addrs)
		require.ErrorIs(t, err, stepvan.ErrInvalid, "%v", addrs)
	}
}

// A transport does without a van whose maker returns nil. Without any van, NewTransport fails.
func TestVansThatAreNotHere(t *testing.T) {
	mem, err := tensor.NewAllocator(tensor.Options{Name: t.Name()})
	require.NoError(t, err)
	defer func() { require.NoError(t, mem.Close()) }()
	none := func(van.Placer, func()) (van.Van, error) { return nil, nil }
	_, err = NewTransport(Options{Vans: []VanMaker{none}, Memory: mem})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	net := memvan.NewNetwork()
	n, err := NewTransport(Options{Memory: mem, Vans: []VanMaker{none, func(p van.Placer, wake func()) (van.Van, error) {
		return memvan.New(net, memvan.Options{Placer: p, Wake: wake})
	}}})
	require.NoError(t, err)
	_, err = n.Listen("mem://x")
	require.NoError(t, err)
	require.NoError(t, n.Close())
}
