package vantest

import (
	"errors"
	"io"
	"time"

	"github.com/stepvan/stepvan/van"
)

// Factory describes a van to the suite.
type Factory struct {
	// Name tells factories of one test binary apart. No spaces.
	Name string

	// New makes a van that asks placer and, when it has no FD, calls wake. All vans
	// of a factory can reach each other. Called from any goroutine.
	New func(placer van.Placer, wake func()) (van.Van, error)

	// Listen is an address for Van.Listen that stands for a free one: "127.0.0.1:0".
	Listen string

	// BadAddr is an address that Dial must refuse at once, because it cannot be parsed.
	BadAddr string

	// Credits is how many deliveries of one endpoint can be unreleased in these vans.
	Credits int

	// Boundaries are payload sizes at which the van changes its ways. The suite tests each of them,
	// and one byte below and above. It tests the usual sizes in any case.
	Boundaries []int

	// Memory makes memory that a one-sided van of the factory can grant; nil for
	// vans that can grant any. It starts at a page, and lives until the test binary ends.
	Memory func(n int) ([]byte, error)

	// RawDial connects to an address of Listen as a peer that only pretends to be one. If the
	// van has a greeting of its own, RawDial has spoken it, and an EventAccepted follows from that
	// greeting. The van takes what is written next for a wire header.
	RawDial func(addr string) (io.ReadWriteCloser, error)

	// GreetDial is RawDial before the greeting; nil only with NoGreeting.
	GreetDial func(addr string) (io.ReadWriteCloser, error)

	// NoGreeting says that these vans have no greeting of their own, and skip the cases about spoiling it.
	NoGreeting bool

	// NoProcesses says that these vans do not cross processes, and skip the cases with a second one. Where
	// they do, the test binary must have a TestMain that gives this factory to Main.
	NoProcesses bool

	// TwoSided says that these vans have no one-sided operations, and skip the cases about those.
	TwoSided bool

	// NoViews says that these vans, which are one-sided, have no views, and skip the cases about those.
	NoViews bool

	// Offload says that these vans, which are one-sided, have a device that moves payload. Others skip the cases about
	// that.
	Offload bool

	// Registered says that a device of these vans reaches only memory that is registered. Others skip the cases about
	// that.
	Registered bool

	// Lossy says that these vans lose connections by themselves, and run only the cases made for that.
	Lossy bool

	// Deadline bounds each case; 30 s when zero.
	Deadline time.Duration
}

func (f *Factory) check() error {
	switch {
	case f.Name == "" || f.New == nil || f.Listen == "" || f.BadAddr == "":
		return errors.New("vantest: Factory needs Name, New, Listen and BadAddr")
	case f.Credits <= 0:
		return errors.New("vantest: Factory.Credits must say how many deliveries may be unreleased")
	case f.RawDial == nil:
		return errors.New("vantest: Factory.RawDial is missing: clause 7 needs a peer that is not a van")
	case (f.GreetDial == nil) != f.NoGreeting:
		return errors.New("vantest: give Factory.GreetDial, or set NoGreeting when the van has no greeting of its own")
	}
	if f.Deadline == 0 {
		f.Deadline = 30 * time.Second
	}
	return nil
}

// memory is what the vans can grant.
func (f *Factory) memory(n int) ([]byte, error) {
	if f.Memory == nil {
		return make([]byte, n), nil
	}
	return f.Memory(n)
}

// sizes are the payloads at which transports change their ways.
func (f *Factory) sizes() []int {
	list := []int{
		0, 1, 7, 8, 63, 64, 127, 128, 129, 1500, 4095, 4096, 4097, 16*kib - 1, 16 * kib, 16*kib + 1,
		64*kib - 1, 64 * kib, 64*kib + 1, 200*kib + 13, mib,
	}
	for _, b := range f.Boundaries {
		list = append(list, max(0, b-1), b, b+1)
	}
	return list
}
