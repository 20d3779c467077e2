package main

// #include "boundary.h"
import "C"

import (
	"unsafe"

	"github.com/stepvan/stepvan/ps"
)

// goPeers implements
//
//	int32_t stepvan_peers(uint64_t node, stepvan_peer *peers, uint64_t capacity, uint64_t *count,
//	    stepvan_error *error);
//
//export goPeers
func goPeers(id cUint64, peers *C.stepvan_peer, capacity cUint64, count *cUint64, e *cError) cCode {
	return onNode(id, e, func(n *node) error {
		return writeList(unsafe.Pointer(peers), capacity, count, func() (all []cPeer, _ error) {
			live := n.live.Load()
			connections := live.Connections()
			for _, p := range live.Peers() {
				all = append(all, listed(&p, connections))
			}
			return all, nil
		})
	})
}

// goPeerInfo implements
//
//	int32_t stepvan_peer_info(uint64_t node, uint32_t *rank, uint32_t *size, stepvan_error *error);
//
//export goPeerInfo
func goPeerInfo(id cUint64, rank, size *cUint32, e *cError) cCode {
	return onNode(id, e, func(n *node) error {
		live := n.live.Load()
		switch {
		case live.Role() != ps.RolePeer:
			return invalid("this node is a %s, and only a peer has a rank among peers", live.Role())
		case rank == nil || size == nil:
			return isNull("rank or size")
		}
		*rank, *size = cUint32(live.Rank()), cUint32(len(live.Peers())+1)
		return nil
	})
}

// listed is a peer as C lists it.
func listed(p *ps.Peer, connections ps.Connections) (c cPeer) {
	c.role = roles[p.Role]
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
