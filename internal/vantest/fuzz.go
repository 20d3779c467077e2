package vantest

import (
	"testing"
)

// Fuzz feeds arbitrary bytes to a van as a hostile peer would, behind its greeting.
// The van may deliver what happens to be valid, must lose the connection once
// when the peer closes, and must continue to serve another peer.
//
//	func FuzzPeer(f *testing.F) { vantest.Fuzz(f, factory) }
func Fuzz(f *testing.F, factory Factory) {
	if err := factory.check(); err != nil {
		f.Fatal(err)
	}
	for _, a := range attacks() {
		f.Add(a.bytes)
	}
	f.Add(append(rawMessage(1, 40, 100), rawMessage(2, 0, 0)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		tc := testCase{name: "fuzz", run: func(p *probe) { p.endure(data) }}
		if found := runCase(factory, clause07, tc); found != nil {
			t.Error(found)
		}
	})
}

// endure is suffer for bytes of unknown meaning.
func (p *probe) endure(data []byte) {
	x, y, victim, r := p.besieged()
	victim.endangered()
	victim.allow.stranger = true
	p.call("a hostile Write to return", func() {
		_, _ = r.Write(data)
		_ = r.Close()
	})
	p.until("EventLost of the hostile peer", func() bool { return victim.count().lost })
	p.want(victim.count().delivered <= len(data)/128, "%d messages in %d bytes", victim.count().delivered, len(data))
	x.run(y, p.mix(3, kib)...)
}
