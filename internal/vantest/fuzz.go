package vantest

import (
	"testing"

	"github.com/stepvan/stepvan/internal/wire"
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
		tc := testCase{name: "fuzz", run: func(t *trial) {
			x, raw, r := t.withRawPeer()
			mayFail(raw)
			raw.allow.hostile = true
			r.attack(data, true)
			t.until("EventLost of the hostile peer", raw.isLost)
			t.want(raw.count().delivered <= len(data)/wire.HeaderSize, "%d messages in %d bytes", raw.count().delivered, len(data))
			x.deliver(t.mix(3, kib)...)
		}}
		if found := runCase(factory, clause07, tc); found != nil {
			t.Error(found)
		}
	})
}
