package rdma

import (
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/stepvan/stepvan/internal/race"
	"github.com/stepvan/stepvan/internal/vantest"
	"github.com/stepvan/stepvan/van"
)

// TestVan holds the van to the contract.
func TestVan(t *testing.T) {
	m := rdma(t)
	for i, f := range factories() {
		switch {
		case testing.Short() && i > 0, m.iWARP() && (f.Name == "rdma-windows" || f.Name == "rdma-immediate" || f.Name == "rdma-paths"):
			continue
		case race.Enabled && f.Name == "rdma-paths":
			continue // the tests of paths run under the race detector, and the suite takes minutes
		}
		t.Run(f.Name, func(t *testing.T) { vantest.Run(t, f) })
	}
}

func factories() []vantest.Factory {
	return []vantest.Factory{
		factory("rdma", Options{}),
		factory("rdma-windows", Options{Windows: true}),
		factory("rdma-immediate", Options{Immediate: true}),
		factory("rdma-paths", Options{Paths: PathOptions{Count: 2, StripeBytes: 4 << 10}}),
		factory("rdma-starved", Options{Inline: -1, Slots: 4, SendSlots: 2, SendRequests: 16}),
	}
}

func factory(name string, o Options) vantest.Factory {
	o.Credits = 8
	listen := netip.IPv4Unspecified()
	if onMachine() {
		listen, o.Source = theMachine().addr[1], theMachine().addr[0]
	}
	return vantest.Factory{
		Name: name,
		New: func(p van.Placer, _ func()) (van.Van, error) {
			o := o
			o.Placer = p
			return New(o)
		},
		Listen: netip.AddrPortFrom(listen, 0).String(), BadAddr: "no scheme",
		Credits:    o.Credits,
		Boundaries: []int{inMessage, defaultSlotBytes - prefixBytes - 128},
		RawDial:    func(addr string) (io.ReadWriteCloser, error) { return dialRaw(o, addr, true) },
		GreetDial:  func(addr string) (io.ReadWriteCloser, error) { return dialRaw(o, addr, false) },
		NoViews:    true, Offload: true, Registered: true,
		Deadline: 2 * time.Minute,
	}
}
