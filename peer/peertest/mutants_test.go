package peertest

import (
	"context"
	"sync"
	"testing"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// mutation is one way to break what package peer promises. It wraps a peer that keeps its promises.
type mutation struct {
	name  string
	cases []string // each of which must find it
	wrap  func(Peer) Peer
}

var mutations = []mutation{
	{"wrong span", []string{"transfers", "strides", "plans", "replicas"}, func(p Peer) Peer {
		return &mutant{Peer: p, landed: func(v tensor.Strided) {
			if b := elements(v); len(b) > 8 {
				copy(b[8:], append([]byte(nil), b...)) // each element where the next one belongs
			}
		}}
	}},
	{"double write", []string{"transfers", "plans"}, func(p Peer) Peer {
		again := make(chan func(), 1000)
		return &mutant{Peer: p, landed: func(v tensor.Strided) {
			b := elements(v)
			kept := append([]byte(nil), b...)
			again <- func() { copy(b, kept) }
		}, met: func() {
			for len(again) > 0 {
				(<-again)()
			}
		}}
	}},
	{"lost fence", []string{"transfers", "plans"}, func(p Peer) Peer { return &mutant{Peer: p, early: true} }},
	{"early version", []string{"plans", "replicas"}, func(p Peer) Peer { return &mutant{Peer: p, premature: true} }},
	{"stale grant", []string{"windows"}, func(p Peer) Peer { return &mutant{Peer: p, keep: true} }},
	{"dropped death", []string{"death in a run", "death in a chain", "death beside transfers"}, func(p Peer) Peer { return &mutant{Peer: p, deaf: true} }},
	{"dropped refusal", []string{"mismatches"}, func(p Peer) Peer { return &mutant{Peer: p, agrees: true} }},
}

// elements are the bytes from the first element of a view to the last.
func elements(v tensor.Strided) []byte {
	m := v.Memory()
	return m.Bytes()
}

// mutant is a peer with a mutation.
type mutant struct {
	Peer
	landed    func(v tensor.Strided) // a destination has its elements
	met       func()                 // the program may use the destinations again
	early     bool                   // sends are over before they are
	premature bool                   // versions are served before they are whole
	keep      bool                   // windows stay open
	deaf      bool                   // a death is not reported
	agrees    bool                   // plans are made although the others refuse
}

// mutantHandle is the handle of an operation of a mutant.
type mutantHandle struct {
	Handle
	m    *mutant
	over func()
	once *sync.Once
	lies bool
}

func (h mutantHandle) Wait(ctx context.Context) error {
	if h.lies {
		return nil
	}
	err := h.Handle.Wait(ctx)
	if err == nil {
		h.once.Do(h.over)
	}
	if h.m.deaf && err != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

func (m *mutant) handle(h Handle, err error, lies bool, over func()) (Handle, error) {
	if err != nil && !m.deaf {
		return nil, err
	}
	lies = lies || err != nil
	return mutantHandle{Handle: h, m: m, over: over, once: new(sync.Once), lies: lies}, nil
}

func (m *mutant) afterLanding(v tensor.Strided) func() {
	return func() {
		if m.landed != nil {
			m.landed(v)
		}
	}
}

func (m *mutant) Send(v tensor.Strided, to stepvan.Rank, tag peer.Tag) (Handle, error) {
	h, err := m.Peer.Send(v, to, tag)
	return m.handle(h, err, m.early, func() {})
}

func (m *mutant) Recv(v tensor.Strided, from stepvan.Rank, tag peer.Tag) (Handle, error) {
	h, err := m.Peer.Recv(v, from, tag)
	return m.handle(h, err, false, m.afterLanding(v))
}

func (m *mutant) Expose(v tensor.Strided, o peer.WindowOptions) (Window, error) {
	w, err := m.Peer.Expose(v, o)
	if err != nil || !m.keep {
		return w, err
	}
	return mutantWindow{w}, nil
}

type mutantWindow struct{ Window }

// Close leaves the window open.
func (mutantWindow) Close(context.Context) error { return nil }

func (m *mutant) Plan(ctx context.Context, name string, sends, recvs []peer.Move) (Plan, error) {
	return m.PlanWith(ctx, name, sends, recvs, peer.PlanOptions{})
}

func (m *mutant) PlanWith(ctx context.Context, name string, sends, recvs []peer.Move, o peer.PlanOptions) (Plan, error) {
	pl, err := m.Peer.PlanWith(ctx, name, sends, recvs, o)
	if err != nil && m.agrees {
		return &mutantPlan{m: m}, nil
	}
	if err != nil {
		return nil, err
	}
	return &mutantPlan{Plan: pl, m: m, recvs: recvs}, nil
}

type mutantPlan struct {
	Plan
	m     *mutant
	recvs []peer.Move
	begun uint64
}

func (p *mutantPlan) Begin(version uint64) (Handle, error) {
	h, err := p.Plan.Begin(version)
	if err == nil {
		p.begun = version
	}
	return p.m.handle(h, err, p.m.early, func() {
		for _, move := range p.recvs {
			p.m.afterLanding(move.View)()
		}
	})
}

func (p *mutantPlan) Version() uint64 {
	if p.m.premature {
		return p.begun
	}
	return p.Plan.Version()
}

// meets has the mutant do what it has put off until its member has met the others.
func (m *mutant) meets() {
	if m.met != nil {
		m.met()
	}
}

func TestEveryMutationIsCaught(t *testing.T) {
	if pairtest.Race {
		t.Skip("some mutations race, and the detector would fail the test for it; it watches the cases elsewhere")
	}
	for _, x := range mutations {
		for _, c := range Cases() {
			for _, name := range x.cases {
				if c.Name == name {
					t.Run(x.name+"/"+name, func(t *testing.T) {
						found := checkMutant(c, x)
						if found == "" {
							t.Errorf("the case passes peers with the mutation: %s", x.name)
						}
						t.Log(found)
					})
				}
			}
		}
	}
}

// leaky runs a case whose members do not give everything back.
type leaky struct {
	testing.TB
	ends []func()
}

func (l *leaky) Name() string          { return "mutant" }
func (l *leaky) Helper()               {}
func (l *leaky) Cleanup(f func())      { l.ends = append(l.ends, f) }
func (l *leaky) Errorf(string, ...any) {}
func (l *leaky) FailNow()              {}

func checkMutant(c Case, x mutation) string {
	t := &leaky{}
	defer func() {
		for i := len(t.ends) - 1; i >= 0; i-- {
			t.ends[i]()
		}
	}()
	return Check(t, pairtest.OneSided(), c, x.wrap)
}
