package main

// #include "boundary.h"
import "C"

import (
	"unsafe"

	"github.com/stepvan/stepvan/ps"
)

// goPeers implements stepvan_peers.
//
//export goPeers
func goPeers(id cUint64, peers *C.stepvan_peer, capacity cUint64, count *cUint64, e *cError) (code cCode) {
	defer guardNode(id, e, &code)
	n, err := started(id)
	if err != nil {
		return fail(e, err)
	}
	dst, err := array[cPeer](unsafe.Pointer(peers), capacity, count)
	if err != nil {
		return fail(e, err)
	}
	live := n.live.Load()
	all := live.Peers()
	connections := live.Connections()
	for i := range min(len(all), len(dst)) {
		dst[i] = peer(&all[i], connections)
	}
	return result(e, fits(len(all), capacity, count))
}

// array is the caller's array for a list. count always gets the list's length.
func array[T any](p unsafe.Pointer, capacity cUint64, count *cUint64) ([]T, error) {
	switch {
	case count == nil:
		return nil, isNull("count")
	case p == nil && capacity > 0 || capacity > maxList:
		return nil, invalid("an array of %d at %p", capacity, p)
	}
	return list[T](p, capacity), nil
}

// fits writes the length of a list, and checks whether the caller's array has room for it.
func fits(n int, capacity cUint64, count *cUint64) error {
	if *count = cUint64(n); *count > capacity {
		return tooSmall(n, capacity)
	}
	return nil
}

func peer(p *ps.Peer, connections ps.Connections) (c cPeer) {
	c.role = roleServer
	if p.Role == ps.RoleWorker {
		c.role = roleWorker
	}
	c.rank, c.node_rank, c.instance, c.pid = cInt32(p.Rank), cInt32(p.NodeRank), cInt32(p.LocalRank), cInt32(p.PID)
	write(unsafe.Slice((*byte)(unsafe.Pointer(&c.host)), len(c.host)), p.Host)
	for i := range connections {
		if known := &connections[i]; known.Peer.ID == p.ID {
			c.connected = 1
			write(unsafe.Slice((*byte)(unsafe.Pointer(&c.van)), len(c.van)), known.Van)
			write(unsafe.Slice((*byte)(unsafe.Pointer(&c.reason)), len(c.reason)), known.Reason)
		}
	}
	return c
}
