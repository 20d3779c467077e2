package stress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// load is the payload of one exchange.
type load struct {
	Placed int64 // bytes pushed to a registered buffer; 0: none
	Pooled int64 // bytes pushed without one; 0: none
	Pull   int64 // bytes that each server answers
}

// bytes of an exchange with one server.
func (l load) bytes() int64 { return l.Placed + l.Pooled + l.Pull }

var (
	tiny    = load{Placed: 8, Pull: 8}
	small   = load{Placed: 4096, Pooled: 1000, Pull: 3000}
	large   = load{Placed: 4 << 20, Pooled: 4<<20 + 77, Pull: 4<<20 + 13}
	afdSize = load{Placed: 896 << 10, Pull: 1792 << 10} // one layer's activations of 64 tokens
)

// work is the job of a worker or server: what it exchanges, and with how many at a time.
type work struct {
	Loads []load // the first from the start, the second after doLarge
	Apart bool   // a lane for each server, and batches of any; else all servers at once

	Mixed   bool // each exchange has other sizes, up to those of the load
	Regions bool // in place of loads: regions that come and go
}

// largest payload of one tensor.
func (w *work) largest() (n int64) {
	for _, l := range w.Loads {
		n = max(n, l.Placed, l.Pooled, l.Pull)
	}
	return n
}

// allServers is the lane of exchanges with all servers at once.
const allServers = -1

// Keys of a lane: which worker, which lane, which load, and what for.
const (
	placedKey = iota
	pooledKey
	pullKey
)

func keyOf(worker ps.Rank, lane, load, what int) tensor.Key {
	return tensor.Key(worker)<<32 | tensor.Key(lane+1)<<16 | tensor.Key(load)<<4 | tensor.Key(what)
}

// Senders in labels.
func workerID(r ps.Rank) uint64 { return uint64(r) + 1 }
func serverID(r ps.Rank) uint64 { return uint64(r) + 1<<32 }

// asker is a worker's program.
type asker struct {
	node   *ps.Node
	report sink
	lanes  []*lane
	group  sync.WaitGroup
}

// newAsker makes the lanes, which hold all memory that they will need.
func newAsker(n *ps.Node, w *work, report sink) (*asker, error) {
	a := &asker{node: n, report: report}
	b := newBook(w.largest())
	var servers []ps.Rank
	for _, p := range n.Peers() {
		servers = append(servers, ps.Rank(p.Rank))
	}
	add := func(id int, to ...ps.Rank) error {
		l := &lane{asker: a, book: b, id: id, to: to, news: make(chan struct{}, 1), markAt: -1}
		a.lanes = append(a.lanes, l)
		return l.furnish(w)
	}
	if !w.Apart {
		return a, add(allServers, servers...)
	}
	for _, s := range servers {
		if err := add(int(s), s); err != nil {
			return a, err
		}
	}
	return a, nil
}

// start has the lanes run; they end with ctx.
func (a *asker) start(ctx context.Context) {
	for _, l := range a.lanes {
		a.group.Go(func() { l.run(ctx) })
	}
}

// do obeys a command to the lanes.
func (a *asker) do(c command) {
	for _, l := range a.lanes {
		l.do(c)
	}
}

// close waits for the lanes, and gives all memory back. Nothing may hold it when the node has stopped.
func (a *asker) close() error {
	a.group.Wait()
	var all []error
	for _, l := range a.lanes {
		all = append(all, l.close())
	}
	return errors.Join(all...)
}

// lane is a sequence of exchanges with one server or all.
type lane struct {
	asker *asker
	book  *book
	id    int
	to    []ps.Rank
	sets  []*set // by load

	mu     sync.Mutex
	load   int // index of the set in use
	limit  int // exchanges that were asked for
	count  int // that were done
	markAt int // the count to report; -1: none
	news   chan struct{}

	last  int64 // when the last exchange was done; of run
	bytes int64 // payload of all exchanges; of run
}

// set is the memory of a lane for one load, and its exchange.
type set struct {
	load     load
	exchange ps.Exchange
	seq      uint64
	cut      *cutter // of mixed sizes, else nil
	reused   int     // pull tensors whose memory was given back after a loss, and taken again
}

// furnish makes the sets.
func (l *lane) furnish(w *work) error {
	rank := l.asker.node.Worker().Rank()
	for i, ld := range w.Loads {
		s := &set{load: ld}
		l.sets = append(l.sets, s)
		x := &s.exchange
		for what, n := range []int64{placedKey: ld.Placed, pooledKey: ld.Pooled} {
			if n == 0 {
				continue
			}
			t, err := l.asker.node.Memory().Empty(tensor.Uint8, n)
			if err != nil {
				return err
			}
			x.Push, x.PushKeys = append(x.Push, t), append(x.PushKeys, keyOf(rank, l.id, i, what))
		}
		for range l.to {
			t, err := l.asker.node.Memory().Empty(tensor.Uint8, ld.Pull)
			if err != nil {
				return err
			}
			x.Pull, x.PullKeys = append(x.Pull, t), append(x.PullKeys, keyOf(rank, l.id, i, pullKey))
		}
		if w.Apart {
			x.Routing, x.PushTo, x.PullTo = ps.Named, l.to, l.to
		}
		if w.Mixed {
			s.cut = newCutter(x, uint64(keyOf(rank, l.id, i, 0)))
		}
	}
	return nil
}

func (l *lane) do(c command) {
	l.mu.Lock()
	switch c.Do {
	case doRun:
		l.limit += c.Count
	case doFinish:
		l.limit = l.count + c.Count
	case doLarge:
		l.load = 1
	case doMark:
		if c.Lane == l.id {
			l.markAt = l.count + c.Count
		}
	}
	l.mu.Unlock()
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// run exchanges what is asked for, until a server is lost or ctx ends.
func (l *lane) run(ctx context.Context) {
	for {
		s, ok := l.next()
		if !ok {
			select {
			case <-l.news:
				continue
			case <-ctx.Done():
				return
			}
		}
		err := l.trade(ctx, s)
		if err != nil {
			if ctx.Err() == nil {
				l.fail(ctx, s, err)
			}
			return
		}
		l.done()
	}
}

// next is the set of the next exchange; none while there is nothing to do.
func (l *lane) next() (*set, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sets[l.load], l.count < l.limit
}

// done counts an exchange. 0 allocations unless there is something to report.
func (l *lane) done() {
	l.last = clock()
	l.mu.Lock()
	l.count++
	marked, ran, count := l.count == l.markAt, l.count == l.limit, l.count
	l.mu.Unlock()
	if marked {
		l.asker.report(event{Kind: evMark, Lane: l.id, Count: count})
	}
	if ran {
		l.asker.report(event{Kind: evRan, Lane: l.id, Count: count, Bytes: l.bytes})
	}
}

// trade does one exchange and checks every byte that comes back. 0 allocations.
func (l *lane) trade(ctx context.Context, s *set) error {
	me := workerID(l.asker.node.Worker().Rank())
	s.seq++
	if s.cut != nil {
		if err := s.cut.next(&s.exchange); err != nil {
			return err
		}
	}
	for i, t := range s.exchange.Push {
		b := t.Bytes()
		l.bytes += int64(len(b))
		copy(b, l.book.page(label{me, uint64(s.exchange.PushKeys[i]), s.seq}, int64(len(b))))
	}
	h, err := l.asker.node.Do(&s.exchange)
	if err == nil {
		err = h.Wait(ctx)
	}
	if err != nil {
		return err
	}
	for i, t := range s.exchange.Pull {
		l.bytes += int64(t.Len())
		if err := l.book.check(label{serverID(l.to[i]), uint64(s.exchange.PullKeys[i]), s.seq}, t.Bytes()); err != nil {
			l.asker.report(event{Kind: evWrong, Text: fmt.Sprintf("worker %d, answer of server %d: %v", me-1, l.to[i], err)})
		}
	}
	return nil
}

// fail reports a loss, and that the next exchange is refused with it.
func (l *lane) fail(ctx context.Context, s *set, err error) {
	at := clock()
	if !errors.Is(err, stepvan.ErrPeerLost) {
		l.asker.report(event{Kind: evWrong, Text: "not the loss of a peer: " + err.Error()})
		return
	}
	l.mu.Lock()
	count := l.count
	l.mu.Unlock()
	l.asker.report(event{Kind: evLost, At: at, Text: err.Error(), Lane: l.id, Count: count, Bytes: s.load.bytes(), Last: l.last})
	h, err := l.asker.node.Do(&s.exchange)
	if err == nil {
		err = h.Wait(ctx)
	}
	l.asker.report(event{Kind: evRefused, Text: fmt.Sprint(err), Lane: l.id})
	if err := l.reuse(ctx, s); err != nil && ctx.Err() == nil {
		l.asker.report(event{Kind: evWrong, Text: "the memory of a failed exchange: " + err.Error()})
	}
}

// canary fills memory that a lost server could write to before: it must not any more.
const canary = 0xa5

// reuse gives the pull tensors of a failed exchange back, and takes the memory for something else.
// The worker refuses it as long as a server could write to them.
func (l *lane) reuse(ctx context.Context, s *set) error {
	for i, t := range s.exchange.Pull {
		for errors.Is(t.Region().Close(), stepvan.ErrBusy) {
			select {
			case <-time.After(time.Millisecond): // no event shows when a lost server has unmapped the memory
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		again, err := l.asker.node.Memory().Empty(tensor.Uint8, s.load.Pull)
		if err != nil {
			return err
		}
		copy(again.Bytes(), bytes.Repeat([]byte{canary}, again.Len()))
		s.exchange.Pull[i] = again
		s.reused++
	}
	l.asker.report(event{Kind: evFreed, Lane: l.id})
	return nil
}

// close gives the memory back.
func (l *lane) close() error {
	var all []error
	for _, s := range l.sets {
		for i, t := range s.exchange.Pull {
			if i < s.reused && bytes.Count(t.Bytes(), []byte{canary}) != t.Len() {
				all = append(all, fmt.Errorf("lane %d: memory was written by a server that was lost, after it was used for something else", l.id))
			}
			all = append(all, t.Region().Close())
		}
		for _, t := range s.exchange.Push {
			all = append(all, t.Region().Close())
		}
	}
	return errors.Join(all...)
}
