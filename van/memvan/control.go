package memvan

import "github.com/stepvan/stepvan"

// Cut loses all connections between the vans named a and b, with a random part of
// what was on its way. They may connect again at once. It returns how many
// connections there were.
func (net *Network) Cut(a, b string) int {
	list := net.between(a, b)
	for _, e := range list {
		e.conn.sever()
	}
	return len(list)
}

// Partition is Cut, and lets no dial between a and b succeed until Heal.
func (net *Network) Partition(a, b string) int {
	net.mu.Lock()
	net.cuts[pair(a, b)] = true
	net.mu.Unlock()
	return net.Cut(a, b)
}

// Heal ends a Partition. Dials that wait for it continue.
func (net *Network) Heal(a, b string) {
	net.mu.Lock()
	defer net.mu.Unlock()
	delete(net.cuts, pair(a, b))
	for _, c := range net.waiting {
		c.wakeAll()
	}
}

// Kill makes the van named name look to its peers like a process that died. Its
// addresses are free again. Its connections are lost, and with them a random part of what was on
// its way. To its owner the van looks closed. Kill reports whether there was such a van.
func (net *Network) Kill(name string) bool {
	n := net.find(name)
	if n == nil {
		return false
	}
	for _, e := range net.leave(n) {
		var f [2]ending
		f[e.side] = ending{close: true}
		f[e.peer.side] = ending{orphan: true, shred: true, reason: e.peer.fault("receive", stepvan.ErrPeerLost)}
		e.conn.end(f)
	}
	n.wakeOwner()
	return true
}

// Stall makes the van named name stand still, like a stopped process. Its Poll
// finds nothing, and what it sends stays where it is. Stall reports whether there is such a van.
func (net *Network) Stall(name string) bool {
	n := net.find(name)
	if n != nil {
		n.stalled.Store(true)
	}
	return n != nil
}

// Resume ends a Stall.
func (net *Network) Resume(name string) bool {
	n := net.find(name)
	if n == nil {
		return false
	}
	n.stalled.Store(false)
	for _, e := range n.list() {
		e.conn.mu.Lock()
		e.ready()
		e.peer.ready()
		e.conn.unlock()
	}
	n.wakeOwner()
	return true
}

// Corrupt damages the next message from the van named from to the one named
// to, on each of their connections. The receiver finds a wrong checksum. Corrupt
// returns how many connections there are.
func (net *Network) Corrupt(from, to string) int {
	list := net.between(from, to)
	for _, e := range list {
		e.conn.mu.Lock()
		e.faults.corrupt = true
		e.conn.mu.Unlock()
	}
	return len(list)
}

func (net *Network) find(name string) *memVan {
	net.mu.Lock()
	defer net.mu.Unlock()
	return net.nodes[name]
}

// between returns the endpoints of the van named a whose peers belong to the one named b.
func (net *Network) between(a, b string) []*endpoint {
	n := net.find(a)
	if n == nil {
		return nil
	}
	var list []*endpoint
	for _, e := range n.list() {
		if e.peer.van.opt.Name == b {
			list = append(list, e)
		}
	}
	return list
}
