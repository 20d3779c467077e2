package main

// #include "boundary.h"
import "C"

import (
	"context"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/capi/internal/numbers"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// exposed is a number from stepvan_expose to stepvan_unexpose: memory that other peers reach by themselves.
type exposed struct {
	node  *node
	live  *peer.Window
	notes *mailbox // nil: they are dropped
}

// tokenBytes is the length of a token.
const tokenBytes = C.STEPVAN_TOKEN_BYTES

// goExpose implements
//
//	int32_t stepvan_expose(uint64_t node, const stepvan_view *view, uint32_t flags, const uint32_t *peers,
//	    uint64_t count, uint64_t owner, uint64_t *window, uint8_t *token, uint64_t *notes, stepvan_error
//	    *error);
//
//export goExpose
func goExpose(id cUint64, view *C.stepvan_view, flags cUint32, peers *cUint32, count, owner cUint64, number *cUint64, token *cUint8, notes *cUint64, e *cError) cCode {
	return onPeer(id, e, func(n *node) error {
		switch {
		case view == nil || number == nil || token == nil || count > maxList || count > 0 && peers == nil:
			return isNull("view, peers, window and token")
		case flags&^flagWrite != 0:
			return invalid("flags: some do not exist (got %#x, want STEPVAN_WRITE at most)", flags)
		}
		if err := n.checkRunning(); err != nil {
			return err
		}
		k := newCall(owner)
		x, err := expose(n, k, view, flags, ranksOf(list[uint32](unsafe.Pointer(peers), count)), notes)
		k.end(err == nil)
		if err != nil {
			return err
		}
		mine := x.live.Token()
		copy(list[byte](unsafe.Pointer(token), tokenBytes), mine[:])
		*number = cUint64(exposures.Put(x))
		return nil
	})
}

func expose(n *node, k *call, view *cView, flags cUint32, ranks []stepvan.Rank, notes *cUint64) (*exposed, error) {
	k.storages = n.live.Load().Storages()
	if err := k.view(&k.strided, view); err != nil {
		return nil, err
	}
	x, o := &exposed{node: n}, peer.WindowOptions{Peers: ranks, Rights: peer.RightRead}
	if flags&flagWrite != 0 {
		o.Rights |= peer.RightWrite
	}
	if notes != nil {
		x.notes = newMailbox("notes of a window", n)
		o.Note = x.notes.put
	}
	var err error
	if x.live, err = n.peer.Expose(k.strided, o); err == nil && notes != nil {
		err = x.notes.number(notes)
	}
	return x, err
}

// noWindow is the error of a number without a window.
func noWindow(number cUint64) error { return missing(&exposures, "window", "was closed", number) }

// goUnexpose implements
//
//	int32_t stepvan_unexpose(uint64_t window, int64_t timeout_ns, stepvan_error *error);
//
//export goUnexpose
func goUnexpose(number cUint64, limit cInt64, e *cError) cCode {
	return half(e, func() error {
		x, ok := exposures.Get(numbers.ID(number))
		if !ok {
			return noWindow(number)
		}
		ctx, cancel := limited(duration(limit))
		defer cancel()
		if err := x.live.Close(ctx); err != nil {
			return err
		}
		exposures.Take(numbers.ID(number))
		return nil
	})
}

// goGet implements
//
//	int32_t stepvan_get(uint64_t node, const stepvan_view *view, const uint8_t *token, const int64_t *at,
//	    uint64_t owner, uint64_t *handle, stepvan_error *error);
//
//export goGet
func goGet(id cUint64, view *C.stepvan_view, token *cUint8, at *cInt64, owner cUint64, handle *cUint64, e *cError) cCode {
	return onPeer(id, e, func(n *node) error {
		return n.access(view, token, at, owner, handle, func(v tensor.Strided, t peer.Token, at []int64) (peer.Handle, error) { return n.peer.Get(v, t, at) })
	})
}

// goPut implements
//
//	int32_t stepvan_put(uint64_t node, const stepvan_view *view, const uint8_t *token, const int64_t *at, const
//	    void *note, uint64_t note_bytes, uint64_t owner, uint64_t *handle, stepvan_error *error);
//
//export goPut
func goPut(id cUint64, view *C.stepvan_view, token *cUint8, at *cInt64, note unsafe.Pointer, noteBytes, owner cUint64, handle *cUint64, e *cError) cCode {
	return onPeer(id, e, func(n *node) error {
		if note == nil && noteBytes > 0 || !addressable(note, uint64(noteBytes)) {
			return invalid("note: %d bytes at %#x are not readable memory", noteBytes, uintptr(note))
		}
		var body []byte
		if note != nil {
			body = unsafe.Slice((*byte)(note), noteBytes)
		}
		return n.access(view, token, at, owner, handle, func(v tensor.Strided, t peer.Token, at []int64) (peer.Handle, error) {
			return n.peer.Put(v, t, at, body)
		})
	})
}

// goPutRows implements
//
//	int32_t stepvan_put_rows(uint64_t node, const stepvan_view *view, const int64_t *rows, uint64_t count, const
//	    uint8_t *token, const int64_t *at, const void *note, uint64_t note_bytes, uint64_t owner, uint64_t *handle,
//	    stepvan_error *error);
//
//export goPutRows
func goPutRows(id cUint64, view *C.stepvan_view, rows *cInt64, count cUint64, token *cUint8, at *cInt64, note unsafe.Pointer, noteBytes, owner cUint64, handle *cUint64, e *cError) cCode {
	return onPeer(id, e, func(n *node) error {
		if rows == nil && count > 0 || count > maxAddress/8 || !addressable(unsafe.Pointer(rows), uint64(count)*8) {
			return invalid("rows: %d numbers at %#x are not readable memory", count, uintptr(unsafe.Pointer(rows)))
		}
		if note == nil && noteBytes > 0 || !addressable(note, uint64(noteBytes)) {
			return invalid("note: %d bytes at %#x are not readable memory", noteBytes, uintptr(note))
		}
		var body []byte
		if note != nil {
			body = unsafe.Slice((*byte)(note), noteBytes)
		}
		return n.access(view, token, at, owner, handle, func(v tensor.Strided, t peer.Token, at []int64) (peer.Handle, error) {
			return n.peer.Library().PutRows(v, list[int64](unsafe.Pointer(rows), count), t, at, body)
		})
	})
}

// access begins a get or a put.
func (n *node) access(view *cView, token *cUint8, at *cInt64, owner cUint64, handle *cUint64, begin func(tensor.Strided, peer.Token, []int64) (peer.Handle, error)) error {
	if err := n.checkRunning(); err != nil {
		return err
	}
	if view == nil || token == nil || handle == nil {
		return isNull("view, token and handle")
	}
	k := newCall(owner)
	k.storages = n.live.Load().Storages()
	err := k.view(&k.strided, view)
	if err == nil {
		var h peer.Handle
		if h, err = begin(k.strided, peer.Token(list[byte](unsafe.Pointer(token), tokenBytes)), list[int64](unsafe.Pointer(at), cUint64(view.rank))); err == nil {
			*handle = cUint64(h.ID())
		}
	}
	k.end(err == nil)
	return err
}

// end ends the window at a node that was closed.
func (x *exposed) end() error { return x.live.Close(context.Background()) }
