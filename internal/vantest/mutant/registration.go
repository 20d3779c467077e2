package mutant

import (
	"slices"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

// registeredMutations need a device that reaches registered memory alone.
var registeredMutations = []Mutation{
	{Name: "reaches memory after Deregister", Clauses: []int{8}, mutate: func(v *mutantVan) {
		v.registers.end = func([]byte) error { return nil }
	}},
	{Name: "sends from memory that is not registered", Clauses: []int{8}, mutate: func(v *mutantVan) {
		v.onSend = func(e *endpoint, m *van.Message) error {
			for i, t := range m.Target {
				if !t.IsZero() {
					_ = v.registrar().Register(m.Payload[i])
				}
			}
			return e.Endpoint.Send(m)
		}
	}},
	{Name: "grants memory that is not registered", Clauses: []int{8}, mutate: func(v *mutantVan) {
		v.registers.beforeGrant = func(mem []byte) { _ = v.registrar().Register(mem) }
	}},
	{Name: "registers the same memory once", Clauses: []int{8}, mutate: func(v *mutantVan) {
		known := map[*byte]bool{}
		v.registers.begin = func(mem []byte) error {
			at := unsafe.SliceData(mem)
			if known[at] {
				return nil
			}
			known[at] = true
			return v.registrar().Register(mem)
		}
	}},
	{Name: "ends grants with the registration of their memory", Clauses: []int{8}, mutate: endGrants},
	{Name: "fails operations with the registration of their source", Clauses: []int{1, 8}, mutate: failOperations},
	{Name: "loses operations with the registration of their source", Clauses: []int{1, 8}, mutate: loseOperations},
}

// endGrants withdraws a grant when the registration of its memory ends.
func endGrants(v *mutantVan) {
	const hidden = 1 << 60
	type out struct {
		e   *endpoint
		mem []byte
	}
	all := map[van.GrantID]out{}
	v.registers.onGranted = func(e *endpoint, g van.Grant, mem []byte) { all[g.ID] = out{e, mem} }
	v.registers.end = func(mem []byte) error {
		for id, o := range all {
			if overlap(o.mem, mem) {
				_ = o.e.granter().Withdraw(id, hidden)
				delete(all, id)
			}
		}
		return v.registrar().Deregister(mem)
	}
	drop(van.EventCompletion, func(_ *mutantVan, ev van.Event) bool { return ev.Op == hidden })(v)
}

// operation writes from registered memory, and was accepted.
type operation struct {
	e      *endpoint
	source [][]byte
}

// watchOperations calls ended with each operation whose source is registered no more.
func watchOperations(v *mutantVan, ended func(*endpoint, van.OpID)) {
	all := map[van.OpID]operation{}
	v.onSend = func(e *endpoint, m *van.Message) error {
		op, targets, source := m.Op, len(m.Target), slices.Clone(m.Payload)
		err := e.Endpoint.Send(m)
		if err == nil && targets > 0 && !m.Done {
			all[op] = operation{e, source}
		}
		return err
	}
	v.registers.end = func(mem []byte) error {
		for op, o := range all {
			for _, b := range o.source {
				if overlap(b, mem) {
					ended(o.e, op)
					delete(all, op)
					break
				}
			}
		}
		return v.registrar().Deregister(mem)
	}
}

func failOperations(v *mutantVan) {
	failed := map[van.OpID]bool{}
	watchOperations(v, func(e *endpoint, op van.OpID) {
		failed[op] = true
		e.complete(op, stepvan.ErrNotSupported)
	})
	drop(van.EventCompletion, func(_ *mutantVan, ev van.Event) bool { return failed[ev.Op] })(v)
}

func loseOperations(v *mutantVan) {
	lost := map[van.OpID]bool{}
	watchOperations(v, func(_ *endpoint, op van.OpID) { lost[op] = true })
	drop(van.EventCompletion, func(_ *mutantVan, ev van.Event) bool { return lost[ev.Op] })(v)
}

// overlap reports whether two slices share memory.
func overlap(a, b []byte) bool {
	from, to := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return len(a) > 0 && len(b) > 0 && from < to+uintptr(len(b)) && to < from+uintptr(len(a))
}
