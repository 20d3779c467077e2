package main

// #include "boundary.h"
import "C"

import (
	"bytes"
	"context"
	"sync"
	"unsafe"

	"github.com/stepvan/stepvan/capi/internal/numbers"
	"github.com/stepvan/stepvan/ps"
)

// keptPosts is how many operations on the board keep their numbers.
const keptPosts = 256

// goPost implements
//
//	int32_t stepvan_post(uint64_t node, const char *key, const void *value, uint64_t bytes, uint64_t *handle,
//	    stepvan_error *error);
//
//export goPost
func goPost(id cUint64, key *C.char, value unsafe.Pointer, n cUint64, handle *cUint64, e *cError) cCode {
	return onNode(id, e, func(live *node) error {
		if key == nil || handle == nil || value == nil && n > 0 || !addressable(value, uint64(n)) {
			return isNull("key, value and handle")
		}
		name, body := C.GoString(key), bytes.Clone(list[byte](value, n))
		return live.posts.begin(live, "post", handle, func(ctx context.Context, b ps.Board) error { return b.Post(ctx, name, body) })
	})
}

// goUnpost implements
//
//	int32_t stepvan_unpost(uint64_t node, const char *key, uint64_t *handle, stepvan_error *error);
//
//export goUnpost
func goUnpost(id cUint64, key *C.char, handle *cUint64, e *cError) cCode {
	return onNode(id, e, func(n *node) error {
		if key == nil || handle == nil {
			return isNull("key and handle")
		}
		name := C.GoString(key)
		return n.posts.begin(n, "remove", handle, func(ctx context.Context, b ps.Board) error { return b.Remove(ctx, name) })
	})
}

// begin begins an operation of a node on the board.
func (p *posts) begin(n *node, op string, handle *cUint64, f func(context.Context, ps.Board) error) error {
	if err := n.checkRunning(); err != nil {
		return err
	}
	c := n.begin(op, -1, func(ctx context.Context, _ *collective) error { return f(ctx, n.live.Load().Board()) })
	id := p.add(c)
	if id == 0 {
		c.stop()
		return tooMany("operations on the board")
	}
	*handle = cUint64(id)
	return nil
}

// watch is a number from stepvan_watch to stepvan_watch_close: the entries of the board with a prefix.
type watch struct {
	*collective
	mu      sync.Mutex
	entries []ps.Entry    // the latest
	seen    bool          // C has been told of them
	changed chan struct{} // closed when there are others
	shown   []ps.Entry    // what C reads
}

// goWatch implements
//
//	int32_t stepvan_watch(uint64_t node, const char *prefix, uint64_t *watch, stepvan_error *error);
//
//export goWatch
func goWatch(id cUint64, prefix *C.char, number *cUint64, e *cError) cCode {
	return onNode(id, e, func(n *node) error {
		if prefix == nil || number == nil {
			return isNull("prefix and watch")
		}
		if err := n.checkRunning(); err != nil {
			return err
		}
		name, w := C.GoString(prefix), &watch{seen: true, changed: make(chan struct{})}
		w.collective = n.begin("watch", -1, func(ctx context.Context, _ *collective) error {
			_, err := n.live.Load().Board().Watch(ctx, name, w.set)
			return err
		})
		id := watches.Put(w)
		if id == 0 {
			w.stop()
			return tooMany("watches")
		}
		*number = cUint64(id)
		return nil
	})
}

// set takes a list of entries.
func (w *watch) set(entries []ps.Entry) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.entries, w.seen = entries, false
	close(w.changed)
	w.changed = make(chan struct{})
	return false
}

// look shows C the latest entries. It returns what to wait for when C has seen them.
func (w *watch) look() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen {
		return w.changed
	}
	w.shown, w.seen = w.entries, true
	return nil
}

// await waits until the board has entries that C has not seen.
func (w *watch) await(ctx context.Context) error {
	for changed := w.look(); changed != nil; changed = w.look() {
		select {
		case <-changed:
		case <-w.over:
			return w.err
		case <-ctx.Done():
			return errTimeout
		}
	}
	return nil
}

// noWatch is the error of a number without a watch.
func noWatch(number cUint64) error { return missing(&watches, "watch", "was closed", number) }

// goWatchNext implements
//
//	int32_t stepvan_watch_next(uint64_t watch, int64_t timeout_ns, uint64_t *count, stepvan_error *error);
//
//export goWatchNext
func goWatchNext(number cUint64, limit cInt64, count *cUint64, e *cError) cCode {
	return half(e, func() error {
		w, ok := watches.Get(numbers.ID(number))
		switch {
		case !ok:
			return noWatch(number)
		case count == nil:
			return isNull("count")
		}
		ctx, cancel := limited(duration(limit))
		defer cancel()
		err := w.await(ctx)
		if err == nil {
			*count = cUint64(len(w.list()))
		}
		return err
	})
}

func (w *watch) list() []ps.Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shown
}

// goWatchEntry implements
//
//	int32_t stepvan_watch_entry(uint64_t watch, uint64_t i, stepvan_entry *entry, stepvan_error *error);
//
//export goWatchEntry
func goWatchEntry(number, i cUint64, entry *C.stepvan_entry, e *cError) cCode {
	return half(e, func() error {
		w, ok := watches.Get(numbers.ID(number))
		switch {
		case !ok:
			return noWatch(number)
		case entry == nil:
			return isNull("entry")
		}
		all := w.list()
		if uint64(i) >= uint64(len(all)) {
			return invalid("i: the last stepvan_watch_next has given no such entry (got %d, want less than %d)", i, len(all))
		}
		from := &all[i]
		*entry = cEntry{order: cUint64(from.Order), bytes: cUint64(len(from.Value))}
		write(unsafe.Slice((*byte)(unsafe.Pointer(&entry.key)), len(entry.key)), from.Key)
		write(unsafe.Slice((*byte)(unsafe.Pointer(&entry.owner)), len(entry.owner)), from.Owner.Name())
		copy(list[byte](unsafe.Pointer(&entry.value), maxValue), from.Value)
		return nil
	})
}

// goWatchClose implements
//
//	int32_t stepvan_watch_close(uint64_t watch, stepvan_error *error);
//
//export goWatchClose
func goWatchClose(number cUint64, e *cError) cCode {
	return half(e, func() error {
		w, ok := watches.Take(numbers.ID(number))
		if !ok {
			return noWatch(number)
		}
		w.stop()
		return nil
	})
}
