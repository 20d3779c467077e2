package faults

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stepvan/stepvan/van"
)

// Options say what happens by chance. The zero value is a network where nothing does.
type Options struct {
	Seed     uint64        // of everything that happens by chance
	Delay    time.Duration // of each message, before the inner van takes it
	Jitter   time.Duration // added to Delay, at random up to this, per message; order within an endpoint stays
	LossRate float64       // probability, per message sent, that its connection is lost there (Caps.Lossy)
	Reorder  bool          // a Poll reports what happened at different endpoints in random order
}

// Network is a set of wrapped vans. All methods may be called concurrently.
type Network struct {
	options Options

	mu      sync.Mutex            // guards all that the wrapped vans share or keep
	made    uint64                // vans so far
	vans    map[string]*faultyVan // open ones, by name
	hosts   map[string]string     // names of vans, by the addresses where they listen
	parted  map[[2]string]bool    // pairs of names that cannot connect
	changed chan struct{}         // closed by the next Heal, and by the next Close of a van
}

// Maker makes a van, as a link and a vantest.Factory call it.
type Maker = func(placer van.Placer, wake func()) (van.Van, error)

// New makes a network without vans. It needs no Close.
func New(o Options) *Network {
	return &Network{
		options: o,
		vans:    map[string]*faultyVan{},
		hosts:   map[string]string{},
		parted:  map[[2]string]bool{},
		changed: make(chan struct{}),
	}
}

// Wrap returns a maker whose van the methods of net know by name, until it is closed. Vans
// without a name have the faults of Options only. The wake function must not be nil.
func (net *Network) Wrap(name string, maker Maker) Maker {
	return func(placer van.Placer, wake func()) (van.Van, error) {
		v := &faultyVan{net: net, name: name, placer: placer, wake: wake, known: map[van.Endpoint]*endpoint{}}
		inner, err := maker(v, wake)
		if inner == nil || err != nil {
			return nil, err
		}
		v.Van = inner
		net.mu.Lock()
		defer net.mu.Unlock()
		net.made++
		v.dice = rand.New(rand.NewPCG(net.options.Seed, net.made))
		net.vans[v.name] = v
		return v, nil
	}
}

// Cut loses all connections between the vans named a and b, with what was on its way. They may connect again at once.
// It returns how many connections there were.
func (net *Network) Cut(a, b string) int {
	list := append(net.dialled(a, b), net.dialled(b, a)...)
	for _, e := range list {
		e.sever()
	}
	return len(list)
}

// Partition is Cut, and lets no dial between a and b succeed until Heal.
func (net *Network) Partition(a, b string) int {
	net.mu.Lock()
	net.parted[pair(a, b)] = true
	net.mu.Unlock()
	return net.Cut(a, b)
}

// Heal ends a Partition. Dials that wait for it continue.
func (net *Network) Heal(a, b string) {
	net.mu.Lock()
	defer net.mu.Unlock()
	delete(net.parted, pair(a, b))
	net.change()
}

// change has dials that wait look again. Called with mu held.
func (net *Network) change() {
	close(net.changed)
	net.changed = make(chan struct{})
}

// Kill makes the van named name look to its peers like a process that died. Its addresses are free again, its
// connections are lost, and so are its views of other vans' memory: over a van that maps, nobody may touch their bytes
// any more. To its owner the van looks closed. Kill reports whether there was such a van.
func (net *Network) Kill(name string) bool {
	v := net.find(name)
	if v == nil {
		return false
	}
	_ = v.Close()
	v.views.Range(func(ref, _ any) bool {
		v.ReleaseView(van.View{Ref: ref.(uint64)})
		return true
	})
	return true
}

// Stall makes the van named name stand still, like a stopped process. Its Poll finds nothing, and what it sends stays
// where it is. Stall reports whether there is such a van.
func (net *Network) Stall(name string) bool { return net.setStalled(name, true) }

// Resume ends a Stall.
func (net *Network) Resume(name string) bool { return net.setStalled(name, false) }

func (net *Network) setStalled(name string, stalled bool) bool {
	v := net.find(name)
	if v == nil {
		return false
	}
	net.mu.Lock()
	v.stalled = stalled
	net.mu.Unlock()
	v.flush()
	return true
}

// Corrupt damages the next message of the van named from on each of its connections to the van named to that it has
// dialled. The receiver finds a wrong checksum, unless its van looks for none (Caps.Sound). Corrupt returns how many
// connections there are.
func (net *Network) Corrupt(from, to string) int {
	list := net.dialled(from, to)
	for _, e := range list {
		e.corrupt.Store(true)
	}
	return len(list)
}

func (net *Network) find(name string) *faultyVan {
	net.mu.Lock()
	defer net.mu.Unlock()
	return net.vans[name]
}

// dialled returns the endpoints with which the van named from has dialled the one named to.
func (net *Network) dialled(from, to string) (list []*endpoint) {
	net.mu.Lock()
	defer net.mu.Unlock()
	if v := net.vans[from]; v != nil {
		for _, e := range v.known {
			if e.to == to && e.end == nil {
				list = append(list, e)
			}
		}
	}
	return list
}

func pair(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }
