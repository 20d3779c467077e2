package main

// #include "boundary.h"
import "C"

import (
	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/peer"
)

// goSend implements
//
//	int32_t stepvan_send(uint64_t node, const stepvan_view *view, uint32_t to, uint64_t tag, uint64_t owner,
//	    uint64_t *handle, stepvan_error *error);
//
//export goSend
func goSend(id cUint64, view *C.stepvan_view, to cUint32, tag, owner cUint64, handle *cUint64, e *cError) cCode {
	return onPeer(id, e, func(n *node) error { return n.transfer(view, to, tag, owner, handle, true) })
}

// goRecv implements
//
//	int32_t stepvan_recv(uint64_t node, const stepvan_view *view, uint32_t from, uint64_t tag, uint64_t owner,
//	    uint64_t *handle, stepvan_error *error);
//
//export goRecv
func goRecv(id cUint64, view *C.stepvan_view, from cUint32, tag, owner cUint64, handle *cUint64, e *cError) cCode {
	return onPeer(id, e, func(n *node) error { return n.transfer(view, from, tag, owner, handle, false) })
}

// transfer begins one side of a transfer. 0 allocations in the steady state.
func (n *node) transfer(view *cView, with cUint32, tag, owner cUint64, handle *cUint64, sends bool) error {
	if err := n.checkRunning(); err != nil {
		return err
	}
	if view == nil || handle == nil {
		return isNull("view and handle")
	}
	k := newCall(owner)
	k.storages = n.live.Load().Storages()
	err := k.view(&k.strided, view)
	if err == nil {
		var h peer.Handle
		if sends {
			h, err = n.peer.Send(k.strided, rankOf(with), peer.Tag(tag))
		} else {
			h, err = n.peer.Recv(k.strided, rankOf(with), peer.Tag(tag))
		}
		if err == nil {
			*handle = cUint64(h.ID())
		}
	}
	k.end(err == nil)
	return err
}

// rankOf is a rank of C. Package peer refuses those that do not exist.
func rankOf(rank cUint32) stepvan.Rank { return stepvan.Rank(int32(rank)) }

// goCancel implements
//
//	int32_t stepvan_cancel(uint64_t node, uint64_t handle, int32_t *cancelled, stepvan_error *error);
//
//export goCancel
func goCancel(id, handle cUint64, cancelled *cInt32, e *cError) cCode {
	return onPeer(id, e, func(n *node) error {
		return writeTruth(cancelled, func() bool { return n.peer.Cancel(n.peer.Handle(uint64(handle))) })
	})
}
