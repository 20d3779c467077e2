package mutant

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// mutantVan is a van with hooks where a mutation may bite. Hooks are set before use.
type mutantVan struct {
	inner  van.Van
	placer van.Placer
	wake   func()

	hook sync.Mutex // held while a hook runs that keeps state: Poll, Send, Place and Release run beside each other

	mu       sync.Mutex
	known    map[van.Endpoint]*endpoint
	extra    []van.Event // to be reported besides what the inner van reports
	closes   int
	reopened chan struct{} // closed by the third Close

	granted     *granted   // by all vans of the factory
	withdrawals []van.OpID // that were accepted; guarded by hook

	count int // for mutations that bite now and then; guarded by hook

	onEvents func(events []van.Event) []van.Event // sees what Poll is about to return, may add and drop
	onPoll   func()                               // before the inner Poll
	onSend   func(*endpoint, *van.Message) error
	onPlace  func(placeRequest) ([][]byte, error)
	onClose  func(times int) error // instead of nil, after the inner Close
	onEnd    func(*endpoint)       // after Close of an endpoint
	onDial   func(error) error
	deaf     atomic.Bool           // never wakes
	onArm    func(armed bool) bool // sees what the inner Arm has returned
	withdraw func(*endpoint, van.GrantID, van.OpID) error
	onGrant  func(van.Grant)
	onMap    func(van.Viewer, mapRequest) (van.View, error)

	registers registrationHooks
}

// registrationHooks are where a mutation about registered memory may bite.
type registrationHooks struct {
	begin, end  func(mem []byte) error // instead of Register and Deregister of the inner van
	beforeGrant func(mem []byte)
	onGranted   func(*endpoint, van.Grant, []byte)
}

func (v *mutantVan) ring() {
	if !v.deaf.Load() {
		v.wake()
	}
}

// every reports true each n-th time. Called from hooks.
func (v *mutantVan) every(n int) bool {
	v.count++
	return v.count%n == 0
}

// add reports an event with one of the next Polls.
func (v *mutantVan) add(ev van.Event) {
	v.mu.Lock()
	v.extra = append(v.extra, ev)
	v.mu.Unlock()
	v.ring()
}

// complete reports the completion of an operation with one of the next Polls.
func (e *endpoint) complete(op van.OpID, err error) {
	e.van.add(van.Event{Kind: van.EventCompletion, Endpoint: e, Op: op, Err: err})
}

func (v *mutantVan) outer(inner van.Endpoint) *endpoint {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.known[inner]
	if e == nil {
		e = &endpoint{Endpoint: inner, van: v}
		v.known[inner] = e
	}
	return e
}

func (v *mutantVan) isClosed() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.closes > 0
}

func (v *mutantVan) Caps() van.Caps                     { return v.inner.Caps() }
func (v *mutantVan) Listen(addr string) (string, error) { return v.inner.Listen(addr) }
func (v *mutantVan) FD() int                            { return v.inner.FD() }

func (v *mutantVan) Dial(ctx context.Context, addr string) (van.Endpoint, error) {
	ep, err := v.inner.Dial(ctx, addr)
	if err != nil {
		if v.onDial != nil {
			err = v.onDial(err)
		}
		return nil, err
	}
	return v.outer(ep), nil
}

func (v *mutantVan) Poll(events []van.Event, all bool) int {
	if v.onPoll != nil {
		v.hook.Lock()
		v.onPoll()
		v.hook.Unlock()
	}
	v.mu.Lock()
	k := copy(events, v.extra)
	v.extra = v.extra[k:]
	v.mu.Unlock()
	if k == len(events) {
		return k
	}
	n := v.inner.Poll(events[k:], all)
	got := slices.Clone(events[k : k+n])
	for i := range got {
		got[i].Endpoint = v.outer(got[i].Endpoint)
	}
	if v.onEvents != nil {
		v.hook.Lock()
		got = v.onEvents(got)
		v.hook.Unlock()
	}
	m := copy(events[k:], got)
	if m < len(got) {
		v.mu.Lock()
		v.extra = append(v.extra, got[m:]...)
		v.mu.Unlock()
		v.ring()
	}
	return k + m
}

func (v *mutantVan) Arm() bool {
	v.mu.Lock()
	armed := len(v.extra) == 0
	v.mu.Unlock()
	armed = armed && v.inner.Arm()
	if v.onArm != nil {
		armed = v.onArm(armed)
	}
	return armed
}

// placeRequest is what a van asks of its Placer.
type placeRequest struct {
	e    *endpoint
	h    *wire.Header
	meta []byte
	dst  [][]byte
}

// ask asks the Placer.
func (v *mutantVan) ask(r placeRequest) ([][]byte, error) {
	return v.placer.Place(r.e, r.h, r.meta, r.dst)
}

func (v *mutantVan) Place(ep van.Endpoint, h *wire.Header, meta []byte, dst [][]byte) ([][]byte, error) {
	r := placeRequest{v.outer(ep), h, meta, dst}
	if v.onPlace == nil {
		return v.ask(r)
	}
	v.hook.Lock()
	defer v.hook.Unlock()
	return v.onPlace(r)
}

func (v *mutantVan) Close() error {
	v.mu.Lock()
	v.closes++
	times := v.closes
	if times == 3 {
		close(v.reopened)
	}
	v.mu.Unlock()
	err := v.inner.Close()
	if v.onClose != nil && err == nil {
		return v.onClose(times)
	}
	return err
}

// registrar is the inner van as one that registers memory.
func (v *mutantVan) registrar() van.Registrar { return v.inner.(van.Registrar) }

// Register implements van.Registrar.
func (v *mutantVan) Register(mem []byte) error {
	if v.registers.begin == nil {
		return v.registrar().Register(mem)
	}
	v.hook.Lock()
	defer v.hook.Unlock()
	return v.registers.begin(mem)
}

// Deregister implements van.Registrar.
func (v *mutantVan) Deregister(mem []byte) error {
	if v.registers.end == nil {
		return v.registrar().Deregister(mem)
	}
	v.hook.Lock()
	defer v.hook.Unlock()
	return v.registers.end(mem)
}

// endpoint is an endpoint of a mutant.
type endpoint struct {
	van.Endpoint
	van *mutantVan
}

// granter is the inner endpoint as one that grants.
func (e *endpoint) granter() van.Granter { return e.Endpoint.(van.Granter) }

// viewer is the inner endpoint as one that maps.
func (e *endpoint) viewer() van.Viewer { return e.Endpoint.(van.Viewer) }

func (e *endpoint) Send(m *van.Message) error {
	if e.van.onSend == nil {
		return e.Endpoint.Send(m)
	}
	e.van.hook.Lock()
	defer e.van.hook.Unlock()
	return e.van.onSend(e, m)
}

func (e *endpoint) Close() error {
	err := e.Endpoint.Close()
	if e.van.onEnd != nil {
		e.van.onEnd(e)
	}
	return err
}

func (e *endpoint) Grant(mem []byte, generation uint32, rights van.Rights) (van.Grant, error) {
	v := e.van
	v.hook.Lock()
	defer v.hook.Unlock()
	if v.registers.beforeGrant != nil {
		v.registers.beforeGrant(mem)
	}
	g, err := e.granter().Grant(mem, generation, rights)
	if err == nil {
		v.granted.add(g.ID, mem)
		if v.registers.onGranted != nil {
			v.registers.onGranted(e, g, mem)
		}
		if v.onGrant != nil {
			v.onGrant(g)
		}
	}
	return g, err
}

func (e *endpoint) Withdraw(g van.GrantID, op van.OpID) error {
	if e.van.withdraw != nil {
		return e.van.withdraw(e, g, op)
	}
	e.van.hook.Lock()
	defer e.van.hook.Unlock()
	err := e.granter().Withdraw(g, op)
	if err == nil {
		e.van.withdrawals = append(e.van.withdrawals, op)
	}
	return err
}

// mapRequest is what a caller of Map asks for.
type mapRequest struct {
	to     van.Target
	n      int64
	rights van.Rights
}

func (r mapRequest) ask(g van.Viewer) (van.View, error) { return g.Map(r.to, r.n, r.rights) }

func (e *endpoint) Map(t van.Target, n int64, rights van.Rights) (van.View, error) {
	r := mapRequest{t, n, rights}
	if e.van.onMap == nil {
		return r.ask(e.viewer())
	}
	e.van.hook.Lock()
	defer e.van.hook.Unlock()
	return e.van.onMap(e.viewer(), r)
}
